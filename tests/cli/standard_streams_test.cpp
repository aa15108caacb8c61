// The three streams in processes of their own, which can lose them.
#include "cli/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>

#include "cli/command.h"

namespace mneme::cli {
namespace {

// What a forked process answers; 128 + signal where one ended it.
int InAnotherProcess(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StandardStreamsTest, TheNextFileNeverTakesTheNumberOfAClosedOne) {
  for (int closed = 0; closed < 8; ++closed) {
    EXPECT_EQ(InAnotherProcess([closed] {
                for (const int number : {0, 1, 2})
                  if ((closed >> number & 1) != 0) ::close(number);
                OpenClosedStreams();
                const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
                return next > STDERR_FILENO && ::fcntl(2, F_GETFD) >= 0 ? 0 : 1;
              }),
              0)
        << closed;
  }
}

TEST(StandardStreamsTest, WhatCannotBeWrittenIsAnErrorAndNoSignal) {
  EXPECT_EQ(InAnotherProcess([] {
              IgnoreWriteSignals();
              std::array<int, 2> ends{};
              if (::pipe2(ends.data(), O_CLOEXEC) != 0) return 1;
              ::close(ends[0]);
              if (::write(ends[1], "x", 1) != -1 || errno != EPIPE) return 2;
              const rlimit none{.rlim_cur = 0, .rlim_max = 0};
              ::setrlimit(RLIMIT_FSIZE, &none);
              std::FILE* file = std::tmpfile();
              if (file == nullptr) return 3;
              return ::write(::fileno(file), "x", 1) == -1 && errno == EFBIG ? 0 : 4;
            }),
            0);
}

TEST(StandardStreamsTest, OutputThatDidNotGetOutIsAFailure) {
  const auto end = [](const char* output, int exit_code) {
    return InAnotherProcess([output, exit_code] {
      ::dup2(::open(output, O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
      std::fputs("said\n", stdout);
      return EndOutput(exit_code);
    });
  };
  EXPECT_EQ(end("/dev/null", kExitOk), kExitOk);
  EXPECT_EQ(end("/dev/full", kExitOk), kExitFailed);
  EXPECT_EQ(end("/dev/full", kExitNoServer), kExitNoServer);
}

TEST(StandardStreamsTest, SayingToNobodyGoesOn) {
  EXPECT_EQ(InAnotherProcess([] {
              ::dup2(::open("/dev/full", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
              for (int line = 0; line < 100; ++line) Say("line");
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace mneme::cli
