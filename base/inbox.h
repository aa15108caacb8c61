// Inbox<T> is a bounded queue of values from many threads to one. Full is an answer.
//
// Threads:  Push from any; Pop, WaitUntil and Drain from the one reader.
// Errors:   kResourceExhausted  the queue is full; kUnavailable  it is closed
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"

namespace mneme {

template <typename T>
class Inbox {
 public:
  explicit Inbox(size_t items_max) : items_max_(items_max) {}

  // On failure `item` is untouched.
  Status Push(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return Fail(ErrorCode::kUnavailable, "queue is closed");
      if (items_.size() >= items_max_)
        return Fail(ErrorCode::kResourceExhausted, "queue of {} is full", items_max_);
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return {};
  }

  // The next item, without waiting.
  std::optional<T> Pop() {
    std::lock_guard lock(mutex_);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Everything there is, waiting up to `wait` for something. Empty after the wait or when closed.
  std::vector<T> Drain(std::chrono::microseconds wait) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, wait, [this] { return closed_ || !items_.empty(); });
    std::vector<T> items(std::make_move_iterator(items_.begin()),
                         std::make_move_iterator(items_.end()));
    items_.clear();
    return items;
  }

  // No further Push succeeds; what is queued can still be read.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }

 private:
  const size_t items_max_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace mneme
