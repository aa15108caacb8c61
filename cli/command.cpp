#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace mneme::cli {

int ParseCommandLine(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitOk;
  } catch (const CLI::CallForAllHelp&) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\nTry `%s --help`.\n", app.get_name().c_str(), error.what(),
                 app.get_name().c_str());
    return kExitUsage;
  }
  return -1;
}

}  // namespace mneme::cli
