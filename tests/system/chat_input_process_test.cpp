// What is typed and pasted into the real `mneme chat` on a pseudo-terminal against the transcript
// that the server then holds.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "client/client.h"
#include "tests/support/process.h"

namespace mneme {
namespace {

using support::Process;
using support::ProcessOptions;
using support::ServedProcess;

// In which a client learns that its server has gone: else what it sends next may have arrived.
constexpr std::chrono::milliseconds kNoticed{500};

ProcessOptions OnTerminal(const ServedProcess& served, const std::string& session) {
  return {.arguments = {MNEME_ON_FAKE, "chat", session, "--server", served.address()},
          .environment = {"TERM=xterm", "NO_COLOR=1"},
          .terminal = true};
}

std::string Paste(const std::string& text) { return "\033[200~" + text + "\033[201~"; }

// What was said to the session, one string a turn.
std::vector<std::string> Prompts(const ServedProcess& served, const std::string& session) {
  auto client = client::Client::Connect({.port = served.port()});
  if (!client) return {client.error().message()};
  v1::TranscriptRequest request;
  request.set_session(session);
  const auto transcript = (*client)->Transcript(request);
  if (!transcript) return {transcript.error().message()};
  std::vector<std::string> prompts;
  for (const v1::TranscriptTurn& turn : transcript->turns())
    prompts.push_back(turn.parts(0).text());
  return prompts;
}

TEST(ChatInputProcessTest, ALineOf40KilobytesArrivesWhole) {
  ServedProcess served;
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  std::string line;
  for (char letter = 'a'; line.size() < 40'000; letter = letter == 'z' ? 'a' : letter + 1)
    line += std::string(1999, letter) + " ";  // few words: each is a token of the answer
  chat.Type(line + "\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 1]"));
  EXPECT_EQ(Prompts(served, "a"), std::vector<std::string>{line});
}

TEST(ChatInputProcessTest, APasteOf200LinesIsOneMessage) {
  ServedProcess served;
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("\033[?2004h"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  std::string lines;
  std::string as_sent;  // a terminal sends line breaks as CR
  for (int i = 0; i < 200; ++i) {
    const std::string line =
        "  line " + std::to_string(i) + "\tof caf\u00e9" + std::string(60, '.');
    lines += line + "\n";
    as_sent += line + "\r";
  }
  chat.Type(Paste(as_sent));
  chat.Type("\r");
  ASSERT_TRUE(chat.WaitForOutput("| turn 1"));
  EXPECT_EQ(Prompts(served, "a"), std::vector<std::string>{lines});
  EXPECT_NE(chat.Output().find("(200 lines, "), std::string::npos);
}

TEST(ChatInputProcessTest, WhatIsPastedDuringAnAnswerWaitsAndArrivesWhole) {
  ServedProcess served({"FAKE_TOKEN_US=20000"});
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("count 20\r");
  ASSERT_TRUE(chat.WaitForOutput("1 2 3 "));
  const std::string line(10'000, 'x');
  chat.Type(line + "\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 2]"));
  EXPECT_EQ(Prompts(served, "a"), (std::vector<std::string>{"count 20", line}));
}

TEST(ChatInputProcessTest, ArrowKeysEditAndBlankMessagesAreNotSent) {
  ServedProcess served;
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("  \r\r" + Paste("\r \r") + "\rhllo\033[D\033[D\033[De\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 1]"));
  chat.Type("\033[A!\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 2]"));
  EXPECT_EQ(Prompts(served, "a"), (std::vector<std::string>{"hello", "hello!"}));
}

TEST(ChatInputProcessTest, TextThatIsNotUtf8IsRefusedInOneLine) {
  ServedProcess served;
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("caf\xe9\rsecond\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 1]"));
  EXPECT_NE(chat.Output().find("content: byte 4 is not UTF-8"), std::string::npos) << chat.Output();
  EXPECT_EQ(chat.Output().find("libprotobuf"), std::string::npos) << chat.Output();
  EXPECT_EQ(Prompts(served, "a"), std::vector<std::string>{"second"});
}

