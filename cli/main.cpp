// mneme: finds the command in the table and runs it.
#include <sys/resource.h>

#include <boost/system/system_error.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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
      "`mneme COMMAND --help` or `mneme help COMMAND` says more, with examples;\n"
      "`mneme --version` which one this is.\n",
      out);
}

// `mneme help COMMAND ...` is `mneme COMMAND ... --help`.
std::vector<char*> WordsOf(int argc, char** argv) {
  static char help[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc < 3 || std::string_view(argv[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.push_back(help);
  return words;
}

int Main(std::vector<char*> words) {
  const std::string_view name = words.size() > 1 ? words[1] : "";
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
    words.erase(words.begin() + 1);
    return command.run(static_cast<int>(words.size()), words.data());
  }
  if (!name.empty()) std::fprintf(stderr, "mneme: there is no command `%s`\n\n", words[1]);
  PrintHelp(stderr);
  return kExitUsage;
}

int Run(int argc, char** argv) {
  try {
    return EndOutput(Main(WordsOf(argc, argv)));
  } catch (const std::system_error& refused) {
    // A full disk or a closed pipe behind standard output, or no thread to be had.
    std::fprintf(stderr, "mneme: the system refuses: %s\n", refused.what());
  } catch (const boost::system::system_error& refused) {
    std::fprintf(stderr, "mneme: the system refuses: %s\n", refused.what());
  } catch (const std::bad_alloc&) {
    std::fputs(
        "mneme: the system refuses memory: free some, or raise the limit of the process (ulimit "
        "-v)\n",
        stderr);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "mneme: bug: %s\n", exception.what());
  }
  return kExitFailed;
}

bool AddressSpaceIsLimited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace
}  // namespace mneme::cli

int main(int argc, char** argv) {
  mneme::cli::OpenClosedStreams();
  const int exit_code = mneme::cli::Run(argc, argv);
  // The matrix library starts threads before main, which ask for ever for memory that a limit keeps
  // from them; an ordinary exit waits for these threads.
  if (mneme::cli::AddressSpaceIsLimited()) std::_Exit(exit_code);
  return exit_code;
}
