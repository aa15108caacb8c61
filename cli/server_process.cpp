#include "cli/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/file_error.h"

namespace mneme::cli {
namespace {

constexpr int kReadySecondsMax = 120;

// A port of the loopback interface that nobody listens on just now; 0 where there is none.
uint16_t FreePort() {
  const int socket_file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = socket_file >= 0 && bind(socket_file, generic, length) == 0 &&
                     getsockname(socket_file, generic, &length) == 0;
  if (socket_file >= 0) close(socket_file);
  return bound ? ntohs(address.sin_port) : uint16_t{0};
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(const std::vector<std::string>& flags,
                                                            const std::string& log_file) {
  const uint16_t port = FreePort();
  if (port == 0) return Fail(ErrorCode::kUnavailable, "no free port on the loopback interface");
  std::vector<std::string> words = {"mneme", "serve", "--port", std::to_string(port)};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0)
    return Fail(ErrorCode::kUnavailable, "log {}", FileErrorText(log_file, "written", errno));
  const pid_t process = fork();
  if (process == 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(log);
  if (process < 0) return Fail(ErrorCode::kResourceExhausted, "no process could be made");
  return std::unique_ptr<ServerProcess>(new ServerProcess(process, port, log_file));
}

ServerProcess::~ServerProcess() { Kill(); }

Result<std::unique_ptr<client::Client>> ServerProcess::Connect() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kReadySecondsMax);
  while (std::chrono::steady_clock::now() < deadline) {
    if (auto client = client::Client::Connect({.port = port_})) {
      const auto health = (*client)->Health();
      // On a full disk the first request says what is wrong.
      if (health && (health->state() == "ready" || health->state() == "store_full"))
        return std::move(*client);
    }
    if (waitpid(process_, nullptr, WNOHANG) == process_) {
      process_ = -1;
      return Fail(ErrorCode::kUnavailable, "the server ended; its log is {}", log_file_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Fail(ErrorCode::kUnavailable, "the server was not ready in {} s; its log is {}",
              kReadySecondsMax, log_file_);
}

void ServerProcess::Kill() { Signal(SIGKILL); }

int ServerProcess::Stop() { return Signal(SIGTERM); }

int ServerProcess::Signal(int signal) {
  if (process_ <= 0) return -1;
  kill(process_, signal);
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace mneme::cli
