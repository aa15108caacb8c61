#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

namespace mneme::cli {

namespace {

// What is wrong where none of the app's subcommands was typed.
std::optional<std::string> WithoutSubcommand(const CLI::App& app) {
  std::string there_are;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    there_are += (there_are.empty() ? "" : ", ") + one->get_name();
  if (there_are.empty() || !app.get_subcommands().empty()) return std::nullopt;
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with("-")) return "there is no command `" + word + "`; there are " + there_are;
  }
  return "which command? there are " + there_are;
}

void AddVersionFlag(CLI::App& app) {
  app.set_version_flag("--version", "mneme " + std::string(kVersion), "print the version and exit");
  for (CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    AddVersionFlag(*one);
}

}  // namespace

int ParseCommandLine(CLI::App& app, int argc, char** argv) {
  AddVersionFlag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitOk;
  } catch (const CLI::CallForAllHelp&) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
    return kExitOk;
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
    return kExitOk;
  } catch (const CLI::RequiredError& error) {
    return RefuseUsage(app, WithoutSubcommand(app).value_or(error.what()));
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
