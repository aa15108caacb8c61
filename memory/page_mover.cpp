#include "memory/page_mover.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace mneme::memory {

PageMover::PageMover(const MemoryLayout& layout, PageStore& store, const PageMoverOptions& options,
                     Clock& clock, Deliver deliver)
    : layout_(layout),
      store_(store),
      options_(options),
      clock_(clock),
      deliver_(std::move(deliver)),
      readers_(std::max(options.readers, 1)),
      synced_at_us_(clock.MonotonicUs()),
      thread_([this] { Work(); }) {}

PageMover::~PageMover() { Stop(/*drain=*/false); }

void PageMover::Save(SaveOrder order) { Give({.save = std::move(order)}); }

void PageMover::Delete(std::vector<NodeKey> nodes) {
  if (!nodes.empty()) Give({.save = std::nullopt, .nodes = std::move(nodes)});
}

void PageMover::Thin(std::vector<ThinnedNode> nodes) {
  if (!nodes.empty()) Give({.save = std::nullopt, .thinned = std::move(nodes)});
}

void PageMover::Give(Order order) {
  {
    std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  wake_.notify_one();
}

void PageMover::Read(std::span<GroupRead> reads) {
  const size_t group_bytes = layout_.group_bytes();
  readers_.Run(reads.size(), [&](size_t index) {
    GroupRead& read = reads[index];
    const PageKey key = GroupKeyOf(layout_, *read.chunk, read.group);
    const auto bytes = store_.Read(key, {read.destination, group_bytes});
    if (!bytes) {
      read.status = Fail(bytes.error());
    } else if (*bytes != group_bytes) {
      read.status = Fail(ErrorCode::kCorruption, "{}: {} bytes expected, {} found", NameOf(key),
                         group_bytes, *bytes);
    }
  });
  for (const GroupRead& read : reads) {
    if (read.status) {
      ++chunks_read_[read.chunk];
    } else {
      misses_.push_back({.node = NodeKeyFrom(read.chunk->key()),
                         .first_position = read.chunk->first_position(),
                         .error = read.status.error()});
    }
  }
}

void PageMover::ReadValues(std::span<ValueRead> reads) {
  readers_.Run(reads.size(), [&](size_t index) {
    ValueRead& read = reads[index];
    const auto bytes = store_.Read(read.key, read.destination);
    if (!bytes) {
      read.status = Fail(bytes.error());
    } else if (*bytes != read.destination.size()) {
      read.status = Fail(ErrorCode::kCorruption, "{}: {} bytes expected, {} found",
                         NameOf(read.key), read.destination.size(), *bytes);
    }
  });
}

bool PageMover::IsThin(const NodeKey& node) {
  const auto thin = store_.IsThin(node);
  return thin && *thin;
}

std::vector<GroupMiss> PageMover::TakeMisses() { return std::exchange(misses_, {}); }

std::unordered_map<const ClosedChunk*, uint32_t> PageMover::TakeReads() {
  return std::exchange(chunks_read_, {});
}

std::optional<Error> PageMover::stuck() const {
  std::lock_guard lock(mutex_);
  return stuck_;
}

void PageMover::Stop(bool drain) {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    drain_ = drain;
  }
  wake_.notify_one();
  thread_.join();
}

void PageMover::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, std::chrono::microseconds(options_.sync_period_us / 4),
                   [this] { return stop_ || !orders_.empty(); });
    if (stop_ && (!drain_ || orders_.empty())) break;
    if (orders_.empty()) {
      lock.unlock();
      SyncIfDue(false);
      CompactIfDue(/*idle=*/true);
      lock.lock();
      continue;
    }
    Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    CarryOut(std::move(order));
    SyncIfDue(false);
    CompactIfDue(/*idle=*/false);
    lock.lock();
  }
  const bool sync = drain_;
  std::deque<Order> left = std::exchange(orders_, {});
  lock.unlock();
  if (sync) SyncIfDue(true);
  for (Order& order : left) {
    if (!order.save) continue;
    deliver_({.ticket = order.save->ticket,
              .node = order.save->node,
              .status = Fail(ErrorCode::kCancelled, "save chunk: the server stopped")});
  }
}

void PageMover::CarryOut(Order order) {
  if (order.save) {
    Write(std::move(*order.save));
  } else {
    DeleteNow(order.nodes);
    ThinNow(order.thinned);
  }
}

