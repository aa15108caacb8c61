// The real `mneme chat` against the real `mneme serve` with the service that echoes: what it prints
// into a pipe, for a program, and on a terminal.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <sstream>

#include "proto/mneme/v1/event.pb.h"
#include "tests/support/process.h"

namespace mneme {
namespace {

using support::FreePort;
using support::Process;
using support::ServedProcess;

std::vector<std::string> ChatArguments(const ServedProcess& served, const std::string& session,
                                       const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {MNEME_ON_FAKE, "chat", session, "--server",
                                        served.address()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ChatProcessTest, AnswersEachLineOfAPipe) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "harbour"), .input = "first thing\nand second"});
  EXPECT_EQ(chat.Wait(), 0) << chat.Errors();
  EXPECT_EQ(chat.Output(), "you said: first thing\nyou said: and second\n");
  const std::string errors = chat.Errors();
  EXPECT_TRUE(Contains(errors, "harbour is a fresh session; reader native")) << errors;
  EXPECT_TRUE(Contains(errors, "this model has no router")) << errors;
  EXPECT_TRUE(Contains(errors, "turn 2]")) << errors;
}

TEST(ChatProcessTest, ResumesByName) {
  ServedProcess served;
  Process first({.arguments = ChatArguments(served, "harbour"), .input = "one\n/quit\nnot said\n"});
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(first.Output(), "you said: one\n");
  Process second({.arguments = ChatArguments(served, "harbour"), .input = "two\n"});
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_TRUE(Contains(second.Errors(), "harbour resumed: 1 turn, 4 tokens; nothing to compute"))
      << second.Errors();
}

TEST(ChatProcessTest, PrintsOneObjectForEachEventWhereAProgramReads) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a", {"--json"}),
                .input = "one two\n/stats\n/explain\nfail store_full\n"});
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_EQ(chat.Errors(), "");
  std::istringstream lines(chat.Output());
  std::string kinds;
  for (std::string line; std::getline(lines, line);) {
    v1::Event event;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &event).ok()) << line;
    kinds += event.has_opened()        ? 'o'
             : event.has_started()     ? 's'
             : event.has_token()       ? 't'
             : event.has_done()        ? 'd'
             : event.has_stats()       ? 'S'
             : event.has_explanation() ? 'E'
             : event.has_failed()      ? 'f'
                                       : '?';
  }
  EXPECT_EQ(kinds, "osttttdSEf");
  EXPECT_TRUE(Contains(chat.Output(), "\"reason\":\"store_full\"")) << chat.Output();
}

TEST(ChatProcessTest, PrintsTheServeLineWhereNoServerAnswers) {
  const uint16_t port = FreePort();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{MNEME_ON_FAKE, "chat", "a"}, {MNEME_ON_FAKE, "session", "ls"}}) {
    Process process({.arguments = arguments,
                     .environment = {"MNEME_SERVER=127.0.0.1:" + std::to_string(port)}});
    EXPECT_EQ(process.Wait(), 4);
    EXPECT_TRUE(Contains(process.Errors(), " serve --model ")) << process.Errors();
    EXPECT_TRUE(Contains(process.Errors(), " --port " + std::to_string(port)));
  }
}

TEST(ChatProcessTest, GoesOnAfterAFailedAnswerAndSaysSoAtItsEnd) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a"), .input = "fail session_busy\nhello\n"});
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_TRUE(Contains(chat.Errors(), "(session_busy)")) << chat.Errors();
  EXPECT_TRUE(Contains(chat.Errors(), "another client is writing this session"));
  EXPECT_TRUE(Contains(chat.Output(), "you said: hello"));
}

TEST(ChatProcessTest, RefusesToMakeASessionWhenToldNotTo) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "absent", {"--no-create"}), .input = "hi\n"});
  EXPECT_EQ(chat.Wait(), 3);
  EXPECT_EQ(chat.Output(), "");
}

