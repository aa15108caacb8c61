// The log's lines as a reader of standard error gets them, and the count of those that nobody can
// get.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string>

namespace mneme {
namespace {

// Standard error goes into a pipe while it lives.
class ErrorPipe {
 public:
  ErrorPipe() : before_(::dup(STDERR_FILENO)) {
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~ErrorPipe() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(ends_[1]);
    CloseReader();
  }
  std::string Read() {
    std::string text(4096, '\0');
    const ssize_t count = ::read(ends_[0], text.data(), text.size());
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }
  void CloseReader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }

 private:
  int before_;
  std::array<int, 2> ends_ = {-1, -1};
};

TEST(LogTest, ALineBeginsWithItsTimeInUtc) {
  ::setenv("TZ", "Asia/Kathmandu", 1);  // 5:45 before UTC
  ::tzset();
  ErrorPipe errors;
  const auto before = std::chrono::system_clock::now() - std::chrono::seconds(1);
  MNEME_LOG(kWarning, "happened", "count={}", 3);
  const std::string line = errors.Read();
  ASSERT_EQ(line.substr(23), "Z warning happened count=3\n") << line;
  std::tm utc = {};
  ASSERT_NE(::strptime(line.c_str(), "%Y-%m-%dT%H:%M:%S", &utc), nullptr) << line;
  const auto said = std::chrono::system_clock::from_time_t(::timegm(&utc));
  EXPECT_GE(said, before);
  EXPECT_LE(said, std::chrono::system_clock::now());
  ::unsetenv("TZ");
  ::tzset();
}

TEST(LogTest, CountsTheLinesThatNobodyGot) {
  const uint64_t before = LogLinesLost();
  ErrorPipe errors;
  MNEME_LOG(kInfo, "read", "line={}", 1);
  EXPECT_EQ(LogLinesLost(), before);
  errors.CloseReader();
  MNEME_LOG(kInfo, "lost", "line={}", 2);
  MNEME_LOG(kInfo, "lost", "line={}", 3);
  MNEME_LOG(kDebug, "not_wanted", "line={}", 4);
  EXPECT_EQ(LogLinesLost(), before + 2);
}

}  // namespace
}  // namespace mneme
