// mneme run: one prompt, no server and no store.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/local_model.h"
#include "cli/terminal.h"
#include "engine/request_check.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
examples:
  mneme run --model checkpoints/demo --prompt "My locker code is 4711."
  mneme run --model checkpoints/demo --prompt-file notes.txt --raw --max-tokens 50
  echo "Hello." | mneme run --model checkpoints/demo --prompt-file - --json

The prompt is one user message; with --raw it is plain text that the model continues.)";

struct RunCommand {
  LocalModelChoice choice;
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
  bool thinking = false;
  uint32_t max_tokens = 256;
  kernels::Sampling sampling;
  bool json = false;
};

Result<std::string> ReadPrompt(const RunCommand& command) {
  if (command.prompt_file.empty()) return command.prompt;
  std::stringstream text;
  if (command.prompt_file == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(command.prompt_file);
  if (!file)
    return Fail(ErrorCode::kNotFound, "prompt file {}: cannot be read", command.prompt_file);
  text << file.rdbuf();
  return text.str();
}

Result<std::vector<int32_t>> PromptIds(const RunCommand& command, const model::Tokenizer& tokenizer,
                                       const model::ChatTemplate& chat) {
  auto text = ReadPrompt(command);
  MNEME_TRY(text);
  if (text->empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (command.raw) return tokenizer.Encode(*text, model::SpecialTokens::kAsText);
  const model::ChatMessage message = {
      .role = model::ChatRole::kUser, .content = *text, .reasoning = {}, .tool_calls = {}};
  auto ids = chat.Render({&message, 1}, {});
  MNEME_TRY(ids);
  auto prompt = chat.GenerationPrompt(model::LogEnd::kBetweenTurns, command.thinking);
  MNEME_TRY(prompt);
  ids->insert(ids->end(), prompt->begin(), prompt->end());
  return std::move(*ids);
}

struct Generated {
  std::string text;
  std::string stop_reason = "max_tokens";
  size_t tokens = 0;
};

bool IsEnd(int32_t token, const model::LoadedModel& model, const model::ChatTemplate& chat) {
  const std::vector<int32_t>& ends = model.config().eos_ids;
  return chat.IsStop(token) || std::find(ends.begin(), ends.end(), token) != ends.end();
}

Result<Generated> Generate(const RunCommand& command, model::LocalModel& model,
                           model::LocalSession& session, const model::Tokenizer& tokenizer,
                           const model::ChatTemplate& chat) {
  Generated generated;
  model::TextStream stream(tokenizer);
  const auto emit = [&](std::string_view text) {
    generated.text += text;
    if (command.json) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  kernels::Sampling sampling = command.sampling;
  while (generated.tokens < command.max_tokens) {
    sampling.position = session.position();
    const auto token = session.Next(sampling);
    MNEME_TRY(token);
    if (IsEnd(*token, model.model(), chat)) {
      generated.stop_reason = "stop";
      break;
    }
    ++generated.tokens;
    emit(stream.Push(*token));
    MNEME_TRY(session.Feed(*token));
  }
  emit(stream.Finish());
  if (!command.json) std::fputc('\n', stdout);
  return generated;
}

double Seconds(int64_t from_us) {
  return static_cast<double>(RealClock().MonotonicUs() - from_us) * 1e-6;
}

Status Run(const RunCommand& command) {
  const auto folder = model::ModelFolder::Open(command.choice.folder);
  MNEME_TRY(folder);
  auto tokenizer = folder->OpenTokenizer();
  MNEME_TRY(tokenizer);
  auto chat = model::ChatTemplate::Make(*tokenizer);
  MNEME_TRY(chat);
  const auto ids = PromptIds(command, *tokenizer, *chat);
  MNEME_TRY(ids);
  auto model = LoadLocalModel(*folder, command.choice);
  MNEME_TRY(model);

  model::LocalSession session(**model);
  ProgressLine progress;
  const int64_t read_us = RealClock().MonotonicUs();
  MNEME_TRY(session.Read(*ids, [&](size_t done) {
    progress.Show("reading", done, ids->size(), static_cast<double>(done) / Seconds(read_us));
    return true;
  }));
  progress.Clear();
  const double read_seconds = Seconds(read_us);
  const int64_t generate_us = RealClock().MonotonicUs();
  const auto generated = Generate(command, **model, session, *tokenizer, *chat);
  MNEME_TRY(generated);
  const double generate_seconds = Seconds(generate_us);
  const double read_rate = static_cast<double>(ids->size()) / read_seconds;
  const double generate_rate = static_cast<double>(generated->tokens) / generate_seconds;
  if (command.json) {
    const boost::json::object reply = {{"text", generated->text},
                                       {"stop_reason", generated->stop_reason},
                                       {"prompt_tokens", ids->size()},
                                       {"generated_tokens", generated->tokens},
                                       {"prompt_tokens_per_second", read_rate},
                                       {"generated_tokens_per_second", generate_rate},
                                       {"reader", NameOf((*model)->model().layout().reader)}};
    fmt::print("{}\n", boost::json::serialize(reply));
  } else {
    fmt::print(stderr, "read {} tokens at {:.0f}/s, wrote {} at {:.0f}/s ({}, {} reader)\n",
               ids->size(), read_rate, generated->tokens, generate_rate, generated->stop_reason,
               NameOf((*model)->model().layout().reader));
  }
  return {};
}

}  // namespace

int RunRun(int argc, char** argv) {
  RunCommand command;
  CLI::App app("Reads one prompt and answers it, without a server.", "mneme run");
  app.footer(kFooter);
  AddLocalModelOptions(app, command.choice);
  auto* text = app.add_option("--prompt", command.prompt, "the prompt");
  app.add_option("--prompt-file", command.prompt_file, "a file with the prompt, or - for stdin")
      ->excludes(text);
  app.add_flag("--raw", command.raw, "continue the text instead of answering it");
  app.add_flag("--thinking", command.thinking, "let the model think before it answers");
  app.add_option("--max-tokens", command.max_tokens, "longest answer")->capture_default_str();
  app.add_option("--temperature", command.sampling.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0f, engine::kTemperatureMax))
      ->capture_default_str();
  app.add_option("--top-k", command.sampling.top_k, "0: no limit")
      ->check(CLI::Range(0, INT32_MAX))
      ->capture_default_str();
  app.add_option("--top-p", command.sampling.top_p, "1: no limit")
      ->check(CLI::Range(0.0f, 1.0f))
      ->capture_default_str();
  app.add_option("--seed", command.sampling.seed, "decides what is drawn")->capture_default_str();
  app.add_flag("--json", command.json, "one JSON object instead of text");
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  if (const Status status = Run(command); !status)
    return Complain("run", status.error(), command.json);
  return kExitOk;
}

}  // namespace mneme::cli
