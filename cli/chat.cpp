// mneme chat: one session, talked to message by message.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "cli/answer_source.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "cli/terminal_input.h"
#include "cli/turn_text.h"
#include "engine/repetition_window.h"
#include "engine/request_check.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
While it answers, Ctrl-C stops it; what was said so far stays in the session. Lines that begin with
a slash are for the program: /explain, /stats, /help, /quit. A session is found again by its name,
also after the server was stopped or killed.

On a terminal Enter sends the message, Alt-Enter begins a new line of it, and a paste of many lines
is one message (the terminal must know bracketed paste; nearly all do). Arrow keys, Home, End and
the Ctrl keys of a shell edit it, arrow up brings earlier messages back, Ctrl-D leaves. In a pipe
each line is a message. A message has at most 1 MiB of UTF-8; blank ones are not sent.

examples:
  mneme chat harbour
  echo "where did I leave the key?" | mneme chat harbour
  mneme chat harbour --json < questions.txt     a JSON object for each event
  mneme chat story --temperature 0.8 --seed 7 --system "You tell short stories."

Exits with 1 where an answer failed, 3 where --no-create finds no such session, 4 where no server
answers.)";

constexpr char kHelp[] =
    R"(/explain   the sentence that the last answer came from, where its tokens lay
           (recent: right before the answer), and what each token of the answer read
/stats     counters and bytes of this session
/help      this list
/quit      leave; the session stays (also /exit)
Ctrl-C     stop an answer; what was said so far stays
Ctrl-D     leave
Alt-Enter  a new line of the message; pasted lines are one message
arrow up   an earlier message again

The line in brackets after an answer says what it took:
  restored N from disk in N ms      tokens whose memory was kept and read back, the slowest place
                                    it came from, and how long it took
  replayed N, fresh N               tokens computed again from the log, and for the first time
  pending N                         tokens that are logged and not computed yet
  N tokens/s, first after N ms      how fast the answer came, and how soon it began
  host N, disk N, index N, open N   bytes of this session: pages in memory, pages on disk, the
                                    index of its chunks, the open chunk
  turn N                            turns of this session so far
)";

struct ChatOptions {
  ServerChoice choice;
  std::string session;
  std::string system;
  bool no_create = false;
  bool thinking = false;
  uint32_t show_turns = 3;
  SamplingChoice sampling;
};

class Chat {
 public:
  explicit Chat(const ChatOptions& options) : options_(options), stop_(CatchInterrupts()) {}

  int Run();

 private:
  std::optional<std::string> Next();
  LineReader::End end() const { return typed_ ? typed_->end() : lines_.end(); }
  // False, with join_exit_code_ set, where the session cannot be talked to.
  bool Join();
  // Joins again where the connection was lost.
  bool Reach();
  void ShowLastTurns(const v1::Opened& opened);
  void Command(const std::string& line);
  void Say(const std::string& text);
  void NotAnswered(const std::string& text, const Error& error);
  // Whether `text`, that was on its way when the connection was lost, is in the log.
  std::string WhatBecameOf(const std::string& text, uint64_t turn_before, uint64_t turn_now);
  v1::Request RequestFor(const std::string& text) const;
  void OnEvent(const v1::Event& event);
  void ShowDone(const v1::Done& done);
  void Explain();
  // The sentence that the explained answer came from, where there is one.
  void ShowSource(const v1::Explanation& explanation);
  void ShowStats();
  // On standard error, and not where a program reads.
  void Note(const std::string& text) const;
  void Failed(const std::string& what, const Error& error);

  const ChatOptions options_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<client::Client> client_;
  ProgressLine progress_;
  LineReader lines_;
  std::optional<TerminalInput> typed_;  // where a terminal is read
  bool joined_ = false;
  bool joined_before_ = false;
  std::optional<std::string> unsure_;  // the last message, where nobody knows if it was logged
  uint64_t head_turn_ = 0;        // the last turn known of; 0: nothing said in this session yet
  bool showed_text_ = false;      // of the answer that is coming
  int join_exit_code_ = kExitOk;  // why the last Join failed; a later one may succeed
  int exit_code_ = kExitOk;       // of what was said and asked
};

