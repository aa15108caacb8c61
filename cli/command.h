// A command of `mneme`, and how each ends. main.cpp holds the table.
#pragma once

#include <string_view>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace mneme::cli {

// What `mneme` exits with; docs/errors.md explains them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;      // the thing asked for was not done; the message says why
inline constexpr int kExitUsage = 2;       // the command line or the configuration cannot be used
inline constexpr int kExitNotFound = 3;    // there is no session or file of that name
inline constexpr int kExitNoServer = 4;    // no server answers at the address
inline constexpr int kExitStoreInUse = 5;  // another server holds the store folder
inline constexpr int kExitCannotListen = 6;  // the address or port cannot be bound
inline constexpr int kExitCutShort = 7;      // a second signal cut the drain short
inline constexpr int kExitInterrupted = 130;

inline constexpr std::string_view kVersion = "0.1.0";

struct Command {
  std::string_view name;
  std::string_view summary;
  // `argv[0]` is the program, as it was typed; the command's own arguments follow.
  int (*run)(int argc, char** argv);
};

int RunServe(int argc, char** argv);
int RunChat(int argc, char** argv);
int RunSession(int argc, char** argv);
int RunRun(int argc, char** argv);
int RunModel(int argc, char** argv);
int RunBench(int argc, char** argv);
int RunDemo(int argc, char** argv);
int RunEval(int argc, char** argv);

// Parses the command line into what `app` was given, besides --help and --version, which every
// command and subcommand has. Answers -1 to go on, else what to exit with: one of these was
// printed, or a complaint.
int ParseCommandLine(CLI::App& app, int argc, char** argv);

// Says what is wrong with the command line and where help is; answers kExitUsage.
int RefuseUsage(const CLI::App& app, std::string_view what);

}  // namespace mneme::cli
