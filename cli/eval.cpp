// mneme eval: stress tests of memory: retrieval, needles, written questions, and histories for
// other readers.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <string>
#include <vector>

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
  mneme eval needles --model checkpoints/demo
  mneme eval questions --model checkpoints/demo --file mine.json
  mneme eval histories --model checkpoints/demo --tokens 131072 > histories.jsonl

`mneme eval COMMAND --help` says what each tells, asks and counts.)";

constexpr char kRetrievalFooter[] = R"(
examples:
  mneme eval retrieval --model checkpoints/demo --quick
  mneme eval retrieval --model checkpoints/demo --tokens 32768 --histories 5 --show-wrong
  mneme eval retrieval --model checkpoints/demo --tokens 32768 --close-gates --json

Tells facts among pasted texts, asks for each in a fork of the read history, and counts answers that
are right to the letter: once with wording, names and texts the demo model was trained on, once with
held-out ones. --close-gates reads no closed chunk at all: the difference is what memory is
worth.)";

constexpr char kNeedlesFooter[] = R"(
examples:
  mneme eval needles --model checkpoints/demo
  mneme eval needles --model checkpoints/demo --tokens 4096,32768 --facts 20 --histories 5 --json
  mneme eval needles --model checkpoints/demo --reader native

The needle map: how many of the facts told in each tenth of a history are answered right, for every
length, asked as `mneme eval retrieval` asks. Facts are spread evenly: with 10 facts each tenth of a
history holds about one.)";

constexpr char kQuestionsFooter[] = R"(
examples:
  mneme eval questions --model checkpoints/demo --file mine.json
  mneme eval questions --model checkpoints/demo --file mine.json --tokens 131072 --json

FILE is a list of questions:
  [{"tell": ["My locker code is 4711.", "Correction: my locker code is 5822."],
    "ask": "What is my locker code?", "answer": "5822"},
   {"tell": [], "ask": "Where do I park?", "answer": "unknown"}]
tell is told in this order, and a later sentence may correct an earlier one; answer is the value
alone, without a full stop, or "unknown" where the right answer is that it was not told. Everything
is told in one history, in turn and at even distances among held-out texts; each question is asked
in a fork of its own. An answer is right when it is the model's sentence for this value, to the
letter.)";

constexpr char kHistoriesFooter[] = R"(
examples:
  mneme eval histories --model checkpoints/demo --tokens 131072 > histories.jsonl
  mneme eval histories --model checkpoints/demo --tokens 4096 --histories 5 --corrected 2 --untold 2

Writes what `mneme eval retrieval` with the same options would tell and ask, for other servers and
readers, and asks nobody: of the model only its tokenizer is used. One JSON object a line:
  corpus     "in_distribution" or "held_out";  history, seed, tokens: which one, how long
  exchanges  [{"message", "reply"}], the conversation;  ids: its tokens
  questions  [{"kind", "depth", "ask", "answer", "ids", "answer_ids"}], each to be asked in a fork
             after the conversation; ids end where the answer begins)";

// The two halves of the corpus, in progress and results. JSON has in_distribution and held_out.
constexpr char kAsTrained[] = "as trained";
constexpr char kHeldOut[] = "held out";

struct EvalCommand {
  LocalModelChoice choice;
  std::string corpus = "eval/corpus";
  eval::RetrievalOptions options;
  std::vector<size_t> lengths = {1024, 4096, 16384};  // of needles
  std::string file;                                   // of questions
  bool quick = false;
  bool show_wrong = false;
  bool json = false;
};

struct Corpora {
  eval::Corpus trained, held_out;
};

Result<Corpora> LoadCorpora(const std::filesystem::path& folder) {
  auto trained = eval::Corpus::Load(folder / "train");
  MNEME_TRY(trained);
  auto held_out = eval::Corpus::Load(folder / "held_out");
  MNEME_TRY(held_out);
  return Corpora{.trained = std::move(*trained), .held_out = std::move(*held_out)};
}

// The model that is asked.
struct Subject {
  model::Tokenizer tokenizer;
  std::unique_ptr<model::LocalModel> model;

