// What can be refused cheaply is refused before a model is loaded and before anything is made or
// removed on disk: each command line is wrong in one way, and both are looked for.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>

#include "memory/file_descriptor.h"
#include "tests/support/process.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

using support::Process;

const std::string kDemo = std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo";
const std::string kCorpus = std::string(MNEME_SOURCE_DIR) + "/eval/corpus";

constexpr auto kReplace =
    std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing;

struct Refusal {
  std::vector<std::string> arguments;
  int exit_code = 0;
  std::string says;
};

class RefusalProcessTest : public ::testing::Test {
 protected:
  void Expect(Refusal refusal) {
    const std::string line = ::testing::PrintToString(refusal.arguments);
    refusal.arguments.insert(refusal.arguments.begin(), MNEME);
    Process process({.arguments = refusal.arguments});
    EXPECT_EQ(process.Wait(), refusal.exit_code) << line;
    const std::string errors = process.Errors();
    EXPECT_NE(errors.find(refusal.says), std::string::npos) << line << "\n" << errors;
    EXPECT_EQ(errors.find("loading"), std::string::npos) << line << "\n" << errors;
    EXPECT_FALSE(std::filesystem::exists(store_)) << line;
  }

  void ExpectServe(std::vector<std::string> more, int exit_code, const std::string& says) {
    std::vector<std::string> arguments = {"serve", "--store", store_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Expect({.arguments = arguments, .exit_code = exit_code, .says = says});
  }

  // The demo model as a folder without static mixing.
  std::string WithoutMixing() const {
    const std::string model = temp_ / "without-mixing";
    std::filesystem::copy(kDemo, model, kReplace);
    for (const char* name : {"/mixing.safetensors", "/SHA256SUMS"})
      std::filesystem::remove(model + name);
    return model;
  }

  const support::TempFolder temp_;
  const std::string store_ = temp_ / "store";
};

TEST_F(RefusalProcessTest, ServeRefusesItsConfiguration) {
  ExpectServe({"--model", kDemo, "--address", "0.0.0.0"}, 6, "flag --listen.address: listen");
  ExpectServe({"--model", kDemo, "--address", "here"}, 2, "cannot be read");
  ExpectServe({"--model", kDemo, "--memory.page_dtype", "f64"}, 2, "f16, f32");
}

TEST_F(RefusalProcessTest, ServeAsksForWhatIsMissingAlone) {
  Expect({{"serve", "--model", kDemo}, 2, "which store? as in: mneme serve --model " + kDemo});
  ExpectServe({}, 2, "which model? as in: mneme serve --model checkpoints/demo --store " + store_);
  Expect({{"serve"}, 2, "which model and store?"});
}

TEST_F(RefusalProcessTest, ACommandThatIsNotThereIsNamedBesideThoseThatAre) {
  Expect({{"model", "chek", kDemo}, 2, "there is no command `chek`; there are inspect, check"});
  Expect({{"session", "list", "--json"}, 2, "there is no command `list`; there are ls, show, rm"});
  Expect({{"eval"}, 2, "which command? there are retrieval, needles, questions, histories"});
  Expect({{"session", "show"}, 2, "name is required"});
}

// What anybody types to find out: none of it is a refusal but the last.
TEST_F(RefusalProcessTest, HelpAndVersionAreWhereTheyAreLookedFor) {
  const auto said = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), MNEME);
    Process process({.arguments = arguments});
    EXPECT_EQ(process.Wait(), 0) << process.Errors();
    return process.Output();
  };
  EXPECT_EQ(said({"help", "serve"}), said({"serve", "--help"}));
  EXPECT_EQ(said({"help", "model", "inspect"}), said({"model", "inspect", "--help"}));
  EXPECT_EQ(said({"help"}), said({"--help"}));
  const std::string version = said({"--version"});
  EXPECT_TRUE(version.starts_with("mneme ")) << version;
  EXPECT_EQ(said({"serve", "--version"}), version);
  EXPECT_EQ(said({"model", "inspect", "--version"}), version) << "before the folder is asked for";
  Expect({{"help", "sreve"}, 2, "there is no command `sreve`"});
}