void Chat::Note(const std::string& text) const {
  if (!options_.choice.json) fmt::print(stderr, "{}\n", Dim(text));
}

void Chat::Failed(const std::string& what, const Error& error) {
  progress_.Clear();
  exit_code_ = Complain(what, error, options_.choice.json);
}

std::optional<std::string> Chat::Next() {
  std::fflush(stdout);
  ForgetInterrupt();
  return typed_ ? typed_->Next() : lines_.Next();
}

int Chat::Run() {
  const bool json = options_.choice.json;
  const bool prompts = IsTerminal(0) && !json;
  if (IsTerminal(0)) typed_.emplace(!json && IsTerminal(1) ? 1 : (IsTerminal(2) ? 2 : -1), stop_);
  if (!Join()) return join_exit_code_;
  for (;;) {
    const std::optional<std::string> line = Next();
    if (!line) {
      if (end() == LineReader::End::kEndOfInput) break;
      if (end() == LineReader::End::kLineTooLong) {
        Failed("read", Error(Reason::kTooLarge,
                             typed_ ? "the message is longer than 1 MiB; nothing of it is sent"
                                    : "a line is longer than 1 MiB; the rest is not read"));
        if (typed_) continue;
        break;
      }
      if (!prompts) return kExitInterrupted;
      Note("/quit or Ctrl-D leaves");
      continue;
    }
    const std::string command = line->substr(0, line->find_last_not_of("\r\n") + 1);
    if (command == "/quit" || command == "/exit") break;
    if (line->find_first_not_of(" \t\r\n\v\f") == line->npos) continue;
    if (command == "/help") {
      std::fputs(kHelp, stderr);
      continue;
    }
    if (!Reach()) {
      if (!prompts) break;
      Note("not sent; arrow up brings the message back once a server answers");
    } else if (command.front() == '/' && command.find('\n') == command.npos) {
      Command(command);
    } else {
      Say(*line);
    }
    if (!client_->connected() && joined_) {
      if (prompts)
        Note("what the server acknowledged is kept; the next message connects again");
      else if (!Join())
        break;
    }
  }
  return join_exit_code_ != kExitOk ? join_exit_code_ : exit_code_;
}

bool Chat::Reach() {
  if (joined_ && client_->connected()) return true;
  if (joined_) Note("the connection to the server was lost; connecting again");
  return Join();
}

bool Chat::Join() {
  joined_ = false;
  Connected connected = ConnectOrSay(options_.choice);
  join_exit_code_ = connected.exit_code;
  if (!connected.client) return false;
  client_ = std::move(connected.client);
  v1::Request request;
  request.mutable_open()->set_session(options_.session);
  request.mutable_open()->set_create(!options_.no_create);
  const auto event =
      client_->Call(std::move(request), [this](const v1::Event& part) { OnEvent(part); });
  progress_.Clear();
  if (!event) {
    join_exit_code_ = Complain("chat " + options_.session, event.error(), options_.choice.json);
    return false;
  }
  const v1::Opened& opened = event->opened();
  const bool fresh = opened.head().turn() == 0;
  joined_ = true;
  if (!std::exchange(joined_before_, true) && !fresh && !options_.system.empty()) {
    // Also where a program reads: it asked for something that is not done.
    fmt::print(stderr, "{}\n",
               Dim(fmt::format("--system is not said: {} has {} already; a system message "
                               "begins a fresh session",
                               options_.session, CountOf(opened.head().turn(), "turn"))));
  }
  const uint64_t head_turn = std::exchange(head_turn_, opened.head().turn());
  const auto unsure = std::exchange(unsure_, std::nullopt);
  if (options_.choice.json) {
    fmt::print("{}\n", JsonLine(*event));
    std::fflush(stdout);
    return true;
  }
  ShowLastTurns(opened);
  if (opened.created()) {
    Note(fmt::format("{} is a fresh session; reader {}", options_.session, opened.reader()));
  } else {
    Note(fmt::format("{} resumed: {}, {}; {}; reader {}", options_.session,
                     CountOf(opened.head().turn(), "turn"),
                     CountOf(opened.head().position(), "token"), MemoryText(opened.memory()),
                     opened.reader()));
  }
  if (unsure) Note(WhatBecameOf(*unsure, head_turn, opened.head().turn()));
  if (const std::string note = ReaderNote(opened.reader()); !note.empty()) Note(note);
  if (IsTerminal(0)) Note("/help lists what else can be typed");
  return true;
}

