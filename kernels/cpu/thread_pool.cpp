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

// Pieces [next, end): a thread takes its own range first, so that who ran a piece in one loop runs
// it in the next one like it, with what it read still in its caches. Then it helps the others.
struct alignas(64) Range {
  std::atomic<int64_t> next{0};
  int64_t end = 0;

  // -1 where none is left.
  int64_t Take() {
    if (next.load(std::memory_order_relaxed) >= end) return -1;
    const int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
    return piece < end ? piece : -1;
  }
};

}  // namespace

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> loop{0};  // counts loops; a worker that sees it move takes part
  std::atomic<bool> stop{false};
  std::vector<Range> ranges;  // [threads], in the order of their pieces
  std::atomic<int> busy{0};   // workers that have not yet left the current loop
  const std::function<void(int64_t, int)>* body = nullptr;

  void Work(int thread) {
    const auto own = static_cast<size_t>(thread);
    for (size_t i = 0; i < ranges.size(); ++i) {
      Range& range = ranges[(own + i) % ranges.size()];
      for (int64_t piece = range.Take(); piece >= 0; piece = range.Take()) (*body)(piece, thread);
    }
  }

  void Divide(int64_t pieces) {
    const auto threads = static_cast<int64_t>(ranges.size());
    for (int64_t thread = 0; thread < threads; ++thread) {
      Range& range = ranges[static_cast<size_t>(thread)];
      range.next.store(pieces * thread / threads, std::memory_order_relaxed);
      range.end = pieces * (thread + 1) / threads;
    }
  }

  void Stop() {
    stop.store(true, std::memory_order_release);
    {
      std::lock_guard lock(mutex);
      loop.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
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
  shared_->ranges = std::vector<Range>(static_cast<size_t>(threads));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      shared_->workers.emplace_back(
          [shared = shared_.get(), thread] { shared->WorkerLoop(thread); });
    }
  } catch (...) {  // the system has no more threads: those that run must end before their handles
    shared_->Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { shared_->Stop(); }

int ThreadPool::threads() const { return static_cast<int>(shared_->workers.size()) + 1; }

void ThreadPool::Run(int64_t pieces, const std::function<void(int64_t, int)>& body) {
  if (pieces <= 1 || shared_->workers.empty()) {
    for (int64_t piece = 0; piece < pieces; ++piece) body(piece, 0);
    return;
  }
  shared_->body = &body;
  shared_->Divide(pieces);
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
