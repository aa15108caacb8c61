#include "engine/turn_log.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"

namespace mneme::engine {
namespace {

// One commit holds at most these; more would keep the first waiting for the last.
constexpr size_t kGroupEntriesMax = 4096;
constexpr size_t kGroupBytesMax = memory::kCommitBytesMax / 2;

size_t BytesOf(const memory::LogEntry& entry) {
  const auto* turn = std::get_if<memory::AppendTurn>(&entry);
  return turn == nullptr ? 1024 : turn->record.ByteSizeLong() + 1024;
}

}  // namespace

TurnLog::TurnLog(memory::TurnStore& store, Clock& clock, Deliver deliver)
    : store_(store),
      clock_(clock),
      deliver_(std::move(deliver)),
      watermark_at_us_(clock.MonotonicUs()),
      thread_([this] { Work(); }) {}

TurnLog::~TurnLog() { Stop(/*drain=*/false); }

void TurnLog::Order(std::vector<Entry> entries) {
  {
    std::lock_guard lock(mutex_);
    for (Entry& one : entries) {
      const size_t bytes = BytesOf(one.entry);
      waiting_.push_back({.ticket = one.ticket, .entry = std::move(one.entry), .bytes = bytes});
    }
  }
  wake_.notify_one();
}

void TurnLog::Stop(bool drain) {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    drain_ = drain;
  }
  wake_.notify_one();
  thread_.join();
}

void TurnLog::Work() {
  std::vector<memory::LogEntry> group;
  std::vector<uint64_t> tickets;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, std::chrono::microseconds(memory::kWatermarkPeriodUs / 4),
                   [this] { return stop_ || !waiting_.empty(); });
    if (stop_ && (!drain_ || waiting_.empty())) break;
    group.clear();
    tickets.clear();
    size_t bytes = 0;
    while (!waiting_.empty() && group.size() < kGroupEntriesMax &&
           (group.empty() || bytes + waiting_.front().bytes <= kGroupBytesMax)) {
      bytes += waiting_.front().bytes;
      tickets.push_back(waiting_.front().ticket);
      group.push_back(std::move(waiting_.front().entry));
      waiting_.pop_front();
    }
    lock.unlock();
    if (!group.empty()) {
      std::vector<Result<memory::Committed>> results = store_.Commit(group);
      for (size_t index = 0; index < tickets.size(); ++index)
        deliver_({.ticket = tickets[index], .result = std::move(results[index])});
    }
    if (clock_.MonotonicUs() - watermark_at_us_ >= memory::kWatermarkPeriodUs) FlushWatermark();
    lock.lock();
  }
  const bool flush = drain_;
  lock.unlock();
  if (flush) FlushWatermark();
}

void TurnLog::FlushWatermark() {
  watermark_at_us_ = clock_.MonotonicUs();
  if (const Status flushed = store_.FlushWatermark(); !flushed)
    MNEME_LOG(kWarning, "watermark", "error=\"{}\"", flushed.error().message());
}

}  // namespace mneme::engine
