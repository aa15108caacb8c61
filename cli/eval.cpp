// mneme eval: stress tests of memory. So far: retrieval.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <string>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/local_model.h"
#include "cli/terminal.h"
#include "eval/retrieval.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
examples:
  mneme eval retrieval --model checkpoints/demo --quick
  mneme eval retrieval --model checkpoints/demo --tokens 32768 --histories 5 --show-wrong
  mneme eval retrieval --model checkpoints/demo --tokens 32768 --close-gates --json

Tells facts among pasted texts, asks for each in a fork of the read history, and counts answers that
are right to the letter: once with wording, names and texts the demo model was trained on, once with
held-out ones. --close-gates reads no closed chunk at all: the difference is what memory is
worth.)";

struct RetrievalCommand {
  LocalModelChoice choice;
  std::string corpus = "eval/corpus";
  eval::RetrievalOptions options;
  bool quick = false;
  bool show_wrong = false;
  bool json = false;
};

// Gates open per token and key head, by layer of the model.
boost::json::array GatesJson(const eval::RetrievalCount& count,
                             const memory::MemoryLayout& layout) {
  boost::json::array layers;
  for (size_t layer = 0; layer < count.history_gates.size(); ++layer) {
    const auto linear = static_cast<size_t>(layout.routed_layers[layer]);
    layers.push_back(boost::json::object({{"layer", layout.linear_layers[linear]},
                                          {"history", count.history_gates[layer].mean()},
                                          {"answers", count.answer_gates[layer].mean()}}));
  }
  return layers;
}

boost::json::object ToJson(const eval::RetrievalCount& count, const memory::MemoryLayout& layout) {
  return {{"asked", count.all.asked},
          {"right", count.all.right},
          {"corrected_asked", count.corrected.asked},
          {"corrected_right", count.corrected.right},
          {"untold_asked", count.untold.asked},
          {"untold_right", count.untold.right},
          {"tokens_read", count.tokens_read},
          {"read_seconds", count.read_seconds},
          {"gates", GatesJson(count, layout)}};
}

std::string_view NameOf(eval::QuestionKind kind) {
  switch (kind) {
    case eval::QuestionKind::kTold:
      return "told";
    case eval::QuestionKind::kCorrected:
      return "corrected";
    case eval::QuestionKind::kUntold:
      return "untold";
  }
  return "?";
}

void ShowWrong(const eval::RetrievalCount& count) {
  for (const eval::Answered& given : count.answers) {
    if (given.right()) continue;
    fmt::print(stderr, "  {} at {:.2f}: {}\n    expected {}\n    answered {}\n",
               NameOf(given.question.kind), given.question.depth, Printable(given.question.text),
               Printable(given.question.answer), Printable(given.answer));
  }
}

Result<eval::RetrievalCount> MeasureHalf(const RetrievalCommand& command, const char* half,
                                         const eval::Corpus& corpus, model::LocalModel& model,
                                         const model::Tokenizer& tokenizer) {
  eval::RetrievalOptions options = command.options;
  ProgressLine progress("answers");
  options.progress = [&](int done, int total) {
    progress.Show(half, static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0);
  };
  auto count = eval::MeasureRetrieval(model, tokenizer, corpus, options);
  progress.Clear();
  return count;
}

Status Run(RetrievalCommand& command) {
  const int64_t started_us = RealClock().MonotonicUs();
  const auto train_corpus = eval::Corpus::Load(std::filesystem::path(command.corpus) / "train");
  MNEME_TRY(train_corpus);
  const auto held_out_corpus =
      eval::Corpus::Load(std::filesystem::path(command.corpus) / "held_out");
  MNEME_TRY(held_out_corpus);
  MNEME_TRY(eval::CheckHistory(command.options.history));
  const auto folder = model::ModelFolder::Open(command.choice.folder);
  MNEME_TRY(folder);
  const auto tokenizer = folder->OpenTokenizer();
  MNEME_TRY(tokenizer);
  auto model = LoadLocalModel(*folder, command.choice);
  MNEME_TRY(model);
  const auto trained = MeasureHalf(command, "train", *train_corpus, **model, *tokenizer);
  MNEME_TRY(trained);
  const auto held_out = MeasureHalf(command, "held_out", *held_out_corpus, **model, *tokenizer);
  MNEME_TRY(held_out);
  const double gates = (*model)->step().counters().all_gates().mean();
  const double seconds = static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6;
  const memory::MemoryLayout& layout = (*model)->model().layout();
  const std::string reader(memory::NameOf(layout.reader));
  if (command.show_wrong) {
    ShowWrong(*trained);
    ShowWrong(*held_out);
  }
  if (command.json) {
    const boost::json::object reply = {{"tokens", command.options.history.tokens},
                                       {"facts", command.options.history.facts},
                                       {"histories", command.options.histories},
                                       {"seed", command.options.seed},
                                       {"reader", reader},
                                       {"gates_closed", command.options.close_gates},
                                       {"in_distribution", ToJson(*trained, layout)},
                                       {"held_out", ToJson(*held_out, layout)},
                                       {"gates_open", gates},
                                       {"seconds", seconds}};
    fmt::print("{}\n", boost::json::serialize(reply));
    return {};
  }
  fmt::print("{} tokens of history, {} facts, {} reader{}\n", command.options.history.tokens,
             command.options.history.facts, reader,
             command.options.close_gates ? ", every gate closed" : "");
  fmt::print("  as trained  {:>4} of {:>4} right\n", trained->all.right, trained->all.asked);
  fmt::print("  held out    {:>4} of {:>4} right\n", held_out->all.right, held_out->all.asked);
  fmt::print("  {:.2f} gates open per token and key head, {:.0f} s\n", gates, seconds);
  return {};
}

void AddRetrieval(CLI::App& app, RetrievalCommand& command) {
  eval::HistoryOptions& history = command.options.history;
  history.tokens = 32768;
  AddLocalModelOptions(app, command.choice);
  app.add_option("--corpus", command.corpus, "folder with train/ and held_out/")
      ->capture_default_str();
  app.add_option("--tokens", history.tokens, "length of each history")
      ->check(CLI::Range(256, 1 << 24))
      ->capture_default_str();
  app.add_option("--facts", history.facts, "facts told in each history, each asked once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--corrected", history.corrected, "of them told again with another value")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--untold", history.untold, "further questions about things never told")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--depth", history.last_depth, "facts stand in this first share of the history")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--histories", command.options.histories, "histories of each half")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--seed", command.options.seed, "any seed makes other histories")
      ->capture_default_str();
  app.add_flag("--close-gates", command.options.close_gates, "read no closed chunk");
  app.add_flag("--quick", command.quick, "one history of 4096 tokens and 10 facts in each half");
  app.add_flag("--show-wrong", command.show_wrong, "print the answers that were wrong");
  app.add_flag("--json", command.json, "one JSON object instead of text");
}

}  // namespace

int RunEval(int argc, char** argv) {
  RetrievalCommand command;
  CLI::App app("Measures what a model still knows of what it was told.", "mneme eval");
  app.require_subcommand(1);
  CLI::App* retrieval = app.add_subcommand("retrieval", "facts told early, asked late");
  retrieval->footer(kFooter);
  AddRetrieval(*retrieval, command);
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  if (command.quick) {
    command.options.history.tokens = 4096;
    command.options.history.facts = 10;
    command.options.histories = 1;
  }
  if (const Status status = Run(command); !status)
    return Complain("eval retrieval", status.error(), command.json);
  return kExitOk;
}

}  // namespace mneme::cli
