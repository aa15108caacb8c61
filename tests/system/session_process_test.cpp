// The real `mneme session` against the real `mneme serve` with the service that echoes.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <sstream>

#include "proto/mneme/v1/event.pb.h"
#include "tests/support/process.h"

namespace mneme {
namespace {

using support::Process;
using support::ServedProcess;

class SessionProcessTest : public ::testing::Test {
 protected:
  struct Ran {
    int exit_code = 0;
    std::string output;
    std::string errors;
  };
  Ran Run(const std::vector<std::string>& arguments, const std::string& input = "") {
    return RunAt(served_.address(), arguments, {.input = input});
  }
  Ran RunAt(const std::string& server, std::vector<std::string> arguments,
            support::ProcessOptions options) {
    arguments.insert(arguments.begin(), MNEME_ON_FAKE);
    arguments.insert(arguments.end(), {"--server", server});
    options.arguments = arguments;
    Process process(options);
    const int exit_code = process.Wait();
    return {exit_code, process.Output(), process.Errors()};
  }

  ServedProcess served_;
};

TEST_F(SessionProcessTest, RefusesANameThatIsNotUtf8) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"session", "show", "caf\xe9"},
        {"session", "rm", "caf\xe9", "-y"},
        {"chat", "caf\xe9"}}) {
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.exit_code, 1) << arguments[0];
    EXPECT_NE(ran.errors.find("session: byte 4 is not UTF-8"), std::string::npos) << ran.errors;
    EXPECT_EQ(ran.errors.find("libprotobuf"), std::string::npos) << ran.errors;
  }
}

TEST_F(SessionProcessTest, TheServerOfTheCommandLineWinsOverTheEnvironment) {
  const std::vector<std::vector<std::string>> commands = {
      {"chat", "a"}, {"session", "ls"}, {"session", "show", "a"}, {"session", "rm", "a", "--yes"}};
  for (const auto& command : commands) {
    const Ran ran =
        RunAt(served_.address(), command, {.environment = {"MNEME_SERVER=127.0.0.1:99999"}});
    EXPECT_EQ(ran.exit_code, 0) << command[1] << ran.errors;
    const Ran typed =
        RunAt("127.0.0.1:99999", command, {.environment = {"MNEME_SERVER=" + served_.address()}});
    EXPECT_EQ(typed.exit_code, 2) << command[1];
    EXPECT_NE(typed.errors.find("a port, 1 to 65535"), typed.errors.npos) << typed.errors;
  }
  Process set({.arguments = {MNEME_ON_FAKE, "session", "ls"},
               .environment = {"MNEME_SERVER=127.0.0.1:99999"}});
  EXPECT_EQ(set.Wait(), 2);
  EXPECT_NE(set.Errors().find("environment MNEME_SERVER: server"), std::string::npos)
      << set.Errors();
}

TEST_F(SessionProcessTest, ListsWhatThereIs) {
  EXPECT_NE(Run({"session", "ls"}).errors.find("no sessions yet"), std::string::npos);
  ASSERT_EQ(Run({"chat", "harbour"}, "one\ntwo\n").exit_code, 0);
  ASSERT_EQ(Run({"chat", "attic"}, "one\n").exit_code, 0);
  const Ran list = Run({"session", "ls"});
  EXPECT_EQ(list.exit_code, 0);
  const size_t attic = list.output.find("attic ");
  const size_t harbour = list.output.find("harbour ");
  ASSERT_NE(harbour, list.output.npos) << list.output;
  EXPECT_LT(attic, harbour);
  for (const char* word :
       {"SESSION", "TURNS", "TOKENS", "HOST", "DISK (EST.)", "LAST USED", "READER", "native"})
    EXPECT_NE(list.output.find(word), list.output.npos) << word;
  EXPECT_EQ(list.output.find("DEVICE"), list.output.npos);  // there is none
  const Ran json = Run({"session", "ls", "--json"});
  std::istringstream lines(json.output);
  std::vector<v1::SessionSummary> sessions;
  for (std::string line; std::getline(lines, line);) {
    v1::SessionSummary session;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &session).ok()) << line;
    sessions.push_back(session);
  }
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[1].head().turn(), 2u);
}

TEST_F(SessionProcessTest, ShowsCountersAndTheTranscript) {
  ASSERT_EQ(Run({"chat", "harbour"}, "the blue stone\n").exit_code, 0);
  const Ran show = Run({"session", "show", "harbour", "--transcript"});
  EXPECT_EQ(show.exit_code, 0);
  EXPECT_NE(show.output.find("turns                 1"), show.output.npos) << show.output;
  EXPECT_NE(show.output.find("--- turn 1, "), show.output.npos);
  EXPECT_NE(show.output.find("user: the blue stone"), show.output.npos);
  EXPECT_NE(show.output.find("assistant: you said: the blue stone"), show.output.npos);
}

TEST_F(SessionProcessTest, RemovesOneAndFindsItNoMore) {
  ASSERT_EQ(Run({"chat", "harbour"}, "one\n").exit_code, 0);
  const Ran removed = Run({"session", "rm", "harbour", "--yes"});
  EXPECT_EQ(removed.exit_code, 0);
  EXPECT_EQ(removed.output, "removed harbour, 1 turn\n");
  const std::vector<std::vector<std::string>> after = {{"session", "show", "harbour"},
                                                       {"session", "rm", "harbour", "--yes"}};
  for (const std::vector<std::string>& command : after) {
    const Ran gone = Run(command);
    EXPECT_EQ(gone.exit_code, 3) << command[1];
    EXPECT_NE(gone.errors.find("(not_found)"), gone.errors.npos) << gone.errors;
  }
}

TEST_F(SessionProcessTest, RemovesNothingWhereNobodyCanBeAsked) {
  ASSERT_EQ(Run({"chat", "harbour"}, "one\n").exit_code, 0);
  for (const char* input : {"", "n\n", "y\n"}) {
    const Ran refused = Run({"session", "rm", "harbour"}, input);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.errors.find("session harbour: not removed"), refused.errors.npos);
    EXPECT_NE(refused.errors.find("add --yes"), refused.errors.npos) << refused.errors;
    EXPECT_NE(refused.errors.find("(invalid_argument)"), refused.errors.npos) << refused.errors;
  }
  EXPECT_EQ(Run({"session", "show", "harbour"}).exit_code, 0);
}

TEST_F(SessionProcessTest, AsksAtATerminalBeforeItRemoves) {
  ASSERT_EQ(Run({"chat", "harbour"}, "one\n").exit_code, 0);
  const auto ask = [&](const std::string& answer) {
    Process process(
        {.arguments = {MNEME_ON_FAKE, "session", "rm", "harbour", "--server", served_.address()},
         .terminal = true});
    EXPECT_TRUE(process.WaitForOutput("remove session harbour for good?")) << process.Output();
    process.Type(answer);
    return process.Wait();
  };
  EXPECT_EQ(ask("n\n"), 1);
  EXPECT_EQ(Run({"session", "show", "harbour"}).exit_code, 0);
  EXPECT_EQ(ask("y\n"), 0);
  EXPECT_EQ(Run({"session", "show", "harbour"}).exit_code, 3);
}

}  // namespace
}  // namespace mneme
