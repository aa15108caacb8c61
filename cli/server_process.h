// ServerProcess is a `mneme serve` of its own, started from this very binary on a free port: the
// demo runs it, kills it and starts it again.
//
// Owns:     the process; it is killed when this goes.
// Threads:  one at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/client.h"

namespace mneme::cli {

class ServerProcess {
 public:
  // `flags` are those of `mneme serve` but for the port. Its log goes to `log_file`.
  static Result<std::unique_ptr<ServerProcess>> Start(const std::vector<std::string>& flags,
                                                      const std::string& log_file);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // A client of it, once it answers that it is ready. kUnavailable when it ended or took too long.
  Result<std::unique_ptr<client::Client>> Connect();

  // kill -9: no handler runs, nothing is flushed.
  void Kill();
  // SIGTERM, and waits for its exit status.
  int Stop();

 private:
  ServerProcess(pid_t process, uint16_t port, std::string log_file)
      : process_(process), port_(port), log_file_(std::move(log_file)) {}
  int Signal(int signal);

  pid_t process_;
  const uint16_t port_;
  const std::string log_file_;
};

}  // namespace mneme::cli