TEST(ChatInputProcessTest, ALongPasteIsShownByItsBeginningWhenTheSessionIsResumed) {
  ServedProcess served;
  const auto resume = [&] {
    auto chat = std::make_unique<Process>(OnTerminal(served, "a"));
    EXPECT_TRUE(chat->WaitForOutput("> ")) << chat->Output();
    return chat;
  };
  std::string lines;
  for (int i = 0; i < 572; ++i) lines += std::string(51, 'x') + "\r";
  const auto first = resume();
  first->Type(Paste("begins here\r" + lines + "ends here") + "\r");
  ASSERT_TRUE(first->WaitForOutput("turn 1, ended by max_tokens]"));
  const auto again = resume();
  EXPECT_NE(again->Output().find("user: begins here"), std::string::npos) << again->Output();
  EXPECT_NE(again->Output().find("(574 lines, 29,765 bytes)"), std::string::npos)
      << again->Output();
  EXPECT_LT(again->Output().size(), 3000u);
}

TEST(ChatInputProcessTest, CtrlCWhileTheMessageIsReadIsNoFailure) {
  ServedProcess served({"FAKE_TOKEN_US=20000"});
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("read 500\r");
  ASSERT_TRUE(chat.WaitForOutput("prefill")) << chat.Output();
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitForOutput("stopped before the answer began; the message is not kept"))
      << chat.Output();
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
  EXPECT_EQ(Prompts(served, "a"), std::vector<std::string>{});
}

TEST(ChatInputProcessTest, SaysAfterADeathWhetherTheMessageIsInTheLog) {
  for (const std::string& logged : {std::string(), std::string("read 500"), std::string("else")}) {
    auto served = std::make_unique<ServedProcess>(std::vector<std::string>{"FAKE_TOKEN_US=20000"});
    const uint16_t port = served->port();
    Process chat(OnTerminal(*served, "a"));
    ASSERT_TRUE(chat.WaitForOutput("> "));
    chat.Type("read 500\r");
    ASSERT_TRUE(chat.WaitForOutput("prefill")) << chat.Output();
    served.reset();
    ASSERT_TRUE(chat.WaitForOutput("the next message connects again")) << chat.Output();
    // The service that echoes forgets with its process; what was in the log is told it again.
    ServedProcess again({}, port);
    if (!logged.empty()) {
      Process writer({.arguments = {MNEME_ON_FAKE, "chat", "a", "--server", again.address()},
                      .input = logged + "\n"});
      EXPECT_EQ(writer.Wait(), 0) << writer.Errors();
    }
    chat.Type("hello\r");
    EXPECT_TRUE(chat.WaitForOutput(
        logged.empty() ? "your last message is not in the log: send it again"
        : logged == "else"
            ? "turns up to 1 were written meanwhile: look there for your last message"
            : "your last message is in the log, as turn 1: do not send it again"))
        << chat.Output();
  }
}

TEST(ChatInputProcessTest, GoesOnWithAServerThatWasStartedAgain) {
  auto served = std::make_unique<ServedProcess>();
  const uint16_t port = served->port();
  Process chat(OnTerminal(*served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  served.reset();  // kill -9
  std::this_thread::sleep_for(kNoticed);
  chat.Type("hello\r");
  ASSERT_TRUE(chat.WaitForOutput("not sent; arrow up")) << chat.Output();
  EXPECT_NE(chat.Output().find("connection to the server was lost"), std::string::npos);
  EXPECT_NE(chat.Output().find(" serve --model "), std::string::npos) << chat.Output();
  ServedProcess again({}, port);
  chat.Type("\033[A\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 1]")) << chat.Output();
  EXPECT_EQ(Prompts(again, "a"), std::vector<std::string>{"hello"});
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0) << "what was asked was answered in the end";
}

TEST(ChatInputProcessTest, LeavesWithTheCodeOfNoServerWhereNoneCameBack) {
  auto served = std::make_unique<ServedProcess>();
  Process chat(OnTerminal(*served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  served.reset();
  std::this_thread::sleep_for(kNoticed);
  chat.Type("hello\r");
  ASSERT_TRUE(chat.WaitForOutput("not sent; arrow up")) << chat.Output();
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 4);
}

TEST(ChatInputProcessTest, APasteDuringAnAnswerIsOneMessage) {
  ServedProcess served({"FAKE_TOKEN_US=20000"});
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("count 20\r");
  ASSERT_TRUE(chat.WaitForOutput("1 2 3 "));
  chat.Type(Paste("one\rtwo\rthree") + "\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 2]")) << chat.Output();
  EXPECT_EQ(Prompts(served, "a"), (std::vector<std::string>{"count 20", "one\ntwo\nthree"}));
  EXPECT_NE(chat.Output().find("19 20 "), std::string::npos) << "the answer is not cut into";
}

