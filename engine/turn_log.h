// TurnLog is the log thread: the only caller of a commit. What is ordered while one flush runs is
// committed together with the next.
//
// Owns:     its thread. The store must outlive it.
// Threads:  Order and Stop from the engine; answers are delivered on the log thread, in the order
// of
//           the orders.
// Order:    answers come for every order, also after a failed flush (the store's own errors).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/inbox.h"
#include "base/result.h"
#include "memory/turn_store.h"

namespace mneme::engine {

struct LogAnswer {
  uint64_t ticket = 0;  // as given with the order
  Result<memory::Committed> result;
};

class TurnLog {
 public:
  using Deliver = std::function<void(LogAnswer)>;

  // `deliver` is called on the log thread and must not block.
  TurnLog(memory::TurnStore& store, Clock& clock, Deliver deliver);
  ~TurnLog();
  TurnLog(const TurnLog&) = delete;
  TurnLog& operator=(const TurnLog&) = delete;

  struct Entry {
    uint64_t ticket = 0;
    memory::LogEntry entry;
  };

  // What is ordered together is committed together, as far as one commit holds it.
  void Order(std::vector<Entry> entries);

  // Commits everything that was ordered, flushes the watermark and stops; or stops at once, without
  // answers to what is left.
  void Stop(bool drain);

 private:
  struct Waiting {
    uint64_t ticket = 0;
    memory::LogEntry entry;
    size_t bytes = 0;
  };

  void Work();
  void Take(std::vector<Entry> entries, std::deque<Waiting>& waiting);
  void CommitGroup(std::deque<Waiting>& waiting);
  void FlushWatermark();

  memory::TurnStore& store_;
  Clock& clock_;
  const Deliver deliver_;

  Inbox<std::vector<Entry>> orders_;
  std::atomic<bool> drain_{true};  // false: what is left goes unanswered
  int64_t watermark_at_us_ = 0;    // of the log thread
  std::thread thread_;
};

}  // namespace mneme::engine
