#include "model/memory_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "base/bytes.h"
#include "memory/chunk_value.h"
#include "memory/ladder.h"

namespace mneme::model {
namespace {

using kernels::Dtype;
using memory::MemoryLayout;
using memory::Reader;

constexpr uint64_t kF32Bytes = sizeof(float);
constexpr int kWorkspaceRows = 256;   // rows of the largest step
constexpr int kWorkspaceLogits = 16;  // rows that logits are kept for

uint64_t U(int64_t value) { return static_cast<uint64_t>(value); }

// One packed matrix made of these parts.
uint64_t PackedBytes(const std::vector<const TensorView*>& parts) {
  uint64_t elements = 0;
  bool all_bf16 = true;
  for (const TensorView* part : parts) {
    elements += U(part->elements());
    all_bf16 = all_bf16 && part->dtype == Dtype::kBf16;
  }
  return elements * (all_bf16 ? kernels::BytesOf(Dtype::kBf16) : kF32Bytes);
}

uint64_t VectorBytes(std::initializer_list<const TensorView*> parts) {
  uint64_t elements = 0;
  for (const TensorView* part : parts) elements += U(part->elements());
  return elements * kF32Bytes;
}

uint64_t LayerBytes(const LayerWeights& layer) {
  uint64_t bytes = VectorBytes({&layer.input_norm, &layer.mlp_norm});
  bytes += PackedBytes({&layer.mlp_gate, &layer.mlp_up}) + PackedBytes({&layer.mlp_down});
  if (layer.kind == LayerKind::kAttention) {
    const AttentionWeights& own = layer.attention;
    return bytes + PackedBytes({&own.project_q, &own.project_k, &own.project_v}) +
           PackedBytes({&own.project_out}) + VectorBytes({&own.q_norm, &own.k_norm});
  }
  const LinearWeights& own = layer.linear;
  std::vector<const TensorView*> in = {&own.project_z, &own.project_b, &own.project_a};
  for (const TensorView& part : own.project_qkv) in.push_back(&part);
  return bytes + PackedBytes(in) + PackedBytes({&own.project_out}) +
         VectorBytes({&own.conv, &own.decay_log, &own.dt_bias, &own.norm});
}

uint64_t WeightsBytes(const Weights& weights, const RouterWeights& router) {
  uint64_t bytes = weights.embedding.size_bytes() + PackedBytes({&weights.head}) +
                   VectorBytes({&weights.final_norm});
  for (const LayerWeights& layer : weights.layers) bytes += LayerBytes(layer);
  for (const LayerHistory& layer : router.layers()) {
    if (layer.route)
      bytes += VectorBytes({&layer.route->query, &layer.route->pool_key, &layer.route->pool_value,
                            &layer.route->pool_output, &layer.route->bias});
    if (layer.mixing) bytes += VectorBytes({&*layer.mixing});
  }
  return bytes;
}

uint64_t WorkspaceBytes(const ModelConfig& config, const RouterWeights& router) {
  const kernels::LinearShape linear = config.Linear(kChunkTokens, kChunkTokens, 1);
  const kernels::AttentionShape attention = config.Attention(kChunkTokens);
  const int mixed = std::max(config.value_width(), config.query_heads * config.attention_dim);
  const int wide = std::max(linear.projected_width(), attention.projected_width());
  const int list = config.key_heads * std::max(router.pages_max(), 1);
  const uint64_t row = U(config.hidden) + U(wide) + U(config.conv_width()) +
                       2 * U(config.value_heads) + U(mixed) + 2 * U(config.intermediate) +
                       5 * U(list);
  return (row * kWorkspaceRows + U(config.vocab) * kWorkspaceLogits) * kF32Bytes;
}

ReaderNeeds NeedsOf(const ModelConfig& config, const RouterWeights& router, Reader reader,
                    Dtype page_dtype) {
  const MemoryLayout layout = LayoutOf(config, router, reader, page_dtype);
  const kernels::LinearShape& linear = layout.linear;
  const kernels::AttentionShape& attention = layout.attention;
  const uint64_t layer_chunk_bytes = U(linear.key_heads) * layout.group_bytes();

  ReaderNeeds needs;
  needs.reader = reader;
  needs.offered = router.Offers(reader);
  for (size_t paged = 0; paged < layout.paged_layers.size(); ++paged) {
    const int layer = layout.linear_layers[static_cast<size_t>(layout.paged_layers[paged])];
    if (router.layers()[static_cast<size_t>(layer)].closed) {
      needs.recent_page_bytes += U(layout.recent_chunks[paged]) * layer_chunk_bytes;
    } else {
      needs.page_bytes += layer_chunk_bytes;
    }
  }
  needs.representative_bytes = layout.representatives_count() * kernels::BytesOf(Dtype::kF16);
  needs.index_bytes = layout.centroid_count() * kernels::BytesOf(Dtype::kI8) +
                      layout.radius_count() * 2 * kF32Bytes;
  needs.kv_bytes = layout.attention_layers.size() * layout.kv_page_bytes();

  needs.rung_bytes = memory::HasLadder(layout) ? memory::RungBytes(layout) : 0;
  needs.disk_chunk_bytes = memory::ChunkValueBytes(layout) - needs.rung_bytes;

  const uint64_t tokens = U(kChunkTokens);
  const uint64_t keys = U(linear.key_width()) * tokens;
  const uint64_t rows = U(linear.value_heads) * tokens * (U(linear.key_dim + linear.value_dim) + 1);
  const uint64_t linear_layers = layout.linear_layers.size();
  uint64_t floats = linear_layers * (keys + rows + 2 * layout.conv_tail_floats());
  floats += layout.routed_layers.size() * keys;
  floats +=
      layout.attention_layers.size() * 2 * U(attention.kv_heads) * tokens * U(attention.head_dim);
  needs.open_chunk_bytes = floats * kF32Bytes + needs.representative_bytes;
  if (layout.folds()) needs.folded_bytes = linear_layers * layout.folded_floats() * kF32Bytes;
  return needs;
}

}  // namespace

MemoryLayout LayoutOf(const ModelConfig& config, const RouterWeights& router, Reader reader,
                      Dtype page_dtype) {
  MemoryLayout layout;
  layout.reader = reader;
  layout.hidden = config.hidden;
  layout.page_dtype = page_dtype;
  layout.attention = config.Attention(kChunkTokens);
  int recent_max = 1;
  for (size_t index = 0; index < config.layers.size(); ++index) {
    if (config.layers[index] == LayerKind::kAttention) {
      layout.attention_layers.push_back(static_cast<int>(index));
      continue;
    }
    const auto linear = static_cast<int>(layout.linear_layers.size());
    layout.linear_layers.push_back(static_cast<int>(index));
    const LayerHistory& history = router.layers()[index];
    recent_max = std::max(recent_max, history.recent_chunks);
    if (reader == Reader::kNative || (history.closed && history.recent_chunks == 0)) continue;
    layout.paged_layers.push_back(linear);
    layout.recent_chunks.push_back(history.recent_chunks);
    if (history.closed)
      layout.closed_layers.push_back(static_cast<int>(layout.paged_layers.size()) - 1);
    if (reader == Reader::kHla && !history.closed) layout.routed_layers.push_back(linear);
  }
  const bool routed = reader == Reader::kHla && router.has_router();
  layout.linear = config.Linear(kChunkTokens, routed ? router.window_tokens() : kChunkTokens,
                                routed ? router.pages_max() : recent_max);
  return layout;
}

std::optional<uint64_t> ReaderNeeds::TokensWithin(uint64_t cap_bytes) const {
  if (cap_bytes < session_bytes()) return 0;
  if (chunk_bytes() == 0) return std::nullopt;
  return (cap_bytes - session_bytes()) / chunk_bytes() * kChunkTokens;
}

MemoryNeeds MemoryNeeds::Of(const ModelConfig& config, const Weights& weights,
                            const RouterWeights& router, Dtype page_dtype) {
  MemoryNeeds needs;
  needs.stored_bytes = weights.stored_bytes;
  needs.weights_bytes = WeightsBytes(weights, router);
  needs.workspace_bytes = WorkspaceBytes(config, router);
  for (const Reader reader : {Reader::kNative, Reader::kMhla, Reader::kHla})
    needs.readers[static_cast<size_t>(reader)] = NeedsOf(config, router, reader, page_dtype);
  return needs;
}

Status CheckFits(const MemoryNeeds& needs, Reader reader, uint64_t available_bytes) {
  const ReaderNeeds& own = needs.For(reader);
  const uint64_t needed =
      needs.weights_bytes + needs.workspace_bytes + own.session_bytes() + own.chunk_bytes();
  if (needed <= available_bytes) return {};
  return Fail(ErrorCode::kResourceExhausted,
              "the model does not fit into memory: needed {} bytes ({}: weights {}, a step {}, one "
              "session {}), free {} bytes ({})",
              needed, BytesText(needed), BytesText(needs.weights_bytes),
              BytesText(needs.workspace_bytes), BytesText(own.session_bytes() + own.chunk_bytes()),
              available_bytes, BytesText(available_bytes));
}

std::string BytesText(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", value / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", value / kMiB);
  if (bytes >= kKiB) return fmt::format("{:.1f} KiB", value / kKiB);
  return fmt::format("{} B", bytes);
}

}  // namespace mneme::model
