#include "kernels/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace mneme::kernels {
namespace {

// Some tens of microseconds: longer than the serial stretch between two loops of a decode step,
// short enough that an idle server uses no processor.
constexpr int kSpins = 2'000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> loop{0};  // counts loops; a worker that sees it move takes part
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};  // workers that have not yet left the current loop
  int64_t pieces = 0;
  const std::function<void(int64_t, int)>* body = nullptr;

  void Work(int thread) {
    for (int64_t piece = next.fetch_add(1, std::memory_order_relaxed); piece < pieces;
         piece = next.fetch_add(1, std::memory_order_relaxed)) {
      (*body)(piece, thread);
    }
  }

  void WorkerLoop(int thread) {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && loop.load(std::memory_order_acquire) == seen; ++spin)
        Pause();
      if (loop.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return loop.load(std::memory_order_acquire) != seen; });
      }
      seen = loop.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      Work(thread);
      busy.fetch_sub(1, std::memory_order_release);  // publishes what this worker wrote
    }
  }
};

ThreadPool::ThreadPool(int threads) : shared_(std::make_unique<Shared>()) {
  MNEME_CHECK(threads >= 1, "threads {}", threads);
  for (int thread = 1; thread < threads; ++thread)
    shared_->workers.emplace_back([shared = shared_.get(), thread] { shared->WorkerLoop(thread); });
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_release);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->loop.fetch_add(1, std::memory_order_release);
  }
  shared_->wake.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(shared_->workers.size()) + 1; }

void ThreadPool::Run(int64_t pieces, const std::function<void(int64_t, int)>& body) {
  if (pieces <= 1 || shared_->workers.empty()) {
    for (int64_t piece = 0; piece < pieces; ++piece) body(piece, 0);
    return;
  }
  shared_->pieces = pieces;
  shared_->body = &body;
  shared_->next.store(0, std::memory_order_relaxed);
  shared_->busy.store(static_cast<int>(shared_->workers.size()), std::memory_order_relaxed);
  {
    std::lock_guard lock(shared_->mutex);  // a worker about to sleep must not miss the loop
    shared_->loop.fetch_add(1, std::memory_order_release);
  }
  shared_->wake.notify_all();
  shared_->Work(0);
  int spins = 0;
  while (shared_->busy.load(std::memory_order_acquire) != 0) {
    Pause();
    if (++spins % kSpins == 0) std::this_thread::yield();  // fewer cores than threads
  }
}

}  // namespace mneme::kernels
