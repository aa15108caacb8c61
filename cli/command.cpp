#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

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
    return RefuseUsage(app, error.what());
  }
  return -1;
}

int RefuseUsage(const CLI::App& app, std::string_view what) {
  std::fprintf(stderr, "%s: %s\nTry `%s --help`.\n", app.get_name().c_str(),
               std::string(what).c_str(), app.get_name().c_str());
  return kExitUsage;
}

}  // namespace mneme::cli
