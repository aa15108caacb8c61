// ReaderPool runs blocking reads side by side: a disk gives several readers several times what it
// gives one.
//
// Owns:     its threads. The caller is one reader more.
// Threads:  Run from one thread at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mneme::memory {

class ReaderPool {
 public:
  // `readers` in all, the caller included; at least 1.
  explicit ReaderPool(int readers);
  ~ReaderPool();
  ReaderPool(const ReaderPool&) = delete;
  ReaderPool& operator=(const ReaderPool&) = delete;

  // Calls read(index) once for every index below `count` and returns when all are done.
  void Run(size_t count, const std::function<void(size_t index)>& read);

 private:
  void Work();
  void Stop();
  // Takes reads until none is left; `lock` is held on entry and exit.
  void Take(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(size_t)>* read_ = nullptr;  // null: nothing to do
  size_t next_ = 0;
  size_t count_ = 0;
  size_t running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mneme::memory
