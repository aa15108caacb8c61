#include "cli/connect.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/terminal.h"
#include "proto/error_wire.h"
#include "server/listener.h"

namespace mneme::cli {
namespace {

constexpr char kServerVariable[] = "MNEME_SERVER";

// The flag wins over the environment.
Result<client::ClientOptions> ServerOf(const ServerChoice& choice) {
  if (!choice.address.empty()) return client::ParseServerAddress(choice.address);
  const char* address = std::getenv(kServerVariable);
  auto options = client::ParseServerAddress(address == nullptr ? "" : address);
  if (!options)
    return Fail(Error(options.error()).Within(fmt::format("environment {}", kServerVariable)));
  return options;
}

// What a person at a terminal can do about an error; docs/errors.md says more.
std::string Remedy(const Error& error) {
  switch (error.reason()) {
    case Reason::kSessionBusy:
      return "another client is writing this session; wait until it is done";
    case Reason::kHeadMoved:
      return "somebody else wrote to the session; look at it again and repeat";
    case Reason::kContextLimit:
      return "the model takes no more tokens in this session; begin another one";
    case Reason::kDraining:
      return "the server is stopping; start it again and repeat";
    case Reason::kStoreFull:
      return "free space on the store's disk; reading goes on meanwhile";
    case Reason::kOutcomeUnknown:
      return "look at the session's last turn before repeating";
    case Reason::kIdentityMismatch:
      return "serve this session as it was made: the same model folder and the same --reader";
    default:
      break;
  }
  if (error.retry_after_ms() > 0) return "try again in a moment";
  return "";
}

}  // namespace

void AddServerOptions(CLI::App& app, ServerChoice& choice) {
  // MNEME_SERVER is read in ConnectOrSay: CLI11 would give it to every subcommand that was not
  // typed, and they share `choice`.
  app.add_option("--server", choice.address,
                 "address of the server [MNEME_SERVER, else 127.0.0.1:7411]")
      ->type_name("HOST:PORT");
  app.add_flag("--json", choice.json, "print one JSON object a line, for programs");
}

std::string ServeLine(const std::string& program, const client::ClientOptions& options) {
  const std::string model =
      std::filesystem::exists("checkpoints/demo/config.json") ? "checkpoints/demo" : "MODEL_FOLDER";
  std::string line = fmt::format("{} serve --model {} --store STORE_FOLDER", program, model);
  const client::ClientOptions usual;
  if (options.address != usual.address && options.address != "localhost")
    line += " --address " + options.address;
  if (options.port != usual.port) line += fmt::format(" --port {}", options.port);
  return line;
}

Connected ConnectOrSay(const ServerChoice& choice) {
  const auto options = ServerOf(choice);
  if (!options) {
    Complain("connect", options.error(), choice.json);
    return {nullptr, kExitUsage};
  }
  auto client = client::Client::Connect(*options);
  if (client) return {*std::move(client), kExitOk};
  Complain("connect", client.error(), choice.json);
  // `mneme serve` listens on its own machine alone.
  if (!server::LoopbackAddress(options->address)) {
    fmt::print(stderr,
               "\nNo server answers at {} port {}. Is the address right? A server of mneme is "
               "reached from its own machine alone, at 127.0.0.1 or ::1.\n\n",
               Printable(options->address), options->port);
    return {nullptr, kExitNoServer};
  }
  fmt::print(stderr,
             "\nNo server answers at {} port {}. Start one in another terminal:\n\n  {}\n\n",
             Printable(options->address), options->port, ServeLine(choice.program, *options));
  return {nullptr, kExitNoServer};
}

int Complain(const std::string& what, const Error& error, bool json) {
  if (json) {
    v1::Event event;
    event.set_final(true);
    *event.mutable_failed()->mutable_error() = proto::ToWire(error);
    fmt::print("{}\n", JsonLine(event));
    std::fflush(stdout);
  } else {
    const std::string kind(error.reason() == Reason::kNone ? NameOf(error.code())
                                                           : NameOf(error.reason()));
    fmt::print(stderr, "{}: {} ({})\n", what, Printable(error.message()), kind);
    if (const std::string remedy = Remedy(error); !remedy.empty())
      fmt::print(stderr, "  {}\n", remedy);
  }
  return error.code() == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
}

std::string JsonLine(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(message, &line, options).ok()) return "{}";
  return line;
}

}  // namespace mneme::cli