TEST(ChatProcessTest, ExplainsAndCounts) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a"),
                .input = "hello\n/explain\n/stats\n/help\n/nothing\n"});
  EXPECT_EQ(chat.Wait(), 0) << "a slip of the pen is no failure";
  EXPECT_TRUE(Contains(chat.Output(), "0.75  tokens 0 to 255, disk\n")) << chat.Output();
  // Nothing was told before the explained turn, so only what was read most is named.
  EXPECT_TRUE(Contains(chat.Output(),
                       "turn 1 was read from tokens 0 to 255 (disk) most; no sentence told there "
                       "shares its words\n"))
      << chat.Output();
  EXPECT_TRUE(Contains(chat.Output(), "\nof this session, since the server started:"))
      << chat.Output();
  EXPECT_TRUE(Contains(chat.Output(), "memory                host ")) << chat.Output();
  EXPECT_TRUE(Contains(chat.Errors(), "Ctrl-C     stop an answer")) << chat.Errors();
  EXPECT_TRUE(Contains(chat.Errors(), "/nothing: no such command")) << chat.Errors();
}

TEST(ChatProcessTest, ExplainsWithTheSentenceThatTheAnswerCameFromOnce) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a"),
                .input = "Hello there.\n"
                         "It rains. The code of the locker is 4711. The sky is blue.\n"
                         "Nothing more.\n"
                         "Is it 4711 then?\n/explain\n"});
  EXPECT_EQ(chat.Wait(), 0) << chat.Errors();
  // Read from the chunk that the explanation lists, not from the recent tokens, which have it too.
  const std::string source =
      "turn 4 was read from tokens 0 to 255 (disk): The code of the locker is 4711.\n";
  const size_t at = chat.Output().find(source);
  ASSERT_NE(at, std::string::npos) << chat.Output();
  EXPECT_EQ(chat.Output().find("of the locker", at + source.size()), std::string::npos);
  EXPECT_TRUE(Contains(chat.Output(), "turn 4, token by token: how much of what it read"));
}

// The service that echoes names the first 256 tokens; what was told after them is recent.
TEST(ChatProcessTest, ExplainsWithARecentSentenceWhereNoChunkHasIt) {
  ServedProcess served;
  std::string filler;
  for (int word = 0; word < 300; ++word) filler += "word ";
  Process chat({.arguments = ChatArguments(served, "a", {"--max-tokens", "1"}),
                .input = filler + "\nThe code of the locker is 4711.\n"});
  EXPECT_EQ(chat.Wait(), 0) << chat.Errors();
  Process asks({.arguments = ChatArguments(served, "a"), .input = "Is it 4711 then?\n/explain\n"});
  EXPECT_EQ(asks.Wait(), 0) << asks.Errors();
  EXPECT_TRUE(Contains(asks.Output(), " (recent): The code of the locker is 4711.\n"))
      << asks.Output();
}

TEST(ChatProcessTest, SaysThatASystemMessageComesTooLate) {
  ServedProcess served;
  const std::vector<std::string> brief = {"--system", "Be brief."};
  Process first({.arguments = ChatArguments(served, "a", brief), .input = "one\n"});
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_FALSE(Contains(first.Errors(), "--system")) << first.Errors();
  for (const std::string& more : {std::string("--show=0"), std::string("--json")}) {
    Process second({.arguments = ChatArguments(served, "a", {"--system", "Be brief.", more}),
                    .input = "two\n"});
    EXPECT_EQ(second.Wait(), 0);
    EXPECT_TRUE(Contains(second.Errors(), "--system is not said: a has ")) << second.Errors();
  }
}

TEST(ChatProcessTest, HelpExplainsTheLineAfterAnAnswer) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a"), .input = "hello\n/help\n"});
  EXPECT_EQ(chat.Wait(), 0);
  const std::string errors = chat.Errors();
  for (const char* word : {"fresh", "tokens/s", "first after", "turn"}) {
    const size_t shown = errors.find(word, errors.find('['));
    EXPECT_NE(errors.find(word, errors.find("The line in brackets")), errors.npos) << word;
    EXPECT_NE(shown, errors.npos) << word << ": " << errors;
  }
}

TEST(ChatProcessTest, ShowsPlainProgressLinesInAPipe) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a"), .input = "read 100\n"});
  EXPECT_EQ(chat.Wait(), 0);
  const std::string errors = chat.Errors();
  EXPECT_TRUE(Contains(errors, "prefill 6400/6400 tokens, 1000/s\n")) << errors;
  EXPECT_FALSE(Contains(errors, "\r"));
  EXPECT_FALSE(Contains(errors, "\033"));
  size_t lines = 0;
  for (size_t at = 0; (at = errors.find("prefill", at)) != errors.npos; ++at) ++lines;
  EXPECT_LE(lines, 11u) << "at most one for ten per cent";
}

