#include "memory/reader_pool.h"

namespace mneme::memory {

ReaderPool::ReaderPool(int readers) {
  try {
    for (int reader = 1; reader < readers; ++reader) threads_.emplace_back([this] { Work(); });
  } catch (...) {  // the system has no more threads: those that run must end before their handles
    Stop();
    throw;
  }
}

ReaderPool::~ReaderPool() { Stop(); }

void ReaderPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReaderPool::Run(size_t count, const std::function<void(size_t)>& read) {
  if (count == 1 || threads_.empty()) {
    for (size_t index = 0; index < count; ++index) read(index);
    return;
  }
  std::unique_lock lock(mutex_);
  read_ = &read;
  next_ = 0;
  count_ = count;
  wake_.notify_all();
  Take(lock);
  done_.wait(lock, [this] { return running_ == 0; });
  read_ = nullptr;
}

void ReaderPool::Take(std::unique_lock<std::mutex>& lock) {
  while (read_ != nullptr && next_ < count_) {
    const size_t index = next_++;
    const std::function<void(size_t)>& read = *read_;
    ++running_;
    lock.unlock();
    read(index);
    lock.lock();
    --running_;
  }
}

void ReaderPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || (read_ != nullptr && next_ < count_); });
    if (stop_) return;
    Take(lock);
    if (running_ == 0) done_.notify_one();
  }
}

}  // namespace mneme::memory
