#include "memory/closed_chunk.h"

namespace mneme::memory {

Result<std::shared_ptr<ClosedChunk>> ClosedChunk::Make(const MemoryLayout& layout, PageCache& cache,
                                                       const ChunkKey& key,
                                                       uint64_t first_position) {
  MNEME_TRY(cache.Charge(IndexBytes(layout) + KvBytes(layout)));
  return std::shared_ptr<ClosedChunk>(new ClosedChunk(layout, cache, key, first_position));
}

ClosedChunk::ClosedChunk(const MemoryLayout& layout, PageCache& cache, const ChunkKey& key,
                         uint64_t first_position)
    : layout_(&layout),
      cache_(&cache),
      key_(key),
      first_position_(first_position),
      groups_(static_cast<size_t>(layout.groups_per_chunk()), nullptr),
      representatives_(layout.representatives_count()),
      centroid_(layout.centroid_count()),
      centroid_scale_(layout.radius_count()),
      radius_(layout.radius_count()),
      kv_storage_(KvBytes(layout)) {
  for (size_t layer = 0; layer < layout.attention_layers.size(); ++layer)
    kv_.push_back(kv_page(static_cast<int>(layer)));
  view_ = {.groups = groups_.data(),
           .representatives = representatives_.data(),
           .centroid = centroid_.data(),
           .centroid_scale = centroid_scale_.data(),
           .radius = radius_.data(),
           .kv = kv_.data()};
}

ClosedChunk::~ClosedChunk() {
  for (int group = 0; group < groups(); ++group) cache_->Release(*this, group);
  cache_->Uncharge(IndexBytes(*layout_) + KvBytes(*layout_));
}

void ClosedChunk::MarkSaved() {
  saved_ = true;
  for (int group = 0; group < groups(); ++group) cache_->MarkSaved(*this, group);
}

uint64_t ClosedChunk::IndexBytes(const MemoryLayout& layout) {
  return layout.representatives_count() * sizeof(uint16_t) + layout.centroid_count() +
         2 * layout.radius_count() * sizeof(float);
}

uint64_t ClosedChunk::KvBytes(const MemoryLayout& layout) {
  return layout.attention_layers.size() * layout.kv_page_bytes();
}

}  // namespace mneme::memory
