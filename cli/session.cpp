// mneme session: what sessions there are, what is in one, and removing one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/connect.h"
#include "cli/terminal.h"
#include "cli/turn_text.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
examples:
  mneme session ls
  mneme session show harbour --transcript
  mneme session rm harbour --yes
  mneme session ls --json | python3 -m json.tool --json-lines

Exits with 2 where rm has neither --yes nor a terminal to ask at, 3 where there is no such session,
4 where no server answers.)";

struct SessionCommand {
  ServerChoice choice;
  std::string name;
  bool transcript = false;
  bool yes = false;
};

// An estimate, and none where the session was made with another model or reader.
std::string DiskText(const v1::SessionSummary& session) {
  return session.other_identity() ? "not told" : Bytes(session.bytes().disk_bytes());
}

void PrintSummary(const v1::SessionSummary& session) {
  fmt::print("{:<24} {:>6} {:>12}  {:>10} {:>11}  {:<20}  {}\n", Printable(session.session()),
             Count(session.head().turn()), Count(session.head().position()),
             Bytes(session.bytes().host_bytes()), DiskText(session), Moment(session.last_used_us()),
             Printable(session.reader() +
                       (session.refused().empty() ? "" : ", refused: " + session.refused())));
}

int List(client::Client& client, const SessionCommand& command) {
  v1::ListRequest request;
  request.set_sessions_max(1000);
  bool first = true;
  for (;;) {
    const auto list = client.List(request);
    if (!list) return Complain("session ls", list.error(), command.choice.json);
    for (const v1::SessionSummary& session : list->sessions()) {
      if (command.choice.json) {
        fmt::print("{}\n", JsonLine(session));
        continue;
      }
      if (std::exchange(first, false)) {
        fmt::print("{:<24} {:>6} {:>12}  {:>10} {:>11}  {:<20}  {}\n", "SESSION", "TURNS", "TOKENS",
                   "HOST", "DISK (EST.)", "LAST USED", "READER");
      }
      PrintSummary(session);
    }
    if (!list->more() || list->sessions().empty()) break;
    request.set_after(list->sessions().rbegin()->session());
  }
  if (first && !command.choice.json)
    fmt::print(stderr, "no sessions yet; `mneme chat NAME` makes one\n");
  return kExitOk;
}

void PrintStats(const v1::StatsReply& stats) {
  for (const std::string& line : StatsLines(stats)) fmt::print("{}\n", line);
}

int ShowTranscript(client::Client& client, const SessionCommand& command) {
  v1::TranscriptRequest request;
  request.set_session(command.name);
  request.set_first_turn(1);
  for (;;) {
    const auto transcript = client.Transcript(request);
    if (!transcript) return Complain("session show", transcript.error(), command.choice.json);
    for (const v1::TranscriptTurn& turn : transcript->turns()) {
      if (command.choice.json) {
        fmt::print("{}\n", JsonLine(turn));
        continue;
      }
      fmt::print("\n--- turn {}, {}{}\n", turn.turn(), Moment(turn.wall_us()),
                 turn.truncated() ? ", cut off" : "");
      for (const std::string& line : TurnLines(turn)) fmt::print("{}\n", line);
    }
    if (!transcript->more() || transcript->turns().empty()) return kExitOk;
    request.set_first_turn(transcript->turns().rbegin()->turn() + 1);
  }
}

int Show(client::Client& client, const SessionCommand& command) {
  const auto stats = client.Stats(command.name);
  if (!stats) return Complain("session show", stats.error(), command.choice.json);
  if (command.choice.json) {
    fmt::print("{}\n", JsonLine(*stats));
  } else {
    PrintStats(*stats);
  }
  return command.transcript ? ShowTranscript(client, command) : kExitOk;
}

// What is removed is gone, so somebody has to say yes: at the terminal, or in the command line.
int RefuseToRemoveUnasked(const SessionCommand& command) {
  const Error error(
      ErrorCode::kInvalidArgument,
      fmt::format("session {}: not removed, because standard input is not a terminal and nobody "
                  "can be asked; add --yes to remove it for good",
                  command.name));
  Complain("session rm", error, command.choice.json);
  return kExitUsage;
}

int Remove(client::Client& client, const SessionCommand& command) {
  if (!command.yes) {
    fmt::print(stderr, "remove session {} for good? [y/N] ", Printable(command.name));
    LineReader lines;
    if (lines.Next().value_or("") != "y") {
      fmt::print(stderr, "kept\n");
      return kExitFailed;
    }
  }
  const auto deleted = client.Delete(command.name);
  if (!deleted) return Complain("session rm", deleted.error(), command.choice.json);
  if (command.choice.json) {
    fmt::print("{}\n", JsonLine(*deleted));
  } else {
    fmt::print("removed {}, {}\n", Printable(deleted->session()),
               CountOf(deleted->turns(), "turn"));
  }
  return kExitOk;
}

}  // namespace

int RunSession(int argc, char** argv) {
  CLI::App app("Lists, shows and removes sessions.", "mneme session");
  app.footer(kFooter);
  app.require_subcommand(1);
  SessionCommand command;
  command.choice.program = argv[0];
  CLI::App& list = *app.add_subcommand(
      "ls", "name, turns, tokens, bytes in memory and on disk (estimated), last use, reader");
  CLI::App& show =
      *app.add_subcommand("show", "reader, last use, state, size and counters of one session");
  CLI::App& remove = *app.add_subcommand("rm", "remove a session for good");
  show.add_option("name", command.name, "the session")->required();
  show.add_flag("--transcript", command.transcript, "also print every turn");
  remove.add_option("name", command.name, "the session")->required();
  remove.add_flag("--yes,-y", command.yes,
                  "do not ask; needed where standard input is not a terminal");
  for (CLI::App* subcommand : {&list, &show, &remove}) {
    subcommand->footer(kFooter);
    AddServerOptions(*subcommand, command.choice);
  }
  if (const int exit_code = ParseCommandLine(app, argc, argv); exit_code >= 0) return exit_code;
  if (remove.parsed() && !command.yes && !IsTerminal(0)) return RefuseToRemoveUnasked(command);
  const Connected connected = ConnectOrSay(command.choice);
  if (!connected.client) return connected.exit_code;
  if (list.parsed()) return List(*connected.client, command);
  if (show.parsed()) return Show(*connected.client, command);
  return Remove(*connected.client, command);
}

}  // namespace mneme::cli