std::string Chat::WhatBecameOf(const std::string& text, uint64_t turn_before, uint64_t turn_now) {
  if (turn_now <= turn_before) return "your last message is not in the log: send it again";
  v1::TranscriptRequest request;
  request.set_session(options_.session);
  request.set_first_turn(turn_before + 1);
  const auto transcript = client_->Transcript(request);
  if (transcript) {
    for (const v1::TranscriptTurn& turn : transcript->turns()) {
      for (const v1::TranscriptPart& part : turn.parts()) {
        if (!part.generated() && part.text().find(text) != std::string::npos)
          return fmt::format("your last message is in the log, as turn {}: do not send it again",
                             turn.turn());
      }
    }
  }
  return fmt::format(
      "turns up to {} were written meanwhile: look there for your last message "
      "before you send it again",
      turn_now);
}

void Chat::ShowLastTurns(const v1::Opened& opened) {
  if (opened.created() || options_.show_turns == 0 || !IsTerminal(0)) return;
  v1::TranscriptRequest request;
  request.set_session(options_.session);
  request.set_turns_max(options_.show_turns);
  const auto transcript = client_->Transcript(request);
  if (!transcript) return Failed("transcript", transcript.error());
  for (const v1::TranscriptTurn& turn : transcript->turns()) {
    for (const Spoken& one : SpokenIn(turn))
      fmt::print("{}: {}\n", Printable(one.role), Printable(Shortened(one.text)));
    fmt::print("\n");
  }
}

void Chat::Command(const std::string& line) {
  if (line == "/stats") {
    ShowStats();
  } else if (line == "/explain") {
    Explain();
  } else {
    // A slip of the pen; nothing that was to be done has failed.
    Complain(line, Error(ErrorCode::kInvalidArgument, "no such command; /help lists them"),
             options_.choice.json);
  }
}

v1::Request Chat::RequestFor(const std::string& text) const {
  v1::Request request;
  v1::GenerateRequest& generate = *request.mutable_generate();
  generate.set_session(options_.session);
  v1::Messages& messages = *generate.mutable_input()->mutable_messages();
  if (head_turn_ == 0 && !options_.system.empty()) {
    v1::Message& system = *messages.add_messages();
    system.set_role(v1::ROLE_SYSTEM);
    system.set_content(options_.system);
  }
  v1::Message& message = *messages.add_messages();
  message.set_role(v1::ROLE_USER);
  message.set_content(text);
  generate.set_max_tokens(options_.sampling.max_tokens);
  generate.set_on_disconnect(v1::ON_DISCONNECT_KEEP);
  generate.set_thinking(options_.thinking);
  generate.set_explain(true);
  v1::SamplingSettings& sampling = *generate.mutable_sampling();
  sampling.set_temperature(options_.sampling.temperature);
  sampling.set_top_k(options_.sampling.top_k);
  sampling.set_top_p(options_.sampling.top_p);
  sampling.set_min_p(options_.sampling.min_p);
  sampling.set_repetition_penalty(options_.sampling.repetition_penalty);
  sampling.set_repetition_window(options_.sampling.repetition_window);
  sampling.set_seed(options_.sampling.seed);
  // Names this message for good: sent again after a lost connection it could not be said twice.
  generate.set_idempotency_key(fmt::format("chat-{}-{}", getpid(), RealClock().WallUs()));
  return request;
}

void Chat::OnEvent(const v1::Event& event) {
  if (options_.choice.json) {
    fmt::print("{}\n", JsonLine(event));
    std::fflush(stdout);
    return;
  }
  if (event.has_progress()) {
    const v1::Progress& progress = event.progress();
    progress_.Show(progress.phase(), progress.tokens_done(), progress.tokens_total(),
                   progress.tokens_per_second());
  } else if (event.has_token()) {
    progress_.Clear();
    showed_text_ = true;
    fmt::print("{}", IsTerminal(1) ? Printable(event.token().text()) : event.token().text());
    std::fflush(stdout);
  }
}

