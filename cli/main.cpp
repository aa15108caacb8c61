// mneme: finds the command in the table and runs it.
#include <boost/system/system_error.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/command.h"
#include "cli/standard_streams.h"

namespace mneme::cli {
namespace {

constexpr Command kCommands[] = {
    {"serve", "host a model and keep its sessions", RunServe},
    {"chat", "talk in a session, resumed or made", RunChat},
    {"session", "list, show and remove sessions", RunSession},
    {"run", "answer one prompt, without a server", RunRun},
    {"model", "what a model folder holds and needs", RunModel},
    {"bench", "how fast this machine runs a model's steps", RunBench},
    {"demo", "tell a server facts, kill it, and ask", RunDemo},
    {"eval", "what a model still knows of what it was told", RunEval},
};

constexpr std::string_view kVersion = "0.1.0";

void PrintHelp(std::FILE* out) {
  std::fputs(
      "mneme keeps a language model's memory of long conversations.\n\n"
      "usage: mneme COMMAND [OPTIONS]\n\ncommands:\n",
      out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10s%s\n", std::string(command.name).c_str(),
                 std::string(command.summary).c_str());
  }
  std::fputs(
      "\nstart here:\n"
      "  mneme serve --model checkpoints/demo --store /tmp/mneme\n"
      "  mneme chat harbour                 in another terminal\n"
      "  mneme session ls\n\n"
      "`mneme COMMAND --help` says more, with examples.\n",
      out);
}

int Main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    PrintHelp(stdout);
    return kExitOk;
  }
  if (name == "--version") {
    std::printf("mneme %s\n", std::string(kVersion).c_str());
    return kExitOk;
  }
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    argv[1] = argv[0];
    return command.run(argc - 1, argv + 1);
  }
  if (!name.empty()) std::fprintf(stderr, "mneme: there is no command `%s`\n\n", argv[1]);
  PrintHelp(stderr);
  return kExitUsage;
}

}  // namespace
}  // namespace mneme::cli

int main(int argc, char** argv) {
  using mneme::cli::kExitFailed;
  mneme::cli::OpenClosedStreams();
  try {
    return mneme::cli::EndOutput(mneme::cli::Main(argc, argv));
  } catch (const std::system_error& refused) {
    // A full disk or a closed pipe behind standard output, or no thread to be had.
    std::fprintf(stderr, "mneme: the system refuses: %s\n", refused.what());
  } catch (const boost::system::system_error& refused) {
    std::fprintf(stderr, "mneme: the system refuses: %s\n", refused.what());
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "mneme: bug: %s\n", exception.what());
  }
  return kExitFailed;
}