// With a limit on address space the matrix library used to ask for its buffers for ever.
TEST_F(RefusalProcessTest, ALimitOnAddressSpaceIsAnAnswer) {
  if (support::kSanitizer) GTEST_SKIP() << "sanitizers need more address space than any such limit";
  const auto limited = [](const std::string& kibibytes, const std::string& arguments) {
    return Process({.arguments = {"/bin/sh", "-c",
                                  "ulimit -v " + kibibytes + " && exec " MNEME " " + arguments}});
  };
  const std::string run = "run --model " + kDemo + " --threads 2 --prompt hi --host-mib ";
  Process version = limited("200000", "--version");
  EXPECT_EQ(version.Wait(), 0) << version.Errors();
  Process pages = limited("2000000", run + "4096");
  EXPECT_EQ(pages.Wait(), 1);
  EXPECT_NE(pages.Errors().find("raise the limit"), std::string::npos) << pages.Errors();
  // Whatever is short: the files, the pages, the buffers, the weights.
  for (const char* kibibytes : {"200000", "300000", "400000", "450000"}) {
    Process buffers = limited(kibibytes, run + "64");
    EXPECT_EQ(buffers.Wait(), 1) << kibibytes << buffers.Errors();
    EXPECT_EQ(buffers.Errors().find("bug"), std::string::npos) << buffers.Errors();
  }
}

TEST_F(RefusalProcessTest, AServerElsewhereIsNotOfferedToBeStarted) {
  Process chat({.arguments = {MNEME, "chat", "a", "--server", "nowhere.invalid"}});
  EXPECT_EQ(chat.Wait(), 4);
  EXPECT_NE(chat.Errors().find("Is the address right?"), std::string::npos) << chat.Errors();
  EXPECT_EQ(chat.Errors().find(" serve "), std::string::npos) << chat.Errors();
}

TEST_F(RefusalProcessTest, ServeRefusesAModelThatCannotBeServed) {
  ExpectServe({"--model", temp_ / "none"}, 3, "no such folder");
  ExpectServe({"--model", WithoutMixing(), "--reader", "mhla"}, 1, "has no mixing.safetensors");
  ExpectServe({"--model", kDemo, "--memory.host_bytes_max", "1KiB"}, 1, "holds no page group");
  const std::string damaged = temp_ / "damaged";
  std::filesystem::copy(kDemo, damaged);
  std::filesystem::resize_file(damaged + "/model-00002-of-00002.safetensors", 5000);
  ExpectServe({"--model", damaged}, 1, "model-00002-of-00002.safetensors");
  std::filesystem::copy(kDemo, damaged, kReplace);
  std::fstream(damaged + "/model-00002-of-00002.safetensors",
               std::ios::in | std::ios::out | std::ios::binary | std::ios::ate)
      .seekp(-2, std::ios::end)
      .write("\xc0\x7f", 2);  // of bf16: not a number
  ExpectServe({"--model", damaged}, 1,
              "model folder " + damaged + ": model-00002-of-00002.safetensors: tensor ");
  ExpectServe({"--model", damaged}, 1, "expected finite numbers, found one that is not at ");
  std::filesystem::copy(kDemo, damaged, kReplace);
  std::filesystem::remove(damaged + "/tokenizer.json");
  ExpectServe({"--model", damaged}, 3, "tokenizer.json");
}

TEST_F(RefusalProcessTest, ServeRefusesAPortThatIsTaken) {
  const memory::FileDescriptor taken(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(taken.number(), generic, length), 0);
  ASSERT_EQ(listen(taken.number(), 1), 0);
  ASSERT_EQ(getsockname(taken.number(), generic, &length), 0);
  ExpectServe({"--model", kDemo, "--port", std::to_string(ntohs(address.sin_port))}, 6,
              "is another server running?");
}

