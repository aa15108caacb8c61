// mneme run: one prompt, no server and no store.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_error.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/local_model.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "engine/repetition_window.h"
#include "engine/request_check.h"
#include "model/chat_template.h"
#include "model/fingerprints.h"
#include "model/mhla_session.h"
#include "model/tokenizer.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
examples:
  mneme run --model checkpoints/demo --prompt "My locker code is 4711."
  mneme run --model checkpoints/demo --prompt-file notes.txt --raw --max-tokens 50
  echo "Hello." | mneme run --model checkpoints/demo --prompt-file - --json
  mneme run --model ~/models/mhla-340m --ids --prompt "1 450 4996"

The prompt is one user message; with --raw it is plain text that the model continues, and with --ids
token ids, answered in ids. MHLA language models and base models have no chat format: they continue
the text. A folder without tokenizer.json takes ids alone.)";

constexpr std::string_view kMhlaReader = "mhla";
constexpr size_t kIdsMax = size_t{1} << 20;  // of a prompt in ids

struct RunCommand {
  LocalModelChoice choice;
  std::string prompt;
  std::string prompt_file;
  std::string beyond = "distance";  // or refuse
  bool raw = false;
  bool ids = false;
  bool thinking = false;
  SamplingChoice sampling;
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
    return Fail(FileErrorCode(errno), "prompt file {}",
                FileErrorText(command.prompt_file, "opened", errno));
  text << file.rdbuf();
  return text.str();
}

