// ClosedChunk is one sealed chunk in memory: its index entries, the page groups that are in host
// memory just now, and its KV pages. Immutable but for which groups are present; sessions that
// share a prefix share its chunks.
//
// Owns:     index entries and KV pages (charged to the cache); its groups lie in the cache, which
// it
//           leaves when it goes.
// Threads:  engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/step_table.h"
#include "memory/memory_layout.h"
#include "memory/page_cache.h"

namespace mneme::memory {

// SHA-256 over (identity, tenant, parent's key, token ids): names a chunk's contents.
using ChunkKey = std::array<std::byte, 32>;

class ClosedChunk {
 public:
  // An empty shell whose index and KV pages are to be filled in. kResourceExhausted when they do
  // not fit under the cache's cap.
  static Result<std::shared_ptr<ClosedChunk>> Make(const MemoryLayout& layout, PageCache& cache,
                                                   const ChunkKey& key, uint64_t first_position);
  ~ClosedChunk();
  ClosedChunk(const ClosedChunk&) = delete;
  ClosedChunk& operator=(const ClosedChunk&) = delete;

  const ChunkKey& key() const { return key_; }
  uint64_t first_position() const { return first_position_; }
  const kernels::ChunkView* view() const { return &view_; }

  // Group of (paged layer, key head), counted paged layer by paged layer; null: not in memory.
  int GroupOf(int paged_layer, int key_head) const {
    return paged_layer * layout_->linear.key_heads + key_head;
  }
  int groups() const { return static_cast<int>(groups_.size()); }
  const std::byte* group(int group) const { return groups_[static_cast<size_t>(group)]; }
  void SetGroup(int group, const std::byte* bytes) {  // for PageCache
    groups_[static_cast<size_t>(group)] = bytes;
  }

  // Whether the page store holds the chunk whole.
  bool saved() const { return saved_; }
  void MarkSaved();

  // Index entries, to be filled once. Shapes as in kernels::ChunkView.
  uint16_t* representatives() { return representatives_.data(); }
  int8_t* centroid() { return centroid_.data(); }
  float* centroid_scale() { return centroid_scale_.data(); }
  float* radius() { return radius_.data(); }
  std::byte* kv_page(int attention_layer) {
    return kv_storage_.data() + static_cast<size_t>(attention_layer) * layout_->kv_page_bytes();
  }

  // Bytes of index entries and of KV pages of one chunk.
  static uint64_t IndexBytes(const MemoryLayout& layout);
  static uint64_t KvBytes(const MemoryLayout& layout);

 private:
  ClosedChunk(const MemoryLayout& layout, PageCache& cache, const ChunkKey& key,
              uint64_t first_position);

  const MemoryLayout* layout_;
  PageCache* cache_;
  const ChunkKey key_;
  const uint64_t first_position_;
  bool saved_ = false;
  std::vector<const std::byte*> groups_;   // [paged layers, G]
  std::vector<uint16_t> representatives_;  // [routed layers, G, P, K]
  std::vector<int8_t> centroid_;           // [routed layers, G, K]
  std::vector<float> centroid_scale_;      // [routed layers, G]
  std::vector<float> radius_;              // [routed layers, G]
  std::vector<std::byte> kv_storage_;      // [attention layers] of kv_page_bytes
  std::vector<const std::byte*> kv_;       // [attention layers]
  kernels::ChunkView view_;
};

}  // namespace mneme::memory
