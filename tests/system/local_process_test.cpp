// The real binary on the shipped model: what people type first must work as the documents say.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/support/hla_folder.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

using support::Process;

const std::string kDemo = std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo";
const std::string kCorpus = std::string(MNEME_SOURCE_DIR) + "/eval/corpus";

TEST(LocalProcessTest, RunAnswersAPrompt) {
  Process run(
      {.arguments = {MNEME, "run", "--model", kDemo, "--prompt", "My locker code is 4711."}});
  EXPECT_EQ(run.Wait(60'000), 0) << run.Errors();
  EXPECT_FALSE(run.Output().empty());
  EXPECT_NE(run.Errors().find("hla reader"), std::string::npos) << run.Errors();
}

TEST(LocalProcessTest, RunTakesThePromptFromAFileAndAnswersInJson) {
  Process run({.arguments = {MNEME, "run", "--model", kDemo, "--prompt-file", "-", "--json"},
               .input = "Hello."});
  EXPECT_EQ(run.Wait(60'000), 0) << run.Errors();
  EXPECT_NE(run.Output().find("\"stop_reason\":\"stop\""), std::string::npos) << run.Output();
}

TEST(LocalProcessTest, InspectShowsTheReadersOfTheFolder) {
  Process inspect({.arguments = {MNEME, "model", "inspect", kDemo}});
  EXPECT_EQ(inspect.Wait(), 0) << inspect.Errors();
  EXPECT_NE(inspect.Output().find("hla"), std::string::npos) << inspect.Output();
  EXPECT_NE(inspect.Output().find("native"), std::string::npos);
  EXPECT_NE(inspect.Output().find(", router 393,222, static mixing 49,152 "), std::string::npos);
}

TEST(LocalProcessTest, CommandsWithoutAServerHaveItsDefaultCap) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run"}, {"bench"}, {"eval", "retrieval"}, {"model", "inspect"}}) {
    std::vector<std::string> arguments = {MNEME};
    arguments.insert(arguments.end(), command.begin(), command.end());
    arguments.push_back("--help");
    Process help({.arguments = arguments});
    EXPECT_EQ(help.Wait(), 0);
    const std::string output = help.Output();
    const size_t at = output.find("--host-mib");
    ASSERT_NE(at, std::string::npos) << command.front();
    EXPECT_NE(output.substr(at, 80).find("=2048\n"), std::string::npos) << output.substr(at, 80);
  }
}

TEST(LocalProcessTest, InspectCountsTheRouterToo) {
  Process inspect({.arguments = {MNEME, "model", "inspect", kDemo, "--json"}});
  EXPECT_EQ(inspect.Wait(), 0) << inspect.Errors();
  const std::string output = inspect.Output();
  const auto number = [&output](const std::string& key) {
    const size_t at = output.find("\"" + key + "\":");
    return at == output.npos ? 0ul : std::stoul(output.substr(at + key.size() + 3));
  };
  // As its card says: three routed layers of 4 matrices [2, 128, 128] and a bias [2]; 6 x 8,192.
  EXPECT_EQ(number("router_parameters"), 3u * (4 * 2 * 128 * 128 + 2));
  EXPECT_EQ(number("mixing_parameters"), 49'152u);
  EXPECT_EQ(number("parameters"), 11'584'158u);
}

TEST(LocalProcessTest, ABaseModelContinuesText) {
  const support::ScratchFolder folder;
  support::WriteHlaFolder(folder.path());
  support::WriteLlamaTokenizer(folder.path());
  const std::string model = folder.path().string();
  Process inspect({.arguments = {MNEME, "model", "inspect", model}});
  EXPECT_EQ(inspect.Wait(), 0) << inspect.Errors();
  EXPECT_NE(inspect.Output().find("hla"), std::string::npos) << inspect.Output();
  Process raw({.arguments = {MNEME, "run", "--model", model, "--prompt", "Once upon a time",
                             "--max-tokens", "5"}});
  EXPECT_EQ(raw.Wait(60'000), 0) << raw.Errors();
  EXPECT_NE(raw.Errors().find("a base model without a chat format: it continues the text"),
            std::string::npos)
      << raw.Errors();
  EXPECT_NE(raw.Errors().find("hla reader"), std::string::npos) << raw.Errors();
  Process thinking(
      {.arguments = {MNEME, "run", "--model", model, "--prompt", "Hello", "--thinking"}});
  EXPECT_NE(thinking.Wait(60'000), 0);
  EXPECT_NE(thinking.Errors().find("--thinking: the model has no chat format"), std::string::npos)
      << thinking.Errors();
}

TEST(LocalProcessTest, ACheckSaysWhatItDidAndFailsWhereAPartDoes) {
  const support::ScratchFolder folder;
  support::WriteHlaFolder(folder.path());
  const std::string model = folder.path().string();
  Process check({.arguments = {MNEME, "model", "check", model, "--threads", "1"}});
  EXPECT_EQ(check.Wait(60'000), 0) << check.Errors();
  for (const char* part : {"files", "tensors", "numbers", "tokenizer", "memory", "tokens"})
    EXPECT_NE(check.Output().find(part), std::string::npos) << part << "\n" << check.Output();
  Process json({.arguments = {MNEME, "model", "check", model, "--json"}});
  EXPECT_EQ(json.Wait(60'000), 0) << json.Errors();
  EXPECT_NE(json.Output().find("\"passed\":true"), std::string::npos) << json.Output();
  support::WriteLlamaTokenizer(folder.path());
  support::HlaFolderSizes sizes;
  sizes.vocab = 1400;
  support::WriteHlaFolder(folder.path(), sizes);
  Process wrong({.arguments = {MNEME, "model", "check", model}});
  EXPECT_NE(wrong.Wait(60'000), 0);
  EXPECT_NE(wrong.Errors().find("tokenizer.json: expected at most 1400 ids"), std::string::npos)
      << wrong.Errors();
}

TEST(LocalProcessTest, AModelWithoutATokenizerRunsOnIdsAndSaysSo) {
  const support::ScratchFolder folder;
  support::WriteHlaFolder(folder.path());
  const std::string model = folder.path().string();
  Process ids({.arguments = {MNEME, "run", "--model", model, "--ids", "--prompt", "1,450 7",
                             "--max-tokens", "4", "--json"}});
  EXPECT_EQ(ids.Wait(60'000), 0) << ids.Errors();
  EXPECT_NE(ids.Output().find("\"ids\":["), std::string::npos) << ids.Output();
  Process text({.arguments = {MNEME, "run", "--model", model, "--prompt", "Hello"}});
  EXPECT_NE(text.Wait(60'000), 0);
  EXPECT_NE(text.Errors().find("give the prompt as ids, with --ids"), std::string::npos)
      << text.Errors();
  Process wide({.arguments = {MNEME, "run", "--model", model, "--ids", "--prompt", "1500"}});
  EXPECT_NE(wide.Wait(60'000), 0);
  EXPECT_NE(wide.Errors().find("vocabulary of 1500, found 1500"), std::string::npos)
      << wide.Errors();
}

// That so many gates were open is checked by the command itself, or it fails.
TEST(LocalProcessTest, BenchTellsWhatOpenGatesCostBesideNative) {
  Process bench({.arguments = {MNEME, "bench", "--model", kDemo, "--gates", "3", "--history",
                               "1024", "--repeats", "1", "--json"}});
  EXPECT_EQ(bench.Wait(60'000), 0) << bench.Errors();
  const std::string output = bench.Output();
  EXPECT_NE(output.find("\"history_tokens\":1024,\"gates\":3,"), std::string::npos) << output;
  const auto number = [&output](const std::string& key) {
    const size_t at = output.find("\"" + key + "\":");
    return at == output.npos ? 0.0 : std::stod(output.substr(at + key.size() + 3));
  };
  const double native = number("native_tokens_per_second");
  EXPECT_GT(native, 0);
  for (const std::string reader : {"hla", "mhla"}) {
    const double tokens = number(reader + "_tokens_per_second");
    ASSERT_GT(tokens, 0) << output;
    EXPECT_NEAR(number(reader + "_time_of_native"), native / tokens, 1e-6);
  }
}

TEST(LocalProcessTest, AFolderThatIsNoneIsRefusedByName) {
  Process run({.arguments = {MNEME, "run", "--model", "/nowhere/model", "--prompt", "Hello."}});
  EXPECT_NE(run.Wait(), 0);
  EXPECT_NE(run.Errors().find("/nowhere/model"), std::string::npos) << run.Errors();
}

TEST(LocalProcessTest, RunTakesTheSamplingOfChat) {
  const auto said = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {MNEME,    "run",      "--model",
                                          kDemo,    "--prompt", "harbour harbour harbour harbour",
                                          "--json", "--raw"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process run({.arguments = arguments});
    EXPECT_EQ(run.Wait(60'000), 0) << run.Errors();
    const std::string output = run.Output();
    return output.substr(output.find("\"text\""));
  };
  const std::string plain = said({"--max-tokens", "12"});
  EXPECT_EQ(said({"--max-tokens", "12", "--top-p", "0", "--repetition-penalty", "1"}), plain);
  EXPECT_NE(said({"--max-tokens", "12", "--repetition-penalty", "100"}), plain);
  EXPECT_GT(said({"--max-tokens", "0"}).size(), said({"--max-tokens", "1"}).size());
}

TEST(LocalProcessTest, TheQuickEvaluationCountsTwentyQuestions) {
  Process eval({.arguments = {MNEME, "eval", "retrieval", "--model", kDemo, "--corpus", kCorpus,
                              "--quick", "--json"}});
  EXPECT_EQ(eval.Wait(240'000), 0) << eval.Errors();
  EXPECT_NE(eval.Output().find("\"in_distribution\":{\"asked\":10"), std::string::npos)
      << eval.Output();
  EXPECT_NE(eval.Output().find("\"held_out\":{\"asked\":10"), std::string::npos);
  // One name each, in progress as in the text.
  for (const char* half : {"as trained", "held out"})
    EXPECT_NE(eval.Errors().find(half), std::string::npos) << eval.Errors();
  EXPECT_EQ(eval.Errors().find("held_out"), std::string::npos) << eval.Errors();
}

TEST(LocalProcessTest, TheNeedleMapHasARowForEveryLengthAndACellForEveryDepth) {
  const std::vector<std::string> needles = {MNEME, "eval",     "needles", "--model",
                                            kDemo, "--corpus", kCorpus,   "--facts",
                                            "4",   "--tokens", "400,1400"};
  Process grid({.arguments = needles});
  EXPECT_EQ(grid.Wait(240'000), 0) << grid.Errors();
  EXPECT_NE(grid.Output().find("  0.9     all\n         400 "), std::string::npos) << grid.Output();
  EXPECT_NE(grid.Output().find("\n       1,400 "), std::string::npos) << grid.Output();

  std::vector<std::string> as_json = needles;
  as_json.emplace_back("--json");
  Process json({.arguments = as_json});
  EXPECT_EQ(json.Wait(240'000), 0) << json.Errors();
  const std::string output = json.Output();
  for (const char* half : {"\"in_distribution\":[", "\"held_out\":["}) {
    const size_t start = output.find(half);
    ASSERT_NE(start, std::string::npos) << output;
    for (const char* row : {"{\"tokens\":400,\"asked\":4,", "{\"tokens\":1400,\"asked\":4,"})
      EXPECT_NE(output.find(row, start), std::string::npos) << row << "\n" << output;
  }
}

TEST(LocalProcessTest, QuestionsOfAFileAreAskedAndEveryAnswerIsShown) {
  const support::TempFolder temp;
  const std::string file = temp / "mine.json";
  std::ofstream(file) << R"([
      {"tell": ["My locker code is 4711.", "Correction: my locker code is 5822."],
       "ask": "What is my locker code?", "answer": "5822"},
      {"tell": ["Anna's door code is 9134."], "ask": "What is Anna's door code?",
       "answer": "no such code"}])";
  const std::vector<std::string> questions = {MNEME, "eval",     "questions", "--model",
                                              kDemo, "--corpus", kCorpus,     "--file",
                                              file,  "--tokens", "1500"};
  Process text({.arguments = questions});
  EXPECT_EQ(text.Wait(120'000), 0) << text.Errors();
  EXPECT_NE(text.Output().find("right  What is my locker code?\n       5822.\n"), std::string::npos)
      << text.Output();
  EXPECT_NE(text.Output().find("expected no such code."), std::string::npos) << text.Output();
  EXPECT_NE(text.Output().find("1 of 2 right, 1500 tokens"), std::string::npos) << text.Output();

  std::vector<std::string> as_json = questions;
  as_json.emplace_back("--json");
  Process json({.arguments = as_json});
  EXPECT_EQ(json.Wait(120'000), 0) << json.Errors();
  EXPECT_NE(json.Output().find("\"asked\":2,\"right\":1,\"corrected_asked\":1"), std::string::npos)
      << json.Output();
  EXPECT_NE(json.Output().find("\"expected\":\"5822.\",\"answered\":\"5822.\",\"right\":true"),
            std::string::npos)
      << json.Output();
}

// What another reader is given is what this one reads.
TEST(LocalProcessTest, HistoriesAreThoseThatRetrievalReads) {
  const std::vector<std::string> same = {
      "--model", kDemo, "--corpus",    kCorpus, "--tokens", "500", "--facts",     "2",
      "--seed",  "7",   "--corrected", "1",     "--untold", "1",   "--histories", "2"};
  const auto said = [&](const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {MNEME, "eval", command};
    arguments.insert(arguments.end(), same.begin(), same.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process process({.arguments = arguments});
    EXPECT_EQ(process.Wait(120'000), 0) << process.Errors();
    return process.Output();
  };
  const boost::json::value read = boost::json::parse(said("retrieval", {"--json"}));
  std::istringstream lines(said("histories", {}));
  std::map<std::string, size_t> tokens, questions;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::object history = boost::json::parse(line).as_object();
    const std::string half(history.at("corpus").as_string());
    EXPECT_EQ(history.at("seed").as_int64(), 7);
    EXPECT_FALSE(history.at("exchanges").as_array().empty());
    tokens[half] += history.at("ids").as_array().size();
    for (const boost::json::value& question : history.at("questions").as_array()) {
      ++questions[half];
      EXPECT_GT(question.at("answer_ids").as_array().size(), 1u);
    }
  }
  ASSERT_EQ(tokens.size(), 2u);
  for (const auto& [half, count] : tokens) {
    EXPECT_EQ(count, read.at(half).at("tokens_read").to_number<size_t>()) << half;
    EXPECT_EQ(questions[half], read.at(half).at("asked").to_number<size_t>()) << half;
  }
}

// A lost watermark leaves the server unsure of what it promised: it says so, and goes on only when
// somebody takes the loss.
TEST(LocalProcessTest, ALossIsRefusedUntilItIsAccepted) {
  const support::TempFolder temp;
  const std::string port = std::to_string(support::FreePort());
  const std::vector<std::string> serve = {MNEME,     "serve",        "--model", kDemo,
                                          "--store", temp / "store", "--port",  port};
  const auto chat = [&] {
    Process talk({.arguments = {MNEME, "chat", "harbour", "--server", "127.0.0.1:" + port},
                  .input = "My locker code is 4711.\n"});
    const int exit_code = talk.Wait(60'000);
    return std::pair(exit_code, talk.Errors());
  };
  {
    Process server({.arguments = serve});
    ASSERT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
    EXPECT_EQ(chat().first, 0);
    server.Signal(SIGTERM);
    ASSERT_EQ(server.Wait(), 0);
  }
  std::filesystem::remove(temp / "store/watermark");
  {
    Process server({.arguments = serve});
    ASSERT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
    EXPECT_NE(server.Errors().find("--accept-loss"), std::string::npos) << server.Errors();
    EXPECT_NE(server.Errors().find("nobody can tell whether"), std::string::npos)
        << "every turn is there, and nothing proves it: " << server.Errors();
    const auto [exit_code, errors] = chat();
    EXPECT_NE(exit_code, 0);
    EXPECT_NE(errors.find("--accept-loss"), std::string::npos) << errors;
    server.Signal(SIGTERM);
    ASSERT_EQ(server.Wait(), 0);
  }
  std::vector<std::string> accepting = serve;
  accepting.emplace_back("--accept-loss");
  Process server({.arguments = accepting});
  ASSERT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
  EXPECT_EQ(chat().first, 0);
}

TEST(LocalProcessTest, ThinkingThatWasNeverTrainedIsRefusedByTheServer) {
  const support::TempFolder temp;
  const std::string port = std::to_string(support::FreePort());
  Process server(
      {.arguments = {MNEME, "serve", "--model", kDemo, "--store", temp / "store", "--port", port}});
  ASSERT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
  const auto chat = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {MNEME, "chat", "a", "--server", "127.0.0.1:" + port};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process talk({.arguments = arguments, .input = "My locker code is 4711.\n"});
    const int exit_code = talk.Wait(60'000);
    return std::pair(exit_code, talk.Errors());
  };
  const auto [exit_code, errors] = chat({"--thinking"});
  EXPECT_EQ(exit_code, 1);
  EXPECT_NE(errors.find("thinking: this model was trained without it"), std::string::npos)
      << errors;
  EXPECT_EQ(chat({}).first, 0) << "the session goes on without";
}

TEST(LocalProcessTest, ASessionOfAnotherReaderIsToldWhichOneToServeItWith) {
  const support::TempFolder temp;
  const std::string port = std::to_string(support::FreePort());
  const auto talk = [&](const std::string& reader) {
    Process server({.arguments = {MNEME, "serve", "--model", kDemo, "--store", temp / "store",
                                  "--port", port, "--reader", reader}});
    EXPECT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
    Process chat({.arguments = {MNEME, "chat", "a", "--server", "127.0.0.1:" + port},
                  .input = "/explain\n"});
    const int exit_code = chat.Wait(60'000);
    return std::pair(exit_code, chat.Output() + chat.Errors());
  };
  const auto [fresh, said] = talk("hla");
  EXPECT_EQ(fresh, 0) << said;
  EXPECT_NE(said.find("nothing to explain: nothing was answered in this session yet"),
            std::string::npos)
      << said;
  const auto [refused, why] = talk("native");
  EXPECT_EQ(refused, 1);
  EXPECT_NE(why.find("made with another reader; serve it with --reader hla"), std::string::npos)
      << why;
  EXPECT_EQ(why.find("another model"), std::string::npos) << why;
}

// The hashes of the model's files are remembered between starts; a file that changed since is still
// noticed, and its sessions are refused instead of being read with other weights.
TEST(LocalProcessTest, AStartHashesAModelOnceAndNoticesAChangedFile) {
  const support::TempFolder temp;
  const std::string model = temp / "model";
  std::filesystem::copy(kDemo, model);
  std::filesystem::remove(model + "/SHA256SUMS");  // which would refuse the changed file
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // younger files are not remembered
  const std::string port = std::to_string(support::FreePort());
  // What one start says of its hashing, and what opening the session gave.
  const auto start = [&](const std::string& hashed) {
    Process server({.arguments = {MNEME, "serve", "--model", model, "--store", temp / "store",
                                  "--port", port}});
    EXPECT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
    EXPECT_NE(server.Errors().find("model_fingerprint bytes_hashed=" + hashed), std::string::npos)
        << server.Errors();
    Process talk({.arguments = {MNEME, "chat", "harbour", "--server", "127.0.0.1:" + port},
                  .input = "Hello.\n"});
    const int exit_code = talk.Wait(60'000);
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0);
    return std::pair(exit_code, talk.Errors());
  };
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    const std::string name = entry.path().filename();
    if (name == "mixing.safetensors") continue;  // of a reader that is not served here
    if (name.ends_with(".safetensors") || name == "tokenizer.json") bytes += entry.file_size();
  }
  EXPECT_EQ(start(std::to_string(bytes) + "\n").first, 0);
  EXPECT_EQ(start("0\n").first, 0);

  const std::string shard = model + "/model-00002-of-00002.safetensors";
  const auto time = std::filesystem::last_write_time(shard);
  const uint64_t shard_bytes = std::filesystem::file_size(shard);
  std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary | std::ios::ate)
      .seekp(-1, std::ios::end)
      .put('\x3c');
  std::filesystem::last_write_time(shard, time);
  const auto [exit_code, errors] = start(std::to_string(shard_bytes) + "\n");
  EXPECT_NE(exit_code, 0);
  EXPECT_NE(errors.find("it was made with another model: other weights ("), std::string::npos)
      << errors;
}

}  // namespace
}  // namespace mneme