void Chat::Say(const std::string& text) {
  showed_text_ = false;
  const auto event = client_->Call(
      RequestFor(text), [this](const v1::Event& part) { OnEvent(part); }, &stop_);
  progress_.Clear();
  if (!event) {
    if (showed_text_) fmt::print("\n");
    std::fflush(stdout);
    return NotAnswered(text, event.error());
  }
  head_turn_ = event->done().receipt().head().turn();
  if (options_.choice.json) return OnEvent(*event);
  fmt::print("\n");
  std::fflush(stdout);
  ShowDone(event->done());
}

void Chat::NotAnswered(const std::string& text, const Error& error) {
  if (error.reason() == Reason::kOutcomeUnknown) unsure_ = text;
  if (error.code() != ErrorCode::kCancelled) return Failed("chat " + options_.session, error);
  // As was asked for with Ctrl-C, before there was an answer to keep.
  if (options_.choice.json) {
    Complain("chat", error, /*json=*/true);
  } else {
    Note(fmt::format("stopped before the answer began; the message is not kept{}",
                     typed_ ? ", arrow up brings it back" : ""));
  }
}

void Chat::ShowDone(const v1::Done& done) {
  const auto stats = client_->Stats(options_.session);
  std::string line =
      fmt::format("[{} | {:.1f} tokens/s, first after {:.0f} ms", MemoryText(done.memory()),
                  done.tokens_per_second(), done.first_token_ms());
  if (stats) line += " | " + TierText(stats->bytes());
  line += fmt::format(" | turn {}", Count(done.receipt().head().turn()));
  if (done.truncated())
    line += ", cut off and kept";
  else if (done.stop_reason() != "stop")
    line += ", ended by " + Printable(done.stop_reason());
  Note(line + "]");
}

void Chat::Explain() {
  v1::ExplainRequest request;
  request.set_session(options_.session);
  auto explanation = client_->Explain(request);
  if (!explanation) return Failed("/explain", explanation.error());
  const bool answered = explanation->turn() > 0;
  if (!answered) explanation->set_none_because("nothing was answered in this session yet");
  if (options_.choice.json) {
    v1::Event event;
    event.set_final(true);
    *event.mutable_explanation() = *explanation;
    return OnEvent(event);
  }
  if (answered) ShowSource(*explanation);
  for (const std::string& line : ExplanationLines(*explanation)) fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Chat::ShowSource(const v1::Explanation& explanation) {
  if (const auto source = FindSource(*client_, options_.session, explanation); !source) {
    Failed("/explain", source.error());
  } else if (*source) {
    fmt::print("turn {} was read from {}\n", explanation.turn(), SourceText(**source));
  }
}

void Chat::ShowStats() {
  const auto stats = client_->Stats(options_.session);
  if (!stats) return Failed("/stats", stats.error());
  if (options_.choice.json) {
    v1::Event event;
    event.set_final(true);
    *event.mutable_stats() = *stats;
    return OnEvent(event);
  }
  for (const std::string& line : StatsLines(*stats)) fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int RunChat(int argc, char** argv) {
  CLI::App app("Talks in a session, which is resumed or made.", "mneme chat");
  app.footer(kFooter);
  ChatOptions options;
  options.choice.program = argv[0];
  app.add_option("name", options.session, "the session: visible characters without '/'")
      ->required();
  AddServerOptions(app, options.choice);
  app.add_flag("--no-create", options.no_create, "fail where there is no such session");
  app.add_option("--system", options.system, "system message of a fresh session");
  app.add_option("--show", options.show_turns, "turns shown when it is resumed [3]")
      ->check(CLI::Range(0, 1000));
  AddSamplingOptions(app, options.sampling);
  app.add_flag("--thinking", options.thinking,
               "let the model think before it answers; refused where it was trained without");
  if (const int exit_code = ParseCommandLine(app, argc, argv); exit_code >= 0) return exit_code;
  return Chat(options).Run();
}

}  // namespace mneme::cli
