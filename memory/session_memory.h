// SessionMemory is all of one running session's memory: its closed chunks, its open chunk and, for
// readers that fold, the history as one state a linear layer.
//
//   position:  0 ......... chunks * T ........ position
//              [ closed chunks, shared ][ open ]
//
// A step writes rows into the open chunk and then Commit moves the position; a step that failed
// just is not committed. When the open chunk is full it must be sealed before the next step.
//
// Owns:     the open chunk and folded states; closed chunks by shared reference.
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "memory/boundary.h"
#include "memory/closed_chunk.h"
#include "memory/open_chunk.h"
#include "memory/page_cache.h"
#include "memory/page_source.h"

namespace mneme::memory {

// What sealing needs from the model and the backend.
struct Sealing {
  const kernels::KernelTable* kernels = nullptr;
  kernels::Stream* stream = nullptr;
  std::span<const kernels::PoolWeights> pool;  // [routed layers]
  // MHLA: weight of closed chunk `key` for queries of chunk `query` in a paged layer.
  std::function<float(int paged_layer, uint32_t query, uint32_t key)> mixing;
  PageSource* source = nullptr;  // where dropped groups come from; null: nothing is ever dropped
};

class SessionMemory {
 public:
  // The memory of an empty session. `layout` and `cache` must outlive it.
  SessionMemory(const MemoryLayout& layout, PageCache& cache);

  // At the end of `chunks`, oldest first, which must not be empty.
  SessionMemory(const MemoryLayout& layout, PageCache& cache,
                std::vector<std::shared_ptr<ClosedChunk>> chunks, const Boundary& boundary);

  SessionMemory(SessionMemory&&) noexcept = default;
  SessionMemory& operator=(SessionMemory&&) noexcept = default;

  // A session of its own with the same past: closed chunks shared, open chunk copied.
  SessionMemory Fork() const;

  uint64_t position() const { return position_; }  // tokens computed
  int open_tokens() const {
    return static_cast<int>(position_ - chunks_.size() * static_cast<uint64_t>(chunk_tokens()));
  }
  int chunk_tokens() const { return layout_->chunk_tokens(); }
  bool full() const { return open_tokens() == chunk_tokens(); }

  // For a step; good until the next Commit, Seal or move.
  kernels::SessionView view() const;
  uint32_t chunk_count() const { return static_cast<uint32_t>(chunks_.size()); }
  ClosedChunk& chunk(uint32_t index) const { return *chunks_[index]; }
  const std::shared_ptr<ClosedChunk>& shared_chunk(uint32_t index) const { return chunks_[index]; }
  const float* last_hidden() const { return open_.last_hidden(); }  // [D]

  // A step wrote the next `tokens` rows; `last_hidden` [D] is the last row's.
  void Commit(int tokens, const float* last_hidden);

  // Gives back what the open chunk held of tokens that are sealed by now; for a session at rest.
  void ReleaseUnused();

  // Turns the full open chunk into a closed one named `key` and starts the next.
  // kResourceExhausted when the cap leaves no room just now: nothing changed, seal again later.
  Result<std::shared_ptr<ClosedChunk>> Seal(const ChunkKey& key, const Sealing& sealing);

  // What a session needs to start here; only where the open chunk is empty.
  Boundary boundary() const;

  // Bytes held outside the page cache: of the open chunk, those of rows that were written.
  uint64_t open_bytes() const;

 private:
  Status SealGroups(ClosedChunk& chunk, const Sealing& sealing);
  Status IndexChunk(ClosedChunk& chunk, const Sealing& sealing);
  Status FoldOpen(const Sealing& sealing);
  Status Refold(const Sealing& sealing);
  float* folded(size_t linear_layer) {
    return folded_.data() + linear_layer * layout_->folded_floats();
  }
  void PointAtFolded();

  const MemoryLayout* layout_;
  PageCache* cache_;
  std::vector<std::shared_ptr<ClosedChunk>> chunks_;
  std::vector<const kernels::ChunkView*> views_;
  OpenChunk open_;
  std::vector<float> folded_;                // [linear layers, H, K, V]; empty unless folding
  std::vector<const float*> folded_layers_;  // [linear layers]
  uint64_t position_ = 0;
  int rows_resident_ = 0;  // rows of the open chunk that may have memory
};

// Makes sure that `chunk` holds `group`, reading it if need be. For use within one step.
Status HoldGroup(PageCache& cache, ClosedChunk& chunk, int group, PageSource* source);

}  // namespace mneme::memory
