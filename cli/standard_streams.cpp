#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/line_stream.h"
#include "cli/command.h"

namespace mneme::cli {

void OpenClosedStreams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free, which is this one. Where it fails nothing can be said.
    if (::open("/dev/null", O_RDWR) != number) ::_exit(kExitFailed);
  }
}

void IgnoreWriteSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void Say(std::string_view line) { LineStream(STDERR_FILENO).Write(std::string(line) + "\n"); }

int EndOutput(int exit_code) {
  errno = 0;
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return exit_code;
  Say(std::string("mneme: standard output could not be written") +
      (errno == 0 ? "" : std::string(": ") + std::strerror(errno)));
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

}  // namespace mneme::cli