TEST_F(RefusalProcessTest, ServeRefusesAStoreInUseBeforeItLoads) {
  std::filesystem::create_directory(temp_ / "held");
  const memory::FileDescriptor held(open((temp_ / "held").c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(flock(held.number(), LOCK_EX | LOCK_NB), 0);
  Expect({.arguments = {"serve", "--model", kDemo, "--store", temp_ / "held", "--port",
                        std::to_string(support::FreePort())},
          .exit_code = 5,
          .says = "is in use"});
}

TEST_F(RefusalProcessTest, RunRefusesPromptReaderAndSampling) {
  Expect({{"run", "--model", kDemo, "--prompt-file", temp_ / "none"}, 3, "cannot be opened"});
  Expect({{"run", "--model", kDemo}, 2, "give --prompt TEXT or --prompt-file FILE"});
  Expect({{"run", "--model", kDemo, "--prompt", ""}, 1, "the prompt is empty"});
  Expect({{"run", "--model", WithoutMixing(), "--prompt", "a", "--reader", "mhla"},
          1,
          "has no mixing"});
  Expect({{"run", "--model", kDemo, "--prompt", "a", "--top-p", "2"}, 2, "--top-p"});
  Expect({{"run", "--model", kDemo, "--prompt", "a", "--temperature", "-1"}, 2, "--temperature"});
}

TEST_F(RefusalProcessTest, AskingForThinkingIsRefusedWhereItWasNeverTrained) {
  Expect({{"run", "--model", kDemo, "--prompt", "a", "--thinking"}, 1, "was trained without it"});
}

TEST_F(RefusalProcessTest, AFileWithAFlippedBitIsRefusedByNameAndHash) {
  const std::string damaged = temp_ / "damaged";
  std::filesystem::copy(kDemo, damaged);
  {
    std::fstream file(damaged + "/router.safetensors", std::ios::in | std::ios::out);
    file.seekg(-9, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-9, std::ios::end);
    file.put(byte);
  }
  for (const std::string& refused :
       {std::string("damaged/router.safetensors: expected SHA-256 "), std::string(", found ")}) {
    Expect({{"run", "--model", damaged, "--prompt", "a"}, 1, refused});
    Expect({{"serve", "--model", damaged, "--store", temp_ / "other", "--port",
             std::to_string(support::FreePort())},
            1,
            refused});
  }
  std::filesystem::remove(damaged + "/SHA256SUMS");
  Process run({.arguments = {MNEME, "run", "--model", damaged, "--prompt", "Hello."}});
  EXPECT_EQ(run.Wait(60'000), 0) << "there is nothing to compare with";
}

TEST_F(RefusalProcessTest, ServeBeginsNoStoreOnADiskThatIsTooSmall) {
  const std::string disk = temp_ / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=24m") != 0)
    GTEST_SKIP() << "needs the right to mount a small tmpfs";
  Expect({{"serve", "--model", kDemo, "--store", disk + "/store", "--port",
           std::to_string(support::FreePort())},
          1,
          "24 MiB of the 24 MiB of its disk are free, and a store that begins needs 192 MiB"});
  EXPECT_FALSE(std::filesystem::exists(disk + "/store"));
  ::umount2(disk.c_str(), MNT_DETACH);
}

TEST_F(RefusalProcessTest, ATextThatLiesElsewhereIsAskedForByItsFlag) {
  const std::string place = temp_ / "elsewhere";
  std::filesystem::create_directory(place);
  const auto expect = [&](const std::string& command, const std::string& says) {
    Process process(
        {.arguments = {"sh", "-c", "cd " + place + " && exec " + MNEME + " " + command}});
    EXPECT_EQ(process.Wait(), 3) << command;
    EXPECT_NE(process.Errors().find(says), std::string::npos) << process.Errors();
  };
  for (const std::string& command :
       {std::string("eval retrieval"), std::string("eval needles"), std::string("demo")}) {
    expect(command + " --model " + kDemo, place + "/eval/corpus/train");
    expect(command + " --model " + kDemo, "--corpus");
    expect(command + " --model checkpoints/demo --corpus " + kCorpus,
           "looked for " + place + "/checkpoints/demo");
  }
}

TEST_F(RefusalProcessTest, EvalRefusesCorpusAndHistory) {
  const std::string half = temp_ / "half";
  std::filesystem::create_directory(half);
  std::filesystem::create_directory_symlink(kCorpus + "/train", half + "/train");
  Expect({{"eval", "retrieval", "--model", kDemo, "--corpus", half}, 3, "held_out"});
  Expect({{"eval", "retrieval", "--model", kDemo, "--corpus", kCorpus, "--tokens", "1024",
           "--facts", "100"},
          1,
          "has no room for 100 facts"});
  Expect({{"eval", "retrieval", "--model", kDemo, "--corpus", kCorpus, "--corrected", "-1"},
          2,
          "--corrected"});
  Expect({{"eval", "needles", "--model", kDemo, "--corpus", kCorpus, "--tokens", "8192,500"},
          1,
          "a history of 500 tokens has no room for 10 facts"});
  Expect({{"eval", "needles", "--model", kDemo, "--corpus", kCorpus, "--tokens", "8192,x"},
          2,
          "--tokens"});
}

TEST_F(RefusalProcessTest, EvalRefusesQuestionsThatAreNone) {
  const std::string file = temp_ / "mine.json";
  const auto expect = [&](const std::string& text, int exit_code, const std::string& says) {
    std::ofstream(file) << text;
    Expect({{"eval", "questions", "--model", kDemo, "--corpus", kCorpus, "--file", file, "--tokens",
             "256"},
            exit_code,
            says});
  };
  expect("not json", 1, "mine.json is not JSON");
  expect(R"([{"tell": ["a"], "ask": "b"}])", 1, "question 1: answer is missing");
  expect(R"([{"tell": ["a", "b", "c", "d", "e"], "ask": "b", "answer": "c"}])", 1,
         "a history of 256 tokens has no room for 5 sentences; 300 would do");
  Expect({{"eval", "questions", "--model", kDemo, "--corpus", kCorpus, "--file", temp_ / "none"},
          3,
          "cannot be opened"});
  Expect({{"eval", "questions", "--model", kDemo, "--corpus", kCorpus}, 2, "--file"});
}

TEST_F(RefusalProcessTest, BenchRefusesAReaderThatIsNotThere) {
  Expect({{"bench", "--model", WithoutMixing(), "--reader", "mhla"}, 1, "has no mixing"});
  Expect({{"bench", "--shape", "0.8b", "--reader", "hla"}, 1, "has no router"});
}

TEST_F(RefusalProcessTest, BenchOpensNoMoreGatesThanThereAreChunks) {
  const auto expect = [&](std::vector<std::string> more, int exit_code, const std::string& says) {
    std::vector<std::string> arguments = {"bench", "--model", kDemo, "--gates"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Expect({arguments, exit_code, says});
  };
  expect({"3", "--history", "512"}, 1,
         "gates 3: 512 tokens of history are 2 closed chunks; --history 768 would do");
  expect({"17", "--history", "8192"}, 1, "checkpoints/demo opens 16 at most");
  expect({"0"}, 2, "--gates");
  expect({"3", "--batch", "4"}, 2, "excludes");
  expect({"3", "--reader", "hla"}, 2, "excludes");
}

TEST_F(RefusalProcessTest, BenchTakesAFolderOrAKnownShape) {
  Expect({{"bench"}, 2, "give --model DIR or --shape 0.8b"});
  Expect({{"bench", "--shape", "7b"}, 2, "--shape"});
  Expect({{"bench", "--shape", "0.8b", "--model", kDemo}, 2, "excludes"});
}

TEST_F(RefusalProcessTest, ChatRefusesSamplingOutOfRangeBeforeItOpensASession) {
  Expect({{"chat", "a", "--temperature", "900"}, 2, "--temperature"});
  Expect({{"chat", "a", "--repetition-penalty", "900"}, 2, "--repetition-penalty"});
}

TEST_F(RefusalProcessTest, DemoEmptiesNoFolderButADemos) {
  const std::string mine = temp_ / "mine";
  std::filesystem::create_directory(mine);
  std::ofstream(mine + "/thesis.txt") << "years of work";
  Expect({{"demo", "--model", kDemo, "--corpus", kCorpus, "--tokens", "4096", "--store", mine},
          1,
          "holds what no demo wrote"});
  EXPECT_TRUE(std::filesystem::exists(mine + "/thesis.txt"));
}

}  // namespace
}  // namespace mneme
