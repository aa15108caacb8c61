// PageMover moves what chunks are made of to the page store and back: sealed chunks are written
// behind on its own thread, groups and values are read by several threads while the engine waits.
//
// Orders are carried out in the order they were given, with one exception: while the disk is full,
// deletions and thinnings go ahead of the writes that wait for room.
//
// Owns:     its threads. The store must outlive it; what an order points at stays until its
//           receipt.
// Threads:  engine thread only, except that receipts are delivered on the mover thread.
// Errors:   of a receipt: kCancelled (deleted or stopped before it was written), or the store's
// own.
//           A full disk is no receipt: the order waits, and stuck() says why.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/chunk_value.h"
#include "memory/page_source.h"
#include "memory/page_store.h"
#include "memory/reader_pool.h"

namespace mneme::memory {

// A sealed chunk to be written. Its groups stay where they are until the receipt.
struct SaveOrder {
  uint64_t ticket = 0;  // the caller's own number
  NodeKey node;
  std::vector<std::pair<PageKey, ByteSpan>> groups;
  std::vector<ChunkValue> values;  // index, KV pages, boundary
};

struct SaveReceipt {
  uint64_t ticket = 0;
  NodeKey node;
  Status status;
};

// One value to be read into `destination`, which has room for exactly its bytes.
struct ValueRead {
  PageKey key;
  MutableByteSpan destination;
  Status status;  // out
};

// A group that could not be read.
struct GroupMiss {
  NodeKey node;
  uint64_t first_position = 0;
  Error error;
};

struct PageMoverOptions {
  int readers = 8;                     // threads that read, the engine's own included
  int64_t sync_period_us = 2'000'000;  // written bytes survive a power cut after this,
  uint64_t sync_bytes = 256 * kMiB;    // or after so many
  int64_t retry_us = 500'000;          // between two tries while the disk is full
  // Deleted bytes after which files are rewritten. Thinned ones must be half of the files, too: a
  // history thins as it grows, and rewriting it each time would cost more than writing it.
  uint64_t compact_after_bytes = 64 * kMiB;
};

class PageMover : public PageSource {
 public:
  using Deliver = std::function<void(SaveReceipt)>;

  // `deliver` is called on the mover thread and must not block.
  PageMover(const MemoryLayout& layout, PageStore& store, const PageMoverOptions& options,
            Clock& clock, Deliver deliver);
  ~PageMover() override;

  void Save(SaveOrder order);
  void Delete(std::vector<NodeKey> nodes);
  void Thin(std::vector<ThinnedNode> nodes);

  void Read(std::span<GroupRead> reads) override;
  void ReadValues(std::span<ValueRead> reads);

  // Whether the page store knows the node as thin; not where it cannot say.
  bool IsThin(const NodeKey& node);

  // Groups that could not be read since the last call, and how many were read of which chunk.
  std::vector<GroupMiss> TakeMisses();
  std::unordered_map<const ClosedChunk*, uint32_t> TakeReads();

  // Why writes wait just now; none where they do not.
  std::optional<Error> stuck() const;

  // Writes everything that was ordered and syncs (a full disk is not waited for), then stops; or
  // stops at once.
  void Stop(bool drain);

 private:
  struct Order {
    std::optional<SaveOrder> save;  // none: a deletion, or a thinning
    std::vector<NodeKey> nodes = {};
    std::vector<ThinnedNode> thinned = {};
  };

  void Work();
  void Give(Order order);
  void CarryOut(Order order);
  void Write(SaveOrder order);
  // Carries out the deletions behind a write that waits; true when that write was of a node that is
  // deleted.
  bool DeleteAhead(const NodeKey& waiting);
  void DeleteNow(const std::vector<NodeKey>& nodes);
  void ThinNow(std::span<const ThinnedNode> nodes);
  void SyncIfDue(bool now);
  void CompactIfDue(bool idle);
  void SetStuck(std::optional<Error> error);

  const MemoryLayout& layout_;
  PageStore& store_;
  const PageMoverOptions options_;
  Clock& clock_;
  const Deliver deliver_;
  ReaderPool readers_;

  // Of the engine thread.
  std::vector<GroupMiss> misses_;
  std::unordered_map<const ClosedChunk*, uint32_t> chunks_read_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Order> orders_;
  bool stop_ = false;
  bool drain_ = false;
  std::optional<Error> stuck_;

  // Of the mover thread.
  uint64_t unsynced_bytes_ = 0;
  uint64_t deleted_bytes_ = 0;
  uint64_t thinned_bytes_ = 0;
  int64_t synced_at_us_ = 0;

  std::thread thread_;
};

}  // namespace mneme::memory
