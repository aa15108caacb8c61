#include "memory/session_memory.h"

#include <algorithm>

#include "base/check.h"

namespace mneme::memory {

SessionMemory::SessionMemory(const MemoryLayout& layout, PageCache& cache)
    : layout_(&layout), cache_(&cache), open_(layout) {
  if (layout.folds()) folded_.resize(layout.linear_layers.size() * layout.folded_floats(), 0.0f);
  PointAtFolded();
}

SessionMemory::SessionMemory(const MemoryLayout& layout, PageCache& cache,
                             std::vector<std::shared_ptr<ClosedChunk>> chunks,
                             const Boundary& boundary)
    : layout_(&layout),
      cache_(&cache),
      chunks_(std::move(chunks)),
      open_(layout),
      folded_(boundary.folded) {
  MNEME_CHECK(!chunks_.empty(), "a session without chunks has no boundary");
  for (const auto& chunk : chunks_) views_.push_back(chunk->view());
  for (size_t layer = 0; layer < layout.linear_layers.size(); ++layer) {
    std::copy_n(boundary.conv_tails.data() + layer * layout.conv_tail_floats(),
                layout.conv_tail_floats(), open_.conv_tail(static_cast<int>(layer)));
  }
  std::copy_n(boundary.last_hidden.data(), layout.hidden, open_.last_hidden());
  position_ = chunks_.size() * static_cast<uint64_t>(chunk_tokens());
  PointAtFolded();
}

SessionMemory SessionMemory::Fork() const {
  SessionMemory fork(*layout_, *cache_);
  fork.chunks_ = chunks_;
  fork.views_ = views_;
  fork.open_.CopyFrom(open_, open_tokens());
  std::copy(folded_.begin(), folded_.end(), fork.folded_.begin());
  fork.position_ = position_;
  fork.rows_resident_ = open_tokens();
  return fork;
}

void SessionMemory::PointAtFolded() {
  folded_layers_.clear();
  if (folded_.empty()) return;
  for (size_t layer = 0; layer < layout_->linear_layers.size(); ++layer)
    folded_layers_.push_back(folded(layer));
}

kernels::SessionView SessionMemory::view() const {
  return {.open = open_.rows(),
          .open_kv = open_.kv(),
          .chunks = views_.data(),
          .chunk_count = static_cast<int32_t>(views_.size()),
          .conv_read = open_.conv_read(),
          .folded = folded_layers_.empty() ? nullptr : folded_layers_.data()};
}

void SessionMemory::Commit(int tokens, const float* last_hidden) {
  MNEME_CHECK(tokens > 0 && open_tokens() + tokens <= chunk_tokens(), "{} tokens after {} of {}",
              tokens, open_tokens(), chunk_tokens());
  position_ += static_cast<uint64_t>(tokens);
  rows_resident_ = std::max(rows_resident_, open_tokens());
  open_.SwapConv();
  std::copy_n(last_hidden, layout_->hidden, open_.last_hidden());
}

void SessionMemory::ReleaseUnused() {
  if (rows_resident_ == open_tokens()) return;
  rows_resident_ = open_tokens();
  open_.ReleaseRows(rows_resident_);
}

Result<std::shared_ptr<ClosedChunk>> SessionMemory::Seal(const ChunkKey& key,
                                                         const Sealing& sealing) {
  MNEME_CHECK(full(), "{} of {} tokens", open_tokens(), chunk_tokens());
  const uint64_t first_position = position_ - static_cast<uint64_t>(chunk_tokens());
  cache_->BeginStep();  // what the last layer of the last step used may go
  auto made = ClosedChunk::Make(*layout_, *cache_, key, first_position);
  MNEME_TRY(made);
  const std::shared_ptr<ClosedChunk>& chunk = *made;
  MNEME_TRY(SealGroups(*chunk, sealing));
  MNEME_TRY(IndexChunk(*chunk, sealing));
  if (layout_->reader == Reader::kNative) MNEME_TRY(FoldOpen(sealing));
  chunks_.push_back(chunk);
  views_.push_back(chunk->view());
  if (layout_->reader == Reader::kMhla) {
    if (const Status refolded = Refold(sealing); !refolded) {
      chunks_.pop_back();
      views_.pop_back();
      return Fail(refolded.error());
    }
  }
  return chunk;
}

Status SessionMemory::SealGroups(ClosedChunk& chunk, const Sealing& sealing) {
  std::vector<kernels::OpenRows> rows;
  std::vector<int> layers;
  std::vector<std::byte*> groups;
  for (size_t paged = 0; paged < layout_->paged_layers.size(); ++paged) {
    const auto linear = static_cast<size_t>(layout_->paged_layers[paged]);
    rows.push_back(open_.rows()[linear]);
    layers.push_back(layout_->linear_layers[linear]);
    for (int head = 0; head < layout_->linear.key_heads; ++head) {
      auto taken = cache_->Take(chunk, chunk.GroupOf(static_cast<int>(paged), head), false);
      MNEME_TRY(taken);
      groups.push_back(*taken);
    }
  }
  std::vector<std::byte*> kv;
  for (size_t layer = 0; layer < layout_->attention_layers.size(); ++layer)
    kv.push_back(chunk.kv_page(static_cast<int>(layer)));
  return sealing.kernels->seal({.shape = layout_->linear,
                                .dtype = layout_->page_dtype,
                                .first_position = chunk.first_position(),
                                .open = rows,
                                .layer = layers,
                                .groups = groups,
                                .attention = layout_->attention,
                                .open_kv = {open_.kv(), layout_->attention_layers.size()},
                                .kv = kv},
                               *sealing.stream);
}

Status SessionMemory::IndexChunk(ClosedChunk& chunk, const Sealing& sealing) {
  if (layout_->routed_layers.empty()) return {};
  std::vector<const float*> route_keys;
  for (const int linear : layout_->routed_layers)
    route_keys.push_back(open_.rows()[static_cast<size_t>(linear)].route_key);
  MNEME_TRY(sealing.kernels->represent({.shape = layout_->linear,
                                        .pool = sealing.pool,
                                        .route_key = route_keys,
                                        .first_window = 0,
                                        .last_window = layout_->linear.representatives(),
                                        .representatives = chunk.representatives()},
                                       *sealing.stream));
  return sealing.kernels->index({.shape = layout_->linear,
                                 .routed_layers = static_cast<int>(layout_->routed_layers.size()),
                                 .representatives = chunk.representatives(),
                                 .centroid = chunk.centroid(),
                                 .centroid_scale = chunk.centroid_scale(),
                                 .radius = chunk.radius()},
                                *sealing.stream);
}

Status SessionMemory::FoldOpen(const Sealing& sealing) {
  std::vector<float*> states;
  for (size_t layer = 0; layer < layout_->linear_layers.size(); ++layer)
    states.push_back(folded(layer));
  return sealing.kernels->fold({.shape = layout_->linear,
                                .open = {open_.rows(), layout_->linear_layers.size()},
                                .state = states},
                               *sealing.stream);
}

// The mixing weights of the chunk that opens now differ from the last one's, so its history is
// summed anew over all pages.
Status SessionMemory::Refold(const Sealing& sealing) {
  const uint32_t query = chunk_count();
  std::vector<float> fresh(folded_.size(), 0.0f);
  std::vector<float*> states;
  for (const int linear : layout_->paged_layers)
    states.push_back(fresh.data() + static_cast<size_t>(linear) * layout_->folded_floats());
  std::vector<float> gates(layout_->paged_layers.size());
  for (uint32_t key = 0; key < query; ++key) {
    cache_->BeginStep();
    for (size_t paged = 0; paged < gates.size(); ++paged) {
      gates[paged] = sealing.mixing(static_cast<int>(paged), query, key);
      if (gates[paged] == 0.0f) continue;
      for (int head = 0; head < layout_->linear.key_heads; ++head) {
        const int group = chunks_[key]->GroupOf(static_cast<int>(paged), head);
        MNEME_TRY(HoldGroup(*cache_, *chunks_[key], group, sealing.source));
      }
    }
    MNEME_TRY(sealing.kernels->fold_pages(
        {.shape = layout_->linear, .chunk = views_[key], .gate = gates, .state = states},
        *sealing.stream));
  }
  std::copy(fresh.begin(), fresh.end(), folded_.begin());
  return {};
}

Boundary SessionMemory::boundary() const {
  MNEME_CHECK(open_tokens() == 0, "{} open tokens", open_tokens());
  Boundary boundary;
  for (size_t layer = 0; layer < layout_->linear_layers.size(); ++layer) {
    const float* tail = open_.conv_tail(static_cast<int>(layer));
    boundary.conv_tails.insert(boundary.conv_tails.end(), tail, tail + layout_->conv_tail_floats());
  }
  boundary.last_hidden.assign(open_.last_hidden(), open_.last_hidden() + layout_->hidden);
  boundary.folded = folded_;
  return boundary;
}

uint64_t SessionMemory::open_bytes() const {
  return OpenChunk::Bytes(*layout_) -
         OpenChunk::RowBytes(*layout_, chunk_tokens() - rows_resident_) +
         folded_.size() * sizeof(float);
}

Status HoldGroup(PageCache& cache, ClosedChunk& chunk, int group, PageSource* source) {
  if (chunk.group(group) != nullptr) {
    cache.Touch(chunk, group);
    return {};
  }
  MNEME_CHECK(source != nullptr, "group {} was dropped without a store", group);
  auto taken = cache.Take(chunk, group, true);
  MNEME_TRY(taken);
  GroupRead read = {.chunk = &chunk, .group = group, .destination = *taken, .status = {}};
  source->Read({&read, 1});
  if (!read.status) cache.Release(chunk, group);
  return read.status;
}

}  // namespace mneme::memory