// Numbers between blanks and commas.
Result<std::vector<int32_t>> ParseIds(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,";
  std::vector<int32_t> ids;
  for (size_t at = text.find_first_not_of(kBetween); at < text.size();) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    int32_t id = -1;
    const auto read = std::from_chars(text.data() + at, text.data() + end, id);
    if (read.ec != std::errc() || read.ptr != text.data() + end || id < 0)
      return Fail(ErrorCode::kInvalidArgument,
                  "prompt: number {}: expected a token id, found \"{}\"", ids.size(),
                  Printable(text.substr(at, std::min<size_t>(end - at, 40))));
    if (ids.size() == kIdsMax)
      return Fail(ErrorCode::kInvalidArgument, "prompt: expected at most {} ids", kIdsMax);
    ids.push_back(id);
    at = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

// What a prompt becomes ids with, and ids become text with.
struct Voice {
  const model::Tokenizer* tokenizer = nullptr;  // null: ids only
  const model::ChatTemplate* chat = nullptr;    // null: no chat format, the text is continued
  std::vector<int32_t> start_ids;               // before continued text
  int vocab = 0;                                // ids are below
  std::span<const int32_t> eos_ids;

  bool IsEnd(int32_t token) const {
    return (chat != nullptr && chat->IsStop(token)) ||
           std::find(eos_ids.begin(), eos_ids.end(), token) != eos_ids.end();
  }
};

Result<std::vector<int32_t>> EncodePrompt(const RunCommand& command, const Voice& voice) {
  auto text = ReadPrompt(command);
  MNEME_TRY(text);
  if (voice.tokenizer == nullptr) {
    auto ids = ParseIds(*text);
    MNEME_TRY(ids);
    if (ids->empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
    return ids;
  }
  if (text->empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (command.raw || voice.chat == nullptr) {
    auto ids = voice.tokenizer->Encode(*text, model::SpecialTokens::kAsText);
    MNEME_TRY(ids);
    ids->insert(ids->begin(), voice.start_ids.begin(), voice.start_ids.end());
    return ids;
  }
  const model::ChatMessage message = {
      .role = model::ChatRole::kUser, .content = *text, .reasoning = {}, .tool_calls = {}};
  auto ids = voice.chat->Render({&message, 1}, {});
  MNEME_TRY(ids);
  auto prompt = voice.chat->GenerationPrompt(model::LogEnd::kBetweenTurns, command.thinking);
  MNEME_TRY(prompt);
  ids->insert(ids->end(), prompt->begin(), prompt->end());
  return std::move(*ids);
}

Result<std::vector<int32_t>> PromptIds(const RunCommand& command, const Voice& voice) {
  auto ids = EncodePrompt(command, voice);
  MNEME_TRY(ids);
  for (const int32_t id : *ids) {
    if (id >= voice.vocab)
      return Fail(ErrorCode::kInvalidArgument,
                  "prompt: expected ids below the model's vocabulary of {}, found {}", voice.vocab,
                  id);
  }
  return ids;
}

// What a folder without a tokenizer is answered where text was given.
Error IdsAlone(const RunCommand& command) {
  return Error(ErrorCode::kNotFound,
               fmt::format("model folder {}: no tokenizer.json, so the model reads and writes ids "
                           "alone: give the prompt as ids, with --ids",
                           command.choice.folder));
}

struct Generated {
  std::string text;
  std::vector<int32_t> ids;
  std::string stop_reason = "max_tokens";
};

// Shows the answer while it is written.
class Answer {
 public:
  Answer(const Voice& voice, bool shows) : shows_(shows) {
    if (voice.tokenizer != nullptr) stream_.emplace(*voice.tokenizer);
  }

  void Push(int32_t token) {
    if (stream_) {
      Emit(stream_->Push(token));
    } else {
      Emit((text_.empty() ? "" : " ") + std::to_string(token));
    }
  }
  std::string Finish() {
    if (stream_) Emit(stream_->Finish());
    if (shows_) std::fputc('\n', stdout);
    return std::move(text_);
  }

 private:
  void Emit(std::string_view text) {
    text_ += text;
    if (!shows_) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  bool shows_;
  std::optional<model::TextStream> stream_;
  std::string text_;
};

template <typename Session>
Result<Generated> Generate(const RunCommand& command, Session& session, const Voice& voice,
                           std::span<const int32_t> prompt) {
  Generated generated;
  Answer answer(voice, !command.json);
  kernels::Sampling sampling = command.sampling.sampling();
  const uint32_t window = command.sampling.repetition_window;
  engine::RepetitionWindow seen(window == 0 ? engine::kRepetitionWindowMax : window);
  if (sampling.repetition_penalty != 1) seen.Push(prompt);
  while (generated.ids.size() < command.sampling.tokens_max()) {
    sampling.position = session.position();
    sampling.seen = seen.ids().data();
    sampling.seen_count = static_cast<int32_t>(seen.ids().size());
    const auto token = session.Next(sampling);
    MNEME_TRY(token);
    if (voice.IsEnd(*token)) {
      generated.stop_reason = "stop";
      break;
    }
    generated.ids.push_back(*token);
    if (sampling.repetition_penalty != 1) seen.Push(*token);
    answer.Push(*token);
    const Status fed = session.Feed(*token);
    if (!fed && fed.error().reason() == Reason::kContextLimit) {
      generated.stop_reason = "context_limit";
      break;
    }
    MNEME_TRY(fed);
  }
  generated.text = answer.Finish();
  return generated;
}

double Seconds(int64_t from_us) {
  return static_cast<double>(RealClock().MonotonicUs() - from_us) * 1e-6;
}

// The prompt into an empty session, the answer out of it, and how fast both went.
template <typename Session>
Status Converse(const RunCommand& command, Session& session, const Voice& voice,
                std::span<const int32_t> ids, std::string_view reader) {
  ProgressLine progress;
  const int64_t read_us = RealClock().MonotonicUs();
  MNEME_TRY(session.Read(ids, [&](size_t done) {
    progress.Show("reading", done, ids.size(), static_cast<double>(done) / Seconds(read_us));
    return true;
  }));
  progress.Clear();
  const double read_seconds = Seconds(read_us);
  const int64_t generate_us = RealClock().MonotonicUs();
  const auto generated = Generate(command, session, voice, ids);
  MNEME_TRY(generated);
  const double generate_seconds = Seconds(generate_us);
  const double read_rate = static_cast<double>(ids.size()) / read_seconds;
  const double generate_rate = static_cast<double>(generated->ids.size()) / generate_seconds;
  if (command.json) {
    boost::json::object reply = {
        {"stop_reason", generated->stop_reason},        {"prompt_tokens", ids.size()},
        {"generated_tokens", generated->ids.size()},    {"prompt_tokens_per_second", read_rate},
        {"generated_tokens_per_second", generate_rate}, {"reader", reader}};
    if (voice.tokenizer == nullptr) {
      reply["ids"] = boost::json::array(generated->ids.begin(), generated->ids.end());
    } else {
      reply["text"] = generated->text;
    }
    fmt::print("{}\n", boost::json::serialize(reply));
  } else {
    fmt::print(stderr, "read {} tokens at {:.0f}/s, wrote {} at {:.0f}/s ({}, {} reader)\n",
               ids.size(), read_rate, generated->ids.size(), generate_rate, generated->stop_reason,
               reader);
  }
  return {};
}

Status RunServed(const RunCommand& command) {
  const auto folder = model::ModelFolder::Open(command.choice.folder);
  MNEME_TRY(folder);
  MNEME_TRY(folder->config().CheckThinking(command.thinking));
  Voice voice;
  voice.eos_ids = folder->config().eos_ids;
  voice.vocab = folder->config().vocab;
  std::optional<model::Tokenizer> tokenizer;
  std::optional<model::ChatTemplate> chat;
  if (!command.ids) {
    auto opened = folder->OpenTokenizer();
    if (!opened && opened.error().code() == ErrorCode::kNotFound) return Fail(IdsAlone(command));
    MNEME_TRY(opened);
    tokenizer.emplace(std::move(*opened));
    auto made = model::ChatTemplate::MakeIfAny(*tokenizer);
    MNEME_TRY(made);
    chat.emplace(std::move(*made));
    voice.tokenizer = &*tokenizer;
    voice.start_ids = tokenizer->start_ids();
    if (chat->has_chat()) {
      voice.chat = &*chat;
    } else if (command.thinking) {
      return Fail(ErrorCode::kInvalidArgument, "--thinking: the model has no chat format");
    } else if (!command.json) {
      fmt::print(stderr, "a base model without a chat format: it continues the text\n");
    }
  }
  const auto ids = PromptIds(command, voice);
  MNEME_TRY(ids);
  auto model = LoadLocalModel(*folder, command.choice);
  MNEME_TRY(model);
  model::LocalSession session(**model);
  return Converse(command, session, voice, *ids, NameOf((*model)->model().layout().reader));
}

// What an MHLA language model cannot be asked for.
Status CheckMhla(const RunCommand& command, const model::MhlaFolder& folder) {
  if (!command.choice.reader.empty() && command.choice.reader != kMhlaReader)
    return Fail(ErrorCode::kInvalidArgument,
                "reader {}: {} is an MHLA language model, whose only reader is {}",
                command.choice.reader, command.choice.folder, kMhlaReader);
  if (command.thinking)
    return Fail(ErrorCode::kInvalidArgument,
                "--thinking: an MHLA language model has no chat format");
  if (!command.ids && !folder.has_tokenizer()) return Fail(IdsAlone(command));
  return {};
}

Status RunMhla(const RunCommand& command) {
  const auto folder = model::MhlaFolder::Open(command.choice.folder);
  MNEME_TRY(folder);
  MNEME_TRY(CheckMhla(command, *folder));
  Voice voice;
  voice.eos_ids = folder->config().eos_ids;
  voice.vocab = folder->config().vocab;
  std::optional<model::Tokenizer> tokenizer;
  if (!command.ids) {
    auto opened = folder->OpenTokenizer();
    MNEME_TRY(opened);
    tokenizer.emplace(std::move(*opened));
    voice.tokenizer = &*tokenizer;
    voice.start_ids = tokenizer->start_ids();
    if (voice.start_ids.empty() && folder->config().bos_id >= 0)
      voice.start_ids = {folder->config().bos_id};
  }
  const auto ids = PromptIds(command, voice);
  MNEME_TRY(ids);
  MNEME_TRY(model::Fingerprints::Open({}).CheckSums(command.choice.folder));
  ProgressLine progress("parts");
  model::MhlaOptions options;
  options.threads = ThreadsOf(command.choice);
  options.beyond =
      command.beyond == "refuse" ? model::BeyondMatrix::kRefuse : model::BeyondMatrix::kByDistance;
  options.session_bytes_max = command.choice.host_mib_max * kMiB;
  options.progress = [&progress](int done, int total) {
    progress.Show("loading", static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0);
  };
  auto model = model::MhlaModel::Load(*folder, options);
  MNEME_TRY(model);
  progress.Clear();
  if (!command.json)
    fmt::print(stderr, "an MHLA language model: {}\n",
               command.ids ? "ids in, ids out" : "it continues the text");
  model::MhlaSession session(**model);
  return Converse(command, session, voice, *ids, kMhlaReader);
}

Status Run(const RunCommand& command) {
  const auto mhla = model::IsMhlaFolder(command.choice.folder);
  MNEME_TRY(mhla);
  return *mhla ? RunMhla(command) : RunServed(command);
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
  app.add_flag("--ids", command.ids, "the prompt is token ids, and so is the answer")
      ->excludes("--raw");
  app.add_option("--mixing-beyond", command.beyond,
                 "MHLA language models past the blocks of their mixing matrix: distance or refuse")
      ->check(CLI::IsMember({"distance", "refuse"}))
      ->capture_default_str();
  app.add_flag("--thinking", command.thinking,
               "let the model think before it answers; refused where it was trained without");
  AddSamplingOptions(app, command.sampling);
  app.add_flag("--json", command.json, "one JSON object instead of text");
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  if (app.count("--prompt") + app.count("--prompt-file") == 0)
    return RefuseUsage(app,
                       "there is no prompt: give --prompt TEXT or --prompt-file FILE, - for "
                       "standard input");
  if (const Status status = Run(command); !status)
    return Complain("run", status.error(), command.json);
  return kExitOk;
}

}  // namespace mneme::cli