TEST(ChatProcessTest, ShowsABarOnATerminalAndColourOnlyWhereAllowed) {
  ServedProcess served({"FAKE_TOKEN_US=1000"});
  for (const bool colour : {true, false}) {
    Process chat({.arguments = ChatArguments(served, "a"),
                  .environment = {"TERM=xterm", colour ? "NO_COLOR=" : "NO_COLOR=1"},
                  .terminal = true});
    ASSERT_TRUE(chat.WaitForOutput("> ")) << chat.Output();
    chat.Type("read 50\n");
    ASSERT_TRUE(chat.WaitForOutput("turn ")) << chat.Output();
    EXPECT_TRUE(Contains(chat.Output(), "prefill [####")) << chat.Output();
    EXPECT_EQ(Contains(chat.Output(), "\033[2m"), colour);
    chat.Type("/quit\n");
    EXPECT_EQ(chat.Wait(), 0);
  }
}

TEST(ChatProcessTest, StopsAnAnswerWithCtrlCAndKeepsTheSession) {
  ServedProcess served({"FAKE_TOKEN_US=5000"});
  Process chat({.arguments = ChatArguments(served, "a", {"--max-tokens", "4000"}),
                .environment = {"TERM=xterm", "NO_COLOR=1"},
                .terminal = true});
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("count 4000\n");
  ASSERT_TRUE(chat.WaitForOutput("5 6 7 "));
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitForOutput("cut off and kept]")) << chat.Output();
  chat.Type("hello\n");
  ASSERT_TRUE(chat.WaitForOutput("you said: hello")) << chat.Output();
  ASSERT_TRUE(chat.WaitForOutput("turn 2]")) << chat.Output();
  chat.Type("\x03");  // at the prompt it only reminds
  ASSERT_TRUE(chat.WaitForOutput("/quit or Ctrl-D leaves"));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);

  Process again({.arguments = ChatArguments(served, "a"),
                 .environment = {"TERM=xterm", "NO_COLOR=1"},
                 .terminal = true});
  ASSERT_TRUE(again.WaitForOutput("> "));
  EXPECT_TRUE(Contains(again.Output(), "user: hello")) << again.Output();
  EXPECT_TRUE(Contains(again.Output(), "assistant: you said: hello")) << again.Output();
}

TEST(ChatProcessTest, EndsAtCtrlCWhereItWaitsForAProgramsLine) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a", {"--json"}), .terminal = true});
  ASSERT_TRUE(chat.WaitForOutput("opened")) << chat.Output();
  chat.Type("\x03");
  EXPECT_EQ(chat.Wait(), 130) << chat.Output();
}

TEST(ChatProcessTest, ShowsControlCharactersInsteadOfObeyingThem) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "a"),
                .environment = {"TERM=xterm", "NO_COLOR=1"},
                .terminal = true});
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("x\x16\x1b]0;owned\n");  // Ctrl-V, so that the terminal lets the escape through
  ASSERT_TRUE(chat.WaitForOutput("x\\x1b]0;owned")) << chat.Output();
}

TEST(ChatProcessTest, ALineTooLongToSendEndsWithAnErrorAndNotInSilence) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "harbour"),
                .input = "first\n" + std::string(3'000'000, 'a')});
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_TRUE(Contains(chat.Output(), "you said: first")) << chat.Output();
  EXPECT_TRUE(Contains(chat.Errors(), "longer than 1 MiB")) << chat.Errors();
}

TEST(ChatProcessTest, TextInAnotherEncodingIsRefusedAndTheTalkGoesOn) {
  ServedProcess served;
  Process chat({.arguments = ChatArguments(served, "harbour"), .input = "caf\xe9\nsecond\n"});
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_TRUE(Contains(chat.Output(), "you said: second")) << chat.Output();
  EXPECT_TRUE(Contains(chat.Errors(), "not UTF-8")) << chat.Errors();
  EXPECT_FALSE(Contains(chat.Errors(), "resumed")) << "the connection was kept: " << chat.Errors();
}

}  // namespace
}  // namespace mneme
