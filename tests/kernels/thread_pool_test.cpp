// The pool runs every piece exactly once, on any number of threads, loop after loop, asleep or
// awake.
#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace mneme::kernels {
namespace {

TEST(ThreadPoolTest, RunsEveryPieceOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t pieces : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(pieces));
      pool.Run(pieces, [&](int64_t piece, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        runs[static_cast<size_t>(piece)].fetch_add(1);
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, ShowsTheCallerWhatTheWorkersWrote) {
  ThreadPool pool(2);
  std::vector<int64_t> values(64);
  for (int64_t loop = 1; loop <= 5000; ++loop) {
    pool.Run(64, [&](int64_t piece, int) { values[static_cast<size_t>(piece)] = piece * loop; });
    for (int64_t piece = 0; piece < 64; ++piece)
      ASSERT_EQ(values[static_cast<size_t>(piece)], piece * loop);
  }
}

TEST(ThreadPoolTest, WakesWorkersThatFellAsleep) {
  ThreadPool pool(2);
  for (int loop = 0; loop < 3; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> runs{0};
    pool.Run(10, [&](int64_t, int) { runs.fetch_add(1); });
    EXPECT_EQ(runs.load(), 10);
  }
}

}  // namespace
}  // namespace mneme::kernels
