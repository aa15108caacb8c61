// The pool runs every piece exactly once, on any number of threads, loop after loop, asleep or
// awake, and the same thread begins the same stretch.
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

// No piece ends before every thread has one.
TEST(ThreadPoolTest, EveryThreadBeginsWithItsOwnStretch) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 20; ++loop) {
    std::atomic<int> begun{0};
    pool.Run(3, [&](int64_t piece, int thread) {
      EXPECT_EQ(piece, thread);
      begun.fetch_add(1);
      while (begun.load() < 3) std::this_thread::yield();
    });
  }
}

TEST(ThreadPoolTest, WhoIsDoneHelpsTheOthers) {
  ThreadPool pool(2);
  for (int loop = 0; loop < 10; ++loop) {
    std::atomic<int> others{0};
    pool.Run(8, [&](int64_t piece, int) {
      if (piece != 0) return static_cast<void>(others.fetch_add(1));
      while (others.load() < 7) std::this_thread::yield();  // 1 to 3 were this thread's too
    });
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