TEST(ChatInputProcessTest, GivesTheTerminalBackWhileItIsStopped) {
  ServedProcess served({"FAKE_TOKEN_US=20000"});
  Process chat(OnTerminal(served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  EXPECT_FALSE(chat.TerminalEdits());
  chat.Type("hel\x1a");  // Ctrl-Z at the prompt
  ASSERT_TRUE(chat.WaitUntilStopped());
  EXPECT_TRUE(chat.TerminalEdits());
  EXPECT_TRUE(chat.Output().ends_with("\033[?2004l")) << chat.Output();
  chat.Signal(SIGCONT);
  chat.Type("lo\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 1]")) << chat.Output();
  EXPECT_FALSE(chat.TerminalEdits());
  chat.Type("count 50\r");
  ASSERT_TRUE(chat.WaitForOutput("1 2 3 "));
  chat.Type("typed ahead\x1a");  // and during an answer
  ASSERT_TRUE(chat.WaitUntilStopped());
  EXPECT_TRUE(chat.TerminalEdits());
  chat.Signal(SIGCONT);
  ASSERT_TRUE(chat.WaitForOutput("turn 2]")) << chat.Output();
  EXPECT_NE(chat.Output().find("49 50 "), std::string::npos);
  chat.Type("\r");
  ASSERT_TRUE(chat.WaitForOutput("turn 3]")) << chat.Output();
  EXPECT_EQ(Prompts(served, "a"), (std::vector<std::string>{"hello", "count 50", "typed ahead"}));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
  EXPECT_TRUE(chat.TerminalEdits());
}

TEST(ChatInputProcessTest, GivesTheTerminalBackWhenItIsEnded) {
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
    for (const bool answering : {false, true}) {
      ServedProcess served({"FAKE_TOKEN_US=20000"});
      Process chat(OnTerminal(served, "a"));
      ASSERT_TRUE(chat.WaitForOutput("> "));
      if (answering) {
        chat.Type("count 200\r");
        ASSERT_TRUE(chat.WaitForOutput("1 2 3 "));
      }
      chat.Signal(signal);
      EXPECT_EQ(chat.Wait(), 128 + signal);
      EXPECT_TRUE(chat.TerminalEdits()) << signal;
      EXPECT_NE(chat.Output().find("\033[?2004l"), std::string::npos) << signal;
    }
  }
}

TEST(ChatInputProcessTest, PrintsObjectsOnATerminalToo) {
  ServedProcess served;
  ProcessOptions options = OnTerminal(served, "a");
  options.arguments.push_back("--json");
  Process chat(options);
  ASSERT_TRUE(chat.WaitForOutput("\"opened\""));
  chat.Type("hello\r");
  ASSERT_TRUE(chat.WaitForOutput("\"done\"")) << chat.Output();
  chat.Type(Paste("two\rlines") + "\r");
  ASSERT_TRUE(chat.WaitForOutput("you said: two lines")) << chat.Output();
  EXPECT_EQ(Prompts(served, "a"), (std::vector<std::string>{"hello", "two\nlines"}));
  EXPECT_EQ(chat.Output().find("[restored"), std::string::npos) << chat.Output();
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
  EXPECT_TRUE(chat.TerminalEdits());
}

TEST(ChatInputProcessTest, SaysHowToGoOnWhenTheServerDiesDuringAnAnswer) {
  auto served = std::make_unique<ServedProcess>(std::vector<std::string>{"FAKE_TOKEN_US=20000"});
  Process chat(OnTerminal(*served, "a"));
  ASSERT_TRUE(chat.WaitForOutput("> "));
  chat.Type("count 200\r");
  ASSERT_TRUE(chat.WaitForOutput("1 2 3 "));
  served.reset();
  ASSERT_TRUE(chat.WaitForOutput("the next message connects again")) << chat.Output();
  EXPECT_NE(chat.Output().find("connection to the server lost"), std::string::npos);
  EXPECT_EQ(chat.Output().find("End of file"), std::string::npos) << chat.Output();
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_NE(chat.Output().find("\033[?2004l"), std::string::npos) << "the paste mode is given back";
}

}  // namespace
}  // namespace mneme
