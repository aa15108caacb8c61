#include "engine/turn_log.h"

#include <chrono>
#include <limits>
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
      orders_(std::numeric_limits<size_t>::max()),
      watermark_at_us_(clock.MonotonicUs()),
      thread_([this] { Work(); }) {}

TurnLog::~TurnLog() { Stop(/*drain=*/false); }

void TurnLog::Order(std::vector<Entry> entries) {
  // Only a closed queue refuses, and then nobody waits for it any more.
  static_cast<void>(orders_.Push(std::move(entries)).has_value());
}

void TurnLog::Stop(bool drain) {
  if (!thread_.joinable()) return;
  drain_.store(drain);
  orders_.Close();
  thread_.join();
}

void TurnLog::Work() {
  std::deque<Waiting> waiting;
  while (!orders_.closed() || !waiting.empty()) {
    const std::chrono::microseconds wait(waiting.empty() ? memory::kWatermarkPeriodUs / 4 : 0);
    for (std::vector<Entry>& entries : orders_.Drain(wait)) Take(std::move(entries), waiting);
    if (!drain_.load()) return;
    if (!waiting.empty()) CommitGroup(waiting);
    if (clock_.MonotonicUs() - watermark_at_us_ >= memory::kWatermarkPeriodUs) FlushWatermark();
  }
  if (drain_.load()) FlushWatermark();
}

void TurnLog::Take(std::vector<Entry> entries, std::deque<Waiting>& waiting) {
  for (Entry& one : entries) {
    const size_t bytes = BytesOf(one.entry);
    waiting.push_back({.ticket = one.ticket, .entry = std::move(one.entry), .bytes = bytes});
  }
}

void TurnLog::CommitGroup(std::deque<Waiting>& waiting) {
  std::vector<memory::LogEntry> group;
  std::vector<uint64_t> tickets;
  size_t bytes = 0;
  while (!waiting.empty() && group.size() < kGroupEntriesMax &&
         (group.empty() || bytes + waiting.front().bytes <= kGroupBytesMax)) {
    bytes += waiting.front().bytes;
    tickets.push_back(waiting.front().ticket);
    group.push_back(std::move(waiting.front().entry));
    waiting.pop_front();
  }
  std::vector<Result<memory::Committed>> results = store_.Commit(group);
  for (size_t index = 0; index < tickets.size(); ++index)
    deliver_({.ticket = tickets[index], .result = std::move(results[index])});
}

void TurnLog::FlushWatermark() {
  watermark_at_us_ = clock_.MonotonicUs();
  if (const Status flushed = store_.FlushWatermark(); !flushed)
    MNEME_LOG(kWarning, "watermark", "error=\"{}\"", flushed.error().message());
}

}  // namespace mneme::engine
