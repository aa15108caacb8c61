// The pool of readers: every index is read once, whatever the number of readers, and reads run side
// by side.
#include "memory/reader_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace mneme::memory {
namespace {

TEST(ReaderPoolTest, ReadsEveryIndexOnce) {
  for (const int readers : {1, 2, 5}) {
    ReaderPool pool(readers);
    for (const size_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> read(count);
      pool.Run(count, [&read](size_t index) { ++read[index]; });
      for (size_t index = 0; index < count; ++index)
        ASSERT_EQ(read[index].load(), 1) << index << " of " << count << ", " << readers;
    }
  }
}

TEST(ReaderPoolTest, IsDoneWhenRunReturns) {
  ReaderPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> done{0};
    pool.Run(9, [&done](size_t index) {
      if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      ++done;
    });
    ASSERT_EQ(done.load(), 9);
  }
}

TEST(ReaderPoolTest, ReadsSideBySide) {
  ReaderPool pool(4);
  std::atomic<int> inside{0};
  std::atomic<bool> all{false};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  pool.Run(4, [&](size_t) {
    if (++inside == 4) all = true;
    while (!all && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  });
  EXPECT_TRUE(all) << "four reads were never in flight together";
}

}  // namespace
}  // namespace mneme::memory
