// The configuration of `mneme serve`: a file, the environment and flags, in rising precedence, for
// every row of settings.h alike, and where each value in force comes from.
//
//   file         protobuf text format
//   environment  MNEME_ and the path in capitals: MNEME_SCHEDULER_STEP_MS
//   flag         the path: scheduler.step_ms
//
// Errors:   kInvalidArgument  an unknown key or a value that does not fit, naming file and line,
//                             the variable or the flag
//           kPermissionDenied the address to listen on is not of this machine
//           kNotFound         the file is not there
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "proto/mneme/v1/config.pb.h"
#include "server/server.h"

namespace mneme::server {

struct ConfigSources {
  std::string file;                                        // empty: none
  std::vector<std::string> environment;                    // "NAME=value", others ignored
  std::vector<std::pair<std::string, std::string>> flags;  // path, value
};

struct ConfigValue {
  std::string path;    // scheduler.step_ms
  std::string value;   // as text
  std::string origin;  // default, file NAME:LINE, environment NAME, flag --PATH
};

struct Configuration {
  v1::ServerConfig config;          // with every default filled in
  std::vector<ConfigValue> values;  // of all Settings(), in their order
};

Result<Configuration> LoadConfiguration(const ConfigSources& sources);

// MNEME_SCHEDULER_STEP_MS for scheduler.step_ms.
std::string EnvironmentName(std::string_view path);

// What the server takes from the configuration.
ServerOptions ServerOptionsFrom(const v1::ServerConfig& config);

}  // namespace mneme::server
