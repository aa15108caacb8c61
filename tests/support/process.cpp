#include "tests/support/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"

namespace mneme::support {
namespace {

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

[[noreturn]] void Execute(const ProcessOptions& options) {
  for (const std::string& entry : options.environment) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

void Redirect(const std::string& path, int flags, int number) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, number) < 0) _exit(126);
  close(file);
}

}  // namespace

Process::Process(const ProcessOptions& options) {
  std::string folder = (std::filesystem::temp_directory_path() / "mneme_process_XXXXXX").string();
  MNEME_CHECK(mkdtemp(folder.data()) != nullptr, "{}", folder);
  folder_ = folder;
  std::ofstream(folder_ + "/in", std::ios::binary) << options.input;
  if (options.terminal) {
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) Execute(options);
  } else {
    pid_ = fork();
    if (pid_ == 0) {
      Redirect(folder_ + "/in", O_RDONLY, 0);
      Redirect(folder_ + "/out", O_WRONLY | O_CREAT | O_TRUNC, 1);
      Redirect(folder_ + "/err", O_WRONLY | O_CREAT | O_TRUNC, 2);
      Execute(options);
    }
  }
  MNEME_CHECK(pid_ > 0, "fork failed");
}

Process::~Process() {
  if (running()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (terminal_ >= 0) close(terminal_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Process::ReadTerminal() {
  for (;;) {
    pollfd waiting{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 0) <= 0) return;
    std::array<char, 4096> bytes{};
    const ssize_t count = read(terminal_, bytes.data(), bytes.size());
    if (count <= 0) return;
    terminal_output_.append(bytes.data(), static_cast<size_t>(count));
  }
}

std::string Process::Output() {
  if (terminal_ < 0) return ReadAll(folder_ + "/out");
  ReadTerminal();
  return terminal_output_;
}

std::string Process::Errors() { return terminal_ < 0 ? ReadAll(folder_ + "/err") : ""; }

bool Process::WaitForOutput(const std::string& text, int wait_ms) {
  for (int waited_ms = 0; waited_ms <= wait_ms; waited_ms += 5) {
    if (Output().find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void Process::Type(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    ReadTerminal();  // a full terminal would hold it up
    pollfd room{.fd = terminal_, .events = POLLOUT, .revents = 0};
    poll(&room, 1, /*timeout=*/5);
    if ((room.revents & POLLOUT) == 0) continue;
    const ssize_t count =
        write(terminal_, text.data() + done, std::min<size_t>(1024, text.size() - done));
    MNEME_CHECK(count > 0, "typing failed");
    done += static_cast<size_t>(count);
  }
}

void Process::Signal(int signal) { kill(pid_, signal); }

bool Process::TerminalEdits() const {
  termios mode{};
  MNEME_CHECK(tcgetattr(terminal_, &mode) == 0, "no terminal");
  return (mode.c_lflag & ICANON) != 0 && (mode.c_lflag & ECHO) != 0;
}

bool Process::WaitUntilStopped(int wait_ms) {
  for (int waited_ms = 0; waited_ms <= wait_ms; waited_ms += 5) {
    const std::string status = ReadAll("/proc/" + std::to_string(pid_) + "/stat");
    // After the name in parentheses comes the state.
    if (status.find(") T ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

bool Process::running() {
  if (exit_code_ >= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

int Process::Wait(int wait_ms) {
  for (int waited_ms = 0; running() && waited_ms <= wait_ms; waited_ms += 5) {
    if (terminal_ >= 0) ReadTerminal();  // a full terminal would hold it up
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return exit_code_;
}

uint16_t FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  MNEME_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) == 0, "bind failed");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  close(listener);
  return ntohs(address.sin_port);
}

ServedProcess::ServedProcess(const std::vector<std::string>& environment, uint16_t port)
    : port_(port),
      process_({.arguments = {MNEME_ON_FAKE, "serve", "--model", "echo", "--store", "nowhere",
                              "--port", std::to_string(port_)},
                .environment = environment,
                .input = "",
                .terminal = false}) {
  MNEME_CHECK(process_.WaitForOutput("listening on"), "{}", process_.Errors());
}

}  // namespace mneme::support
