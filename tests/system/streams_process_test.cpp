// What whoever started the server did to its standard streams: closed them, filled the disk behind
// them, left, or reads nothing. It serves all the same, and nothing printed gets into the store.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

using support::Process;
using support::RawClient;

const std::string kDemo = std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo";

// The real server, started by a shell that does `before` and redirects as `streams` says.
class ShellServer {
 public:
  ShellServer(const std::string& store, const std::string& streams, const std::string& before = "")
      : process_({.arguments = {"/bin/sh", "-c",
                                fmt::format("{} exec {} serve --model {} --store {} --port {} {}",
                                            before, MNEME, kDemo, store, port_, streams)}}) {}

  bool WaitUntilServing() {
    for (int tries = 0; tries < 1000 && process_.running(); ++tries) {
      if (RawClient(port_).connected()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  uint16_t port() const { return port_; }
  Process& process() { return process_; }
  int Stop() {
    process_.Signal(SIGTERM);
    return process_.Wait();
  }

 private:
  const uint16_t port_ = support::FreePort();
  Process process_;
};

// Appends `turns` turns; how many were acknowledged.
int Append(RawClient& client, int turns, const std::string& text = "The key is 4711.") {
  int acknowledged = 0;
  v1::Request request = support::OpenOf(1, "harbour");
  if (!client.Send(request) || !client.Receive()) return 0;
  for (int turn = 0; turn < turns; ++turn) {
    request.Clear();
    request.set_request_id(static_cast<uint64_t>(turn) + 2);
    request.mutable_append()->set_session("harbour");
    request.mutable_append()->mutable_input()->set_text(text);
    if (!client.Send(request)) break;
    const auto event = client.Receive();
    if (!event) break;
    acknowledged += event->has_appended() ? 1 : 0;
  }
  return acknowledged;
}

TEST(StreamsProcessTest, ServesWithItsStreamsClosedOrFull) {
  const support::TempFolder temp;
  const std::string store = temp / "store";
  for (const std::string_view streams : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>&1"}) {
    ShellServer server(store, std::string(streams));
    ASSERT_TRUE(server.WaitUntilServing()) << streams;
    {
      RawClient client(server.port());
      EXPECT_EQ(Append(client, 3), 3) << streams;
    }
    EXPECT_EQ(server.Stop(), 0) << streams;
  }
  ShellServer server(store, "");
  ASSERT_TRUE(server.WaitUntilServing()) << server.process().Errors();
  EXPECT_NE(server.process().Errors().find("turns=15 "), std::string::npos)
      << server.process().Errors();
}

TEST(StreamsProcessTest, GoesOnWhereItsLogIsNotReadAndWhereItsReaderLeaves) {
  const support::TempFolder temp;
  const std::string pipe = temp / "log";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GT(::fcntl(reader, F_SETPIPE_SZ, 4096), 0);
  ShellServer server(temp / "store", "2>" + pipe);
  ASSERT_TRUE(server.WaitUntilServing());
  RawClient client(server.port());
  EXPECT_EQ(Append(client, 100), 100);  // each has a line
  std::string log(size_t{1} << 16, '\0');
  ASSERT_GT(::read(reader, log.data(), log.size()), 0);
  EXPECT_EQ(Append(client, 1), 1);
  const ssize_t count = ::read(reader, log.data(), log.size());
  ASSERT_GT(count, 0);
  log.resize(static_cast<size_t>(count));
  EXPECT_NE(log.find("warning log_lines_lost lines="), std::string::npos) << log;
  ::close(reader);
  EXPECT_EQ(Append(client, 10), 10);
  EXPECT_EQ(server.Stop(), 0);
}

// A limit of the system on the size of files, which is met by a signal where it is not ignored.
TEST(StreamsProcessTest, AFileThatMayNotGrowIsAnError) {
  const support::TempFolder temp;
  ShellServer server(temp / "store", "", "ulimit -f 2000;");  // 1 MB of pages are soon written
  ASSERT_TRUE(server.WaitUntilServing()) << server.process().Errors();
  RawClient client(server.port());
  std::string text;
  for (int i = 0; i < 200; ++i) text += "hello world ";
  EXPECT_EQ(Append(client, 8, text), 8);
  for (int tries = 0; tries < 1000; ++tries) {
    if (server.process().Errors().find("File too large") != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(server.process().Errors().find("File too large"), std::string::npos);
  EXPECT_EQ(Append(client, 1), 1);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamsProcessTest, OutputThatCannotBeWrittenIsSaid) {
  for (const auto& command :
       std::vector<std::string>{"--help", "--version", "model inspect " + kDemo}) {
    Process process(
        {.arguments = {"/bin/sh", "-c", fmt::format("{} {} >/dev/full", MNEME, command)}});
    EXPECT_EQ(process.Wait(), 1) << command;
    EXPECT_NE(process.Errors().find("No space left on device"), std::string::npos)
        << process.Errors();
    EXPECT_EQ(process.Errors().find("bug"), std::string::npos) << process.Errors();
  }
}

}  // namespace
}  // namespace mneme
