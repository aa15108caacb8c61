// Lines to readers that are slow, leave, or have no room: what is said to be written arrives whole
// and in order, and nothing waits.
#include "base/line_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"

namespace mneme {
namespace {

constexpr int kPipeBytes = 4 * 4096;
constexpr int kWaitMs = 20;

class LineStreamTest : public ::testing::Test {
 protected:
  LineStreamTest() {
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::fcntl(ends_[1], F_SETPIPE_SZ, kPipeBytes), kPipeBytes);
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~LineStreamTest() override {
    CloseReader();
    ::close(ends_[1]);
  }

  void CloseReader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  // Reads at most `bytes`.
  void Read(size_t bytes) {
    std::string part(bytes, '\0');
    const ssize_t count = ::read(ends_[0], part.data(), part.size());
    if (count > 0) received_ += part.substr(0, static_cast<size_t>(count));
  }

  std::array<int, 2> ends_ = {-1, -1};
  std::string received_;
};

TEST_F(LineStreamTest, CountsWhatAFullReaderMissedAndWaitsOnce) {
  LineStream stream(ends_[1], kWaitMs);
  const std::string line = std::string(99, 'x') + "\n";
  int written = 0;
  while (stream.Write(line)) ++written;
  // The system calls a pipe full as soon as its last page is begun.
  EXPECT_GE(written, 3 * (4096 / 100));
  EXPECT_LE(written, kPipeBytes / 100);
  const int64_t start_us = RealClock().MonotonicUs();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(stream.Write(line));
  EXPECT_LT(RealClock().MonotonicUs() - start_us, 1000 * kWaitMs * 1000 / 4);
  EXPECT_EQ(stream.lost(), 1001u);
  Read(kPipeBytes);
  EXPECT_TRUE(stream.Write("said\n"));
  stream.SaidLost();
  EXPECT_EQ(stream.lost(), 0u);
}

TEST_F(LineStreamTest, OutlivesAReaderThatLeaves) {
  LineStream stream(ends_[1], kWaitMs);
  EXPECT_TRUE(stream.Write("one\n"));
  CloseReader();
  EXPECT_FALSE(stream.Write("two\n"));
  EXPECT_FALSE(stream.Write("three\n"));
  EXPECT_EQ(stream.lost(), 2u);
}

TEST_F(LineStreamTest, OutlivesADiskWithoutRoomAndADescriptorThatIsClosed) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  LineStream no_room(full, kWaitMs);
  EXPECT_FALSE(no_room.Write("one\n"));
  EXPECT_EQ(no_room.lost(), 1u);
  ::close(full);
  LineStream closed(full, kWaitMs);
  EXPECT_FALSE(closed.Write("one\n"));
}

// Lines of every length, a reader of every pace: each line that was written is there, whole and in
// order; of those that were lost there is nothing but perhaps a start, on a line of its own.
TEST_F(LineStreamTest, WhatIsWrittenArrivesWholeAndInOrder) {
  std::mt19937 random(7);
  LineStream stream(ends_[1], /*wait_ms=*/0);
  std::vector<std::string> written;
  std::vector<std::string> lost;
  for (int number = 0; number < 2000; ++number) {
    const size_t fill = random() % 8 == 0 ? random() % 9000 : random() % 200;
    std::string line = "<" + std::to_string(number) + std::string(fill, '.') + ">";
    const bool whole = stream.Write(line + "\n");
    (whole ? written : lost).push_back(std::move(line));
    if (random() % 4 == 0) Read(random() % 8000);
  }
  Read(kPipeBytes);
  ASSERT_GT(written.size(), 100u);
  ASSERT_GT(lost.size(), 100u);
  size_t next = 0;
  for (size_t at = 0; at < received_.size();) {
    const size_t end = std::min(received_.find('\n', at), received_.size());
    const std::string line = received_.substr(at, end - at);
    at = end + 1;
    if (next < written.size() && line == written[next]) {
      ++next;
      continue;
    }
    EXPECT_FALSE(line.ends_with(">")) << line.substr(0, 40);
    EXPECT_TRUE(std::any_of(lost.begin(), lost.end(), [&](const std::string& whole) {
      return whole.starts_with(line);
    })) << line.substr(0, 40);
  }
  EXPECT_EQ(next, written.size());
}

}  // namespace
}  // namespace mneme