  const memory::MemoryLayout& layout() const { return model->model().layout(); }
  std::string reader() const { return std::string(memory::NameOf(layout().reader)); }
  double gates_open() const { return model->step().counters().all_gates().mean(); }
};

Result<Subject> LoadSubject(const LocalModelChoice& choice) {
  const auto folder = model::ModelFolder::Open(choice.folder);
  MNEME_TRY(folder);
  auto tokenizer = folder->OpenTokenizer();
  MNEME_TRY(tokenizer);
  auto model = LoadLocalModel(*folder, choice);
  MNEME_TRY(model);
  return Subject{.tokenizer = std::move(*tokenizer), .model = std::move(*model)};
}

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
  boost::json::array depths;
  for (const eval::RecallCount& depth : count.by_depth)
    depths.push_back(boost::json::object({{"asked", depth.asked}, {"right", depth.right}}));
  return {{"asked", count.all.asked},
          {"right", count.all.right},
          {"corrected_asked", count.corrected.asked},
          {"corrected_right", count.corrected.right},
          {"untold_asked", count.untold.asked},
          {"untold_right", count.untold.right},
          {"tokens_read", count.tokens_read},
          {"read_seconds", count.read_seconds},
          {"depths", std::move(depths)},
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

double SecondsSince(int64_t started_us) {
  return static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6;
}

Result<eval::RetrievalCount> Measure(const std::string& phase, const eval::Corpus& corpus,
                                     Subject& subject, eval::RetrievalOptions options) {
  ProgressLine progress("answers");
  options.progress = [&](int done, int total) {
    progress.Show(phase, static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0);
  };
  auto count = eval::MeasureRetrieval(*subject.model, subject.tokenizer, corpus, options);
  progress.Clear();
  return count;
}

// A JSON reply: `about` and what was asked of whom, then what was found, then what it took.
void PrintReply(const EvalCommand& command, const Subject& subject, int64_t started_us,
                boost::json::object about, const boost::json::object& found) {
  if (command.file.empty()) {
    about["facts"] = command.options.history.facts;
    about["histories"] = command.options.histories;
  }
  about["seed"] = command.options.seed;
  about["reader"] = subject.reader();
  about["gates_closed"] = command.options.close_gates;
  for (const auto& field : found) about[field.key()] = field.value();
  about["gates_open"] = subject.gates_open();
  about["seconds"] = SecondsSince(started_us);
  fmt::print("{}\n", boost::json::serialize(about));
}

// hla reader, every gate closed
std::string ReaderText(const EvalCommand& command, const Subject& subject) {
  return subject.reader() + " reader" + (command.options.close_gates ? ", every gate closed" : "");
}

Status RunRetrieval(EvalCommand& command) {
  if (command.quick) {
    command.options.history.tokens = 4096;
    command.options.history.facts = 10;
    command.options.histories = 1;
  }
  const int64_t started_us = RealClock().MonotonicUs();
  const auto corpora = LoadCorpora(command.corpus);
  MNEME_TRY(corpora);
  MNEME_TRY(eval::CheckHistory(command.options.history));
  auto subject = LoadSubject(command.choice);
  MNEME_TRY(subject);
  const auto trained = Measure(kAsTrained, corpora->trained, *subject, command.options);
  MNEME_TRY(trained);
  const auto held_out = Measure(kHeldOut, corpora->held_out, *subject, command.options);
  MNEME_TRY(held_out);
  if (command.show_wrong) {
    ShowWrong(*trained);
    ShowWrong(*held_out);
  }
  if (command.json) {
    PrintReply(command, *subject, started_us, {{"tokens", command.options.history.tokens}},
               {{"in_distribution", ToJson(*trained, subject->layout())},
                {"held_out", ToJson(*held_out, subject->layout())}});
    return {};
  }
  fmt::print("{} tokens of history, {} facts, {}\n", command.options.history.tokens,
             command.options.history.facts, ReaderText(command, *subject));
  fmt::print("  {:<10}  {:>4} of {:>4} right\n", kAsTrained, trained->all.right,
             trained->all.asked);
  fmt::print("  {:<10}  {:>4} of {:>4} right\n", kHeldOut, held_out->all.right,
             held_out->all.asked);
  fmt::print("  {:.2f} gates open per token and key head, {:.0f} s\n", subject->gates_open(),
             SecondsSince(started_us));
  return {};
}

// The needle map of one corpus: a count for every length.
using NeedleMap = std::vector<eval::RetrievalCount>;

eval::RetrievalOptions NeedleOptions(const EvalCommand& command, size_t tokens) {
  eval::RetrievalOptions options = command.options;
  options.history.tokens = tokens;
  options.history.last_depth = 1;
  options.history.even = true;
  return options;
}

Result<NeedleMap> MeasureNeedles(const EvalCommand& command, const std::string& half,
                                 const eval::Corpus& corpus, Subject& subject) {
  NeedleMap map;
  for (const size_t tokens : command.lengths) {
    auto count =
        Measure(half + " " + Count(tokens), corpus, subject, NeedleOptions(command, tokens));
    MNEME_TRY(count);
    map.push_back(std::move(*count));
  }
  return map;
}

boost::json::array NeedlesJson(const EvalCommand& command, const NeedleMap& map,
                               const memory::MemoryLayout& layout) {
  boost::json::array rows;
  for (size_t row = 0; row < map.size(); ++row) {
    boost::json::object object = {{"tokens", command.lengths[row]}};
    for (auto& field : ToJson(map[row], layout)) object[field.key()] = field.value();
    rows.push_back(std::move(object));
  }
  return rows;
}

void PrintNeedles(const EvalCommand& command, const char* half, const NeedleMap& map) {
  fmt::print("{:<12}", half);
  for (int depth = 0; depth < eval::kDepthBins; ++depth)
    fmt::print("{:>6.1f}", static_cast<double>(depth) / eval::kDepthBins);
  fmt::print("{:>8}\n", "all");
  const auto share = [](const eval::RecallCount& count) {
    return count.asked == 0 ? "-" : fmt::format("{}", 100 * count.right / count.asked);
  };
  for (size_t row = 0; row < map.size(); ++row) {
    fmt::print("{:>12}", Count(command.lengths[row]));
    for (const eval::RecallCount& depth : map[row].by_depth) fmt::print("{:>6}", share(depth));
    fmt::print("{:>8}\n", share(map[row].all));
  }
}

Status RunNeedles(EvalCommand& command) {
  const int64_t started_us = RealClock().MonotonicUs();
  const auto corpora = LoadCorpora(command.corpus);
  MNEME_TRY(corpora);
  for (const size_t tokens : command.lengths)
    MNEME_TRY(eval::CheckHistory(NeedleOptions(command, tokens).history));
  auto subject = LoadSubject(command.choice);
  MNEME_TRY(subject);
  const auto trained = MeasureNeedles(command, kAsTrained, corpora->trained, *subject);
  MNEME_TRY(trained);
  const auto held_out = MeasureNeedles(command, kHeldOut, corpora->held_out, *subject);
  MNEME_TRY(held_out);
  if (command.json) {
    PrintReply(command, *subject, started_us, {},
               {{"in_distribution", NeedlesJson(command, *trained, subject->layout())},
                {"held_out", NeedlesJson(command, *held_out, subject->layout())}});
    return {};
  }
  fmt::print("per cent right by tokens of history and the share of it where the fact was told,\n");
  fmt::print("{} facts in each of {} histories, {}\n", command.options.history.facts,
             command.options.histories, ReaderText(command, *subject));
  PrintNeedles(command, kAsTrained, *trained);
  PrintNeedles(command, kHeldOut, *held_out);
  return {};
}

boost::json::array AnswersJson(const eval::RetrievalCount& count) {
  boost::json::array answers;
  for (const eval::Answered& given : count.answers) {
    boost::json::object answer = {{"kind", NameOf(given.question.kind)},
                                  {"ask", given.question.text},
                                  {"expected", given.question.answer},
                                  {"answered", given.answer},
                                  {"right", given.right()}};
    if (given.question.depth >= 0) answer["depth"] = given.question.depth;
    answers.push_back(std::move(answer));
  }
  return answers;
}

void PrintAnswers(const eval::RetrievalCount& count) {
  for (const eval::Answered& given : count.answers) {
    fmt::print("{}  {}\n       {}\n", given.right() ? "right" : "wrong",
               Printable(given.question.text), Printable(given.answer));
    if (!given.right()) fmt::print("       expected {}\n", Printable(given.question.answer));
  }
}

Status RunQuestions(EvalCommand& command) {
  const int64_t started_us = RealClock().MonotonicUs();
  const auto questions = eval::LoadQuestions(command.file);
  MNEME_TRY(questions);
  const size_t tokens = command.options.history.tokens;
  MNEME_TRY(eval::CheckHistory(*questions, tokens));
  const auto corpus = eval::Corpus::Load(std::filesystem::path(command.corpus) / "held_out");
  MNEME_TRY(corpus);
  auto subject = LoadSubject(command.choice);
  MNEME_TRY(subject);
  ProgressLine progress("answers");
  const auto count = eval::MeasureQuestions(
      *subject->model, subject->tokenizer, *corpus, *questions,
      {.tokens = tokens,
       .seed = command.options.seed,
       .close_gates = command.options.close_gates,
       .progress = [&](int done, int total) {
         progress.Show("questions", static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0);
       }});
  progress.Clear();
  MNEME_TRY(count);
  if (command.json) {
    boost::json::object found = ToJson(*count, subject->layout());
    found["answers"] = AnswersJson(*count);
    PrintReply(command, *subject, started_us, {{"file", command.file}, {"tokens", tokens}}, found);
    return {};
  }
  PrintAnswers(*count);
  fmt::print("{} of {} right, {} tokens of history, {}\n", count->all.right, count->all.asked,
             tokens, ReaderText(command, *subject));
  return {};
}

boost::json::array ToJson(const std::vector<int32_t>& ids) {
  return boost::json::array(ids.begin(), ids.end());
}

Result<boost::json::object> ToJson(const eval::History& history,
                                   const eval::HistoryWriter& writer) {
  boost::json::array exchanges, questions;
  for (const eval::Exchange& exchange : history.exchanges)
    exchanges.push_back(
        boost::json::object({{"message", exchange.message}, {"reply", exchange.reply}}));
  for (const eval::Question& question : history.questions) {
    const auto ids = writer.QuestionIds(question);
    MNEME_TRY(ids);
    const auto answer_ids = writer.AnswerIds(question);
    MNEME_TRY(answer_ids);
    boost::json::object object = {{"kind", NameOf(question.kind)},
                                  {"ask", question.text},
                                  {"answer", question.answer},
                                  {"ids", ToJson(*ids)},
                                  {"answer_ids", ToJson(*answer_ids)}};
    if (question.depth >= 0) object["depth"] = question.depth;
    questions.push_back(std::move(object));
  }
  return boost::json::object({{"exchanges", std::move(exchanges)},
                              {"ids", ToJson(history.ids)},
                              {"questions", std::move(questions)}});
}

Status RunHistories(const EvalCommand& command) {
  const auto corpora = LoadCorpora(command.corpus);
  MNEME_TRY(corpora);
  MNEME_TRY(eval::CheckHistory(command.options.history));
  const auto folder = model::ModelFolder::Open(command.choice.folder);
  MNEME_TRY(folder);
  const auto tokenizer = folder->OpenTokenizer();
  MNEME_TRY(tokenizer);
  const auto chat = model::ChatTemplate::Make(*tokenizer);
  MNEME_TRY(chat);
  for (const auto& [name, corpus] : {std::pair("in_distribution", &corpora->trained),
                                     std::pair("held_out", &corpora->held_out)}) {
    eval::HistoryWriter writer(*corpus, *tokenizer, *chat, command.options.seed);
    for (int index = 0; index < command.options.histories; ++index) {
      const auto history = writer.Write(command.options.history);
      MNEME_TRY(history);
      boost::json::object line = {{"corpus", name},
                                  {"history", index},
                                  {"seed", command.options.seed},
                                  {"tokens", command.options.history.tokens}};
      const auto found = ToJson(*history, writer);
      MNEME_TRY(found);
      for (const auto& field : *found) line[field.key()] = field.value();
      fmt::print("{}\n", boost::json::serialize(line));
    }
  }
  return {};
}

void AddCorpusOptions(CLI::App& app, EvalCommand& command) {
  app.add_option("--corpus", command.corpus, "folder with train/ and held_out/")
      ->capture_default_str();
  app.add_option("--seed", command.options.seed, "any seed makes other histories")
      ->capture_default_str();
}

void AddSharedOptions(CLI::App& app, EvalCommand& command) {
  AddLocalModelOptions(app, command.choice);
  AddCorpusOptions(app, command);
  app.add_flag("--close-gates", command.options.close_gates, "read no closed chunk");
  app.add_flag("--json", command.json, "one JSON object instead of text");
}

void AddFactOptions(CLI::App& app, EvalCommand& command) {
  app.add_option("--facts", command.options.history.facts,
                 "facts told in each history, each asked once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--histories", command.options.histories, "histories of each half")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
}

void AddLength(CLI::App& app, EvalCommand& command) {
  app.add_option("--tokens", command.options.history.tokens, "length of each history")
      ->check(CLI::Range(256, 1 << 24))
      ->capture_default_str();
}

// What HistoryOptions are made of.
void AddHistoryOptions(CLI::App& app, EvalCommand& command) {
  eval::HistoryOptions& history = command.options.history;
  AddFactOptions(app, command);
  AddLength(app, command);
  app.add_option("--corrected", history.corrected, "of them told again with another value")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--untold", history.untold, "further questions about things never told")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--depth", history.last_depth, "facts stand in this first share of the history")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

void AddRetrieval(CLI::App& app, EvalCommand& command) {
  app.footer(kRetrievalFooter);
  AddSharedOptions(app, command);
  AddHistoryOptions(app, command);
  app.add_flag("--quick", command.quick, "one history of 4096 tokens and 10 facts in each half");
  app.add_flag("--show-wrong", command.show_wrong, "print the answers that were wrong");
}

void AddNeedles(CLI::App& app, EvalCommand& command) {
  app.footer(kNeedlesFooter);
  AddSharedOptions(app, command);
  AddFactOptions(app, command);
  app.add_option("--tokens", command.lengths, "lengths of histories, with commas between them")
      ->delimiter(',')
      ->check(CLI::Range(256, 1 << 24))
      ->capture_default_str();
}

void AddQuestions(CLI::App& app, EvalCommand& command) {
  app.footer(kQuestionsFooter);
  AddSharedOptions(app, command);
  AddLength(app, command);
  app.add_option("--file", command.file, "questions as JSON, see below")->required();
}

void AddHistories(CLI::App& app, EvalCommand& command) {
  app.footer(kHistoriesFooter);
  app.add_option("--model", command.choice.folder, "folder whose tokenizer.json counts the tokens")
      ->required();
  AddCorpusOptions(app, command);
  AddHistoryOptions(app, command);
}

}  // namespace

int RunEval(int argc, char** argv) {
  EvalCommand command;
  command.options.history.tokens = 32768;
  CLI::App app("Measures what a model still knows of what it was told.", "mneme eval");
  app.footer(kFooter);
  app.require_subcommand(1);
  CLI::App* retrieval = app.add_subcommand("retrieval", "facts told early, asked late");
  AddRetrieval(*retrieval, command);
  CLI::App* needles = app.add_subcommand("needles", "recall by depth and length");
  AddNeedles(*needles, command);
  CLI::App* questions = app.add_subcommand("questions", "what people wrote by hand");
  AddQuestions(*questions, command);
  CLI::App* histories = app.add_subcommand("histories", "the conversations, for other readers");
  AddHistories(*histories, command);
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  const Status status = retrieval->parsed()   ? RunRetrieval(command)
                        : needles->parsed()   ? RunNeedles(command)
                        : histories->parsed() ? RunHistories(command)
                                              : RunQuestions(command);
  if (!status)
    return Complain("eval " + app.get_subcommands().front()->get_name(), status.error(),
                    command.json);
  return kExitOk;
}

}  // namespace mneme::cli
