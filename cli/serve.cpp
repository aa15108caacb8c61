// mneme serve: the configuration, the service, the server, until a signal says stop.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/line_stream.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/make_service.h"
#include "cli/standard_streams.h"
#include "server/config.h"
#include "server/server.h"
#include "server/settings.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
Every setting can stand in the file (protobuf text format), in the environment (MNEME_ and the path
in capitals, _ for the dot) and on the command line; the command line wins over the environment,
which wins over the file. Settings of bytes take KiB, MiB and GiB, but in the file they are plain
numbers of bytes. The default is in brackets; 0 or empty stands for it.

examples:
  mneme serve --model checkpoints/demo --store /tmp/mneme
  mneme serve --config serve.textproto --port 7500
  MNEME_MEMORY_HOST_BYTES_MAX=512MiB mneme serve --config serve.textproto --check-config
  mneme serve --config serve.textproto --check-config --json

SIGTERM, Ctrl-C or a closed terminal stops it without losing an answer; a second one stops it at
once. Exits with 2 for a bad configuration, 5 where another server holds the store, 6 where the port
is taken, 7 where a second signal cut the stop short.)";

// Shorter names for what is typed most.
const std::map<std::string, std::string>& ShortNames() {
  static const std::map<std::string, std::string> names = {
      {"model_dir", "--model"},        {"store_dir", "--store"},  {"reader", "--reader"},
      {"listen.address", "--address"}, {"listen.port", "--port"}, {"cpu.threads", "--threads"},
      {"log_level", "--log-level"}};
  return names;
}

struct ServeCommand {
  server::ConfigSources sources;
  bool check_config = false;
  bool json = false;
  StartOptions start;
};

std::string HelpOf(const server::Setting& setting) {
  return fmt::format("{} [{}]", server::WhatItDoes(setting),
                     setting.standard.empty() ? "none" : setting.standard);
}

// One flag for each row of the table.
void AddFlags(CLI::App& app, std::vector<std::string>& values) {
  const auto settings = server::Settings();
  values.resize(settings.size());
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string path(settings[i].path);
    const auto short_name = ShortNames().find(path);
    const bool has_short = short_name != ShortNames().end();
    std::string names = "--" + path;
    if (has_short && short_name->second != names)
      names = fmt::format("{},{}", short_name->second, names);
    app.add_option(names, values[i], HelpOf(settings[i]))
        ->type_name(std::string(settings[i].unit))
        ->group(has_short ? "Settings" : "More settings");
  }
}

int Complain(const Error& error, int exit_code) {
  Say(fmt::format("mneme serve: {}", error.message()));
  return exit_code;
}

void PrintConfiguration(const server::Configuration& configuration) {
  const auto settings = server::Settings();
  for (size_t i = 0; i < settings.size(); ++i) {
    const server::ConfigValue& value = configuration.values[i];
    const std::string quote = server::IsText(settings[i]) ? "\"" : "";
    const std::string assignment =
        fmt::format("{} = {}{}{}", value.path, quote, value.value, quote);
    fmt::print("{:<48}  # {}\n", assignment, value.origin);
  }
}

// {"listen.port": {"value": 7411, "origin": "default"}, ...}
void PrintConfigurationJson(const server::Configuration& configuration) {
  const auto settings = server::Settings();
  boost::json::object reply;
  for (size_t i = 0; i < settings.size(); ++i) {
    const server::ConfigValue& value = configuration.values[i];
    reply[value.path] = {{"value", server::IsText(settings[i]) ? boost::json::value(value.value)
                                                               : boost::json::parse(value.value)},
                         {"origin", value.origin}};
  }
  fmt::print("{}\n", boost::json::serialize(reply));
}

LogLevel LevelNamed(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

int ExitCodeOf(const Error& error) {
  // A store folder in use is the one conflict there can be before the first session.
  if (error.code() == ErrorCode::kConflict && error.reason() == Reason::kNone)
    return kExitStoreInUse;
  return error.code() == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
}

int Serve(const v1::ServerConfig& config, const StartOptions& start) {
  IgnoreWriteSignals();
  SetLogLevel(LevelNamed(config.log_level()));
  const server::ServerOptions options = server::ServerOptionsFrom(config);
  if (const Status can = server::Server::CheckCanListen(options); !can)
    return Complain(can.error(), kExitCannotListen);
  auto service = MakeService(config, start);
  if (!service) return Complain(service.error(), ExitCodeOf(service.error()));
  auto server = server::Server::Make(options, **service);
  if (!server) return Complain(server.error(), kExitCannotListen);
  const std::string where =
      fmt::format("listening on {} port {}\n", options.address, (*server)->port());
  // Past the buffer: whether anybody reads it is no matter of how the server ends.
  LineStream(STDOUT_FILENO).Write(where);
  MNEME_LOG(kInfo, "serving", "port={} connections_max={}", (*server)->port(),
            (*server)->connections_max());
  const server::DrainEnd end = (*server)->RunUntilSignal();
  server->reset();   // connections first, so that the service sees every client gone
  service->reset();  // ends the step, writes what is to be kept
  return end == server::DrainEnd::kCutShort ? kExitCutShort : kExitOk;
}

}  // namespace

int RunServe(int argc, char** argv) {
  CLI::App app("Hosts a model and keeps its sessions, on this machine only.", "mneme serve");
  app.footer(kFooter);
  ServeCommand command;
  app.add_option("--config", command.sources.file, "configuration file, protobuf text format")
      ->type_name("FILE");
  app.add_flag("--check-config", command.check_config,
               "print every setting in force and where it comes from, and exit");
  app.add_flag("--json", command.json, "with --check-config: one JSON object instead of text")
      ->needs("--check-config");
  app.add_flag("--accept-loss", command.start.accept_loss,
               "serve what is left where acknowledged turns are missing or the log is damaged; "
               "what was lost stays lost");
  std::vector<std::string> values;
  AddFlags(app, values);
  if (const int exit_code = ParseCommandLine(app, argc, argv); exit_code >= 0) return exit_code;
  const auto settings = server::Settings();
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string path(settings[i].path);
    if (app.count("--" + path) > 0) command.sources.flags.emplace_back(path, values[i]);
  }
  for (char** entry = environ; *entry != nullptr; ++entry)
    command.sources.environment.emplace_back(*entry);
  const auto configuration = server::LoadConfiguration(command.sources);
  if (!configuration) {
    const bool address = configuration.error().code() == ErrorCode::kPermissionDenied;
    const int exit_code = address ? kExitCannotListen : kExitUsage;
    if (!command.json) return Complain(configuration.error(), exit_code);
    Complain("serve", configuration.error(), /*json=*/true);
    return exit_code;
  }
  if (command.check_config) {
    (command.json ? PrintConfigurationJson : PrintConfiguration)(*configuration);
    return kExitOk;
  }
  const v1::ServerConfig& config = configuration->config;
  if (config.model_dir().empty() || config.store_dir().empty()) {
    const auto value = [](const std::string& given, const char* example) {
      return given.empty() ? example : given;
    };
    const std::string missing = config.model_dir().empty()
                                    ? (config.store_dir().empty() ? "model and store" : "model")
                                    : "store";
    return Complain(Error(ErrorCode::kInvalidArgument,
                          fmt::format("which {}? as in: mneme serve --model {} --store {}", missing,
                                      value(config.model_dir(), "checkpoints/demo"),
                                      value(config.store_dir(), "/tmp/mneme"))),
                    kExitUsage);
  }
  return Serve(config, command.start);
}

}  // namespace mneme::cli
