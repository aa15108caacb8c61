// The Python client printed in docs/protocol.md, run as it stands there against a real server.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/process.h"

namespace mneme {
namespace {

using support::Process;
using support::ServedProcess;

// The first block of docs/protocol.md that is fenced as `language`.
std::string BlockOf(const std::string& language) {
  std::ostringstream text;
  text << std::ifstream(std::string(MNEME_SOURCE_DIR) + "/docs/protocol.md").rdbuf();
  const std::string fence = "```" + language + "\n";
  const size_t begin = text.str().find(fence);
  if (begin == std::string::npos) return "";
  const size_t first = begin + fence.size();
  return text.str().substr(first, text.str().find("```", first) - first);
}

// Debian's own Python, which has Debian's python3-protobuf, whatever else is installed.
const std::vector<std::string> kDebianFirst = {
    "PATH=/usr/bin:/bin:" + std::string(std::getenv("PATH") ? std::getenv("PATH") : "")};

class ProtocolDocTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Process python(
        {.arguments = {"python3", "-c", "import google.protobuf"}, .environment = kDebianFirst});
    if (python.Wait() != 0) GTEST_SKIP() << "needs python3-protobuf";
    Process protoc({.arguments = {"protoc", "--version"}});
    if (protoc.Wait() != 0) GTEST_SKIP() << "needs protobuf-compiler";
    folder_ = ::testing::TempDir() + "mneme_protocol_doc_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/talk.py") << BlockOf("python");
    std::filesystem::remove(folder_ + "/proto");
    std::filesystem::create_symlink(std::string(MNEME_SOURCE_DIR) + "/proto", folder_ + "/proto");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The document's own commands, with this server's port and another question.
  Process& Run(const ServedProcess& served, const std::string& question) {
    std::string commands = BlockOf("sh");
    const auto replace = [&commands](const std::string& from, const std::string& to) {
      const size_t at = commands.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      commands.replace(at, from.size(), to);
    };
    replace("7411", std::to_string(served.port()));
    replace("where did I leave the key?", question);
    process_ = std::make_unique<Process>(support::ProcessOptions{
        .arguments = {"sh", "-e", "-c", "cd '" + folder_ + "'\n" + commands},
        .environment = kDebianFirst});
    process_->Wait();
    return *process_;
  }

  std::string folder_;
  std::unique_ptr<Process> process_;
};

TEST_F(ProtocolDocTest, RunsAsItIsPrinted) {
  ServedProcess served;
  EXPECT_EQ(Run(served, "under the stone?").Wait(), 0) << process_->Errors();
  EXPECT_EQ(process_->Output(), "you said: under the stone?\n");
  EXPECT_EQ(process_->Errors(), "turn 0, reader native\nstop, turn 1\n");
}

TEST_F(ProtocolDocTest, RaisesWhatTheServerRefuses) {
  ServedProcess served;
  EXPECT_NE(Run(served, "fail store_full").Wait(), 0);
  EXPECT_NE(process_->Errors().find("RuntimeError: store_full: as asked for"), std::string::npos)
      << process_->Errors();
}

}  // namespace
}  // namespace mneme