void PageMover::Write(SaveOrder order) {
  // Copied, because the store fills in checksums while the engine reads the groups.
  std::vector<std::vector<std::byte>> copies;
  std::vector<PageWrite> writes;
  uint64_t bytes = 0;
  copies.reserve(order.groups.size());
  for (const auto& [key, group] : order.groups) {
    copies.emplace_back(group.begin(), group.end());
    writes.push_back({.key = key, .value = copies.back()});
    bytes += group.size();
  }
  for (ChunkValue& value : order.values) {
    writes.push_back({.key = value.key, .value = value.bytes});
    bytes += value.bytes.size();
  }
  Status written = store_.Write(writes, {&order.node, 1});
  // Only room comes back by itself; what else refuses a write refuses all until a reopen.
  while (!written && written.error().reason() == Reason::kStoreFull) {
    SetStuck(written.error());
    bool gone = DeleteAhead(order.node);
    {
      std::unique_lock lock(mutex_);
      gone = gone || stop_;
      if (!gone) {
        wake_.wait_for(lock, std::chrono::microseconds(options_.retry_us),
                       [this] { return stop_; });
      }
    }
    if (gone) {
      written = Fail(ErrorCode::kCancelled, "save chunk: deleted or stopped before it was written");
      break;
    }
    written = store_.Write(writes, {&order.node, 1});
  }
  SetStuck(std::nullopt);
  if (written) unsynced_bytes_ += bytes;
  deliver_({.ticket = order.ticket, .node = order.node, .status = written});
}

bool PageMover::DeleteAhead(const NodeKey& waiting) {
  std::vector<NodeKey> nodes;
  std::vector<ThinnedNode> thinned;
  std::vector<SaveOrder> dropped;
  {
    std::lock_guard lock(mutex_);
    for (auto at = orders_.begin(); at != orders_.end();) {
      if (at->save) {
        ++at;
        continue;
      }
      std::move(at->thinned.begin(), at->thinned.end(), std::back_inserter(thinned));
      for (const NodeKey& node : at->nodes) {
        nodes.push_back(node);
        for (auto before = orders_.begin(); before != at; ++before) {
          if (!before->save || before->save->node != node) continue;
          dropped.push_back(std::move(*before->save));
          before->save.reset();
          before->nodes.clear();
        }
      }
      at = orders_.erase(at);
    }
  }
  for (const SaveOrder& order : dropped) {
    deliver_({.ticket = order.ticket,
              .node = order.node,
              .status = Fail(ErrorCode::kCancelled, "save chunk: deleted before it was written")});
  }
  DeleteNow(nodes);
  ThinNow(thinned);
  return std::find(nodes.begin(), nodes.end(), waiting) != nodes.end();
}

void PageMover::DeleteNow(const std::vector<NodeKey>& nodes) {
  if (nodes.empty()) return;
  deleted_bytes_ += nodes.size() * ChunkValueBytes(layout_);
  if (const Status deleted = store_.Delete(nodes); !deleted) {
    MNEME_LOG(kWarning, "pages_not_deleted", "nodes={} error=\"{}\"", nodes.size(),
              deleted.error().message());
  }
}

void PageMover::ThinNow(std::span<const ThinnedNode> nodes) {
  if (nodes.empty()) return;
  for (const ThinnedNode& node : nodes) {
    for (const PageKey& key : node.values) {
      thinned_bytes_ +=
          key.kind == ValueKind::kBoundary ? BoundaryValueBytes(layout_) : layout_.group_bytes();
    }
  }
  if (const Status thinned = store_.Thin(nodes); !thinned) {
    MNEME_LOG(kWarning, "pages_not_thinned", "nodes={} error=\"{}\"", nodes.size(),
              thinned.error().message());
  }
}

void PageMover::SyncIfDue(bool now) {
  if (unsynced_bytes_ == 0) return;
  const int64_t now_us = clock_.MonotonicUs();
  if (!now && unsynced_bytes_ < options_.sync_bytes &&
      now_us - synced_at_us_ < options_.sync_period_us)
    return;
  if (const Status synced = store_.Sync(); !synced)
    MNEME_LOG(kWarning, "page_store_sync", "error=\"{}\"", synced.error().message());
  unsynced_bytes_ = 0;
  synced_at_us_ = now_us;
}

// What was deleted waits for a quiet moment; what is thinned comes with the writing that never
// leaves one.
void PageMover::CompactIfDue(bool idle) {
  const uint64_t least = options_.compact_after_bytes;
  const bool thinned = thinned_bytes_ >= least && thinned_bytes_ >= store_.FileBytes() / 2;
  if (!thinned && (!idle || deleted_bytes_ < least)) return;
  deleted_bytes_ = 0;
  thinned_bytes_ = 0;
  if (const Status compacted = store_.Compact(); !compacted)
    MNEME_LOG(kWarning, "page_store_compact", "error=\"{}\"", compacted.error().message());
}

void PageMover::SetStuck(std::optional<Error> error) {
  std::lock_guard lock(mutex_);
  if (error.has_value() != stuck_.has_value()) {
    if (error) {
      MNEME_LOG(kWarning, "page_store_waits", "error=\"{}\"", error->message());
    } else {
      MNEME_LOG(kInfo, "page_store_goes_on", "writes=ok");
    }
  }
  stuck_ = std::move(error);
}

}  // namespace mneme::memory
