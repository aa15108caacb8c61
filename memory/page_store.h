// PageStore is the disk tier: page groups, index entries, key/value pages and boundary records of
// chunk nodes, under keys that begin with the node's. Everything in it is derived, written behind
// and may be lost: it then costs a replay, never content.
//
// Written with a write-ahead log that is not flushed at each write: what Write returned survives
// kill -9; what Sync returned survives a power cut. What a power cut leaves is always a prefix of
// the order of writing, so a node marked whole has everything that was written before its mark.
//
// Threads:  any
// Errors:   kNotFound     nothing under that key
//           kCorruption   the value is damaged (node, kind, layer and head named); Delete its node
//           store_full    no room; goes on by itself when there is
//           kUnavailable  the file system refused, now or earlier: open the store again
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "memory/page_value.h"
#include "memory/store_folder.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace mneme::memory {

struct PageWrite {
  PageKey key;
  MutableByteSpan value;  // header and payload; the checksum is filled in by Write
};

struct PageStoreCounters {
  uint64_t reads = 0;
  uint64_t read_bytes = 0;
  uint64_t writes = 0;  // values
  uint64_t written_bytes = 0;
  uint64_t damaged_reads = 0;
  uint64_t mends = 0;  // times that damage stopped its writes and was taken out
};

enum class PageStoreState : uint8_t {
  kReady,
  kMending,  // everything is read to find what is damaged; writes wait, reads now and then
  kFailed,   // takes no writes, for another reason than room, until it is opened again
};

// A node that nobody starts at any more, and the values that only such a start reads. They may be
// of nodes before it, too.
struct ThinnedNode {
  NodeKey node;
  std::vector<PageKey> values;
};

class PageStore {
 public:
  virtual ~PageStore() = default;

  // All of `values` or none, in one batch. `whole` names nodes that now have all their values.
  virtual Status Write(std::span<const PageWrite> values, std::span<const NodeKey> whole = {}) = 0;

  // Copies the checked value into `destination` and returns its bytes. kInvalidArgument, naming the
  // bytes needed, where it does not fit.
  virtual Result<size_t> Read(const PageKey& key, MutableByteSpan destination) = 0;

  // Removes everything under these nodes; those that are not there are left at that.
  virtual Status Delete(std::span<const NodeKey> nodes) = 0;

  // Removes the values of thinned nodes, and remembers the nodes: IsThin. Those that are thin
  // already are left at that. A boundary record that is written makes its node a start again.
  virtual Status Thin(std::span<const ThinnedNode> nodes) = 0;
  virtual Result<bool> IsThin(const NodeKey& node) = 0;

  // Whether the node was marked whole. Says nothing about damage; reading does.
  virtual Result<bool> Has(const NodeKey& node) = 0;

  // All nodes with at least one value, whole or not, in order of their keys.
  virtual Result<std::vector<NodeKey>> List() = 0;

  // Everything written so far survives a power cut.
  virtual Status Sync() = 0;

  // Drops the bytes of what was deleted or thinned.
  virtual Status Compact() = 0;

  // Of its files, what was deleted and is not dropped yet included.
  virtual uint64_t FileBytes() = 0;

  virtual PageStoreCounters counters() const = 0;
  virtual PageStoreState state() const = 0;
};

struct PageStoreOptions {
  size_t write_buffer_bytes = 32 * kMiB;  // two at most
  size_t block_cache_bytes = 8 * kMiB;    // of keys; values are not cached here
  bool direct_io = true;                  // where the file system can
  // Damaged or missing files: false refuses to open (kCorruption), true removes them all and starts
  // empty, which costs a replay of every session.
  bool start_empty_if_damaged = false;
  rocksdb::Env* env = nullptr;  // nullptr: the machine's; tests bring faults
};

struct OpenedPageStore {
  std::unique_ptr<PageStore> store;
  bool started_empty = false;  // what was there was damaged and is gone
};

// Opens DIR/pages. The folder must outlive the store.
Result<OpenedPageStore> OpenPageStore(StoreFolder& folder, const PageStoreOptions& options = {});

}  // namespace mneme::memory
