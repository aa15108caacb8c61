// A program run by a test: its input, what it printed, signals, and how it ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mneme::support {

struct ProcessOptions {
  std::vector<std::string> arguments = {};    // the program first
  std::vector<std::string> environment = {};  // "NAME=value", added to the test's own
  std::string input = {};                     // on standard input, then its end
  bool terminal = false;                      // a pseudo-terminal instead; `input` is typed by Type
};

class Process {
 public:
  explicit Process(const ProcessOptions& options);
  // Kills what still runs.
  ~Process();
  Process(const Process&) = delete;

  // What it printed so far: standard output, standard error; on a terminal everything is in output.
  std::string Output();
  std::string Errors();
  // Until the output holds `text`.
  bool WaitForOutput(const std::string& text, int wait_ms = 10'000);
  void Type(const std::string& text);
  void Signal(int signal);
  // Whether the pseudo-terminal edits lines itself, as it did before the program.
  bool TerminalEdits() const;
  // Until it is stopped, as by Ctrl-Z.
  bool WaitUntilStopped(int wait_ms = 5'000);
  bool running();
  pid_t pid() const { return pid_; }
  // The exit code once it has ended, 128 + signal for a violent end, -1 while it runs after the
  // wait.
  int Wait(int wait_ms = 20'000);

 private:
  void ReadTerminal();

  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string folder_;
  std::string terminal_output_;
  int exit_code_ = -1;
};

// A port nobody listens on just now.
uint16_t FreePort();

// `mneme serve` with the service that echoes, and everything that talks to it.
class ServedProcess {
 public:
  explicit ServedProcess(const std::vector<std::string>& environment = {},
                         uint16_t port = FreePort());
  uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  Process& process() { return process_; }

 private:
  const uint16_t port_;
  Process process_;
};

}  // namespace mneme::support
