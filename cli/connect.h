// Finding the server, for the commands that talk to one.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "client/client.h"

namespace mneme::cli {

struct ServerChoice {
  std::string address;  // HOST:PORT; empty: MNEME_SERVER, else 127.0.0.1:7411
  bool json = false;
  std::string program = "mneme";  // as it was typed
};

void AddServerOptions(CLI::App& app, ServerChoice& choice);

// The client, or what to exit with after saying why: where nobody listens, the line to type.
struct Connected {
  std::unique_ptr<client::Client> client;
  int exit_code = kExitOk;
};
Connected ConnectOrSay(const ServerChoice& choice);

// The `mneme serve` line that would answer at `options`.
std::string ServeLine(const std::string& program, const client::ClientOptions& options);

// Says on standard error (or as a JSON line on standard output) why something failed and what to
// do about it, and answers what to exit with.
int Complain(const std::string& what, const Error& error, bool json);

// `message` as one line of JSON with the field names of the .proto files; 64-bit numbers are
// strings, as everywhere in protobuf's JSON.
std::string JsonLine(const google::protobuf::Message& message);

}  // namespace mneme::cli
