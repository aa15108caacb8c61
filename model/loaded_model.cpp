#include "model/loaded_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/memory_needs.h"

namespace mneme::model {
namespace {

using kernels::Dtype;
using memory::Reader;

// A norm's weight as the kernels want it, less 1.
std::vector<float> NormWeight(const TensorView& tensor, const ModelConfig& config) {
  std::vector<float> weight = ToF32(tensor);
  if (config.plain_norms) {
    for (float& each : weight) each -= 1.0f;
  }
  return weight;
}

// Index of `linear` in one of the layout's lists, or -1.
int IndexIn(const std::vector<int>& layers, int linear) {
  const auto found = std::find(layers.begin(), layers.end(), linear);
  return found == layers.end() ? -1 : static_cast<int>(found - layers.begin());
}

// The rows of all blocks as one matrix of the backend's.
Status Pack(std::span<const TensorView> blocks, const kernels::KernelTable& kernels,
            std::unique_ptr<kernels::PackedMatrix>& matrix) {
  auto packed = kernels.pack_weights(blocks);
  MNEME_TRY(packed);
  matrix = std::move(*packed);
  return {};
}

Result<LinearLayer> MakeLinear(const LinearWeights& weights, const LayerHistory& history,
                               const memory::MemoryLayout& layout, int linear,
                               const kernels::KernelTable& kernels) {
  LinearLayer layer;
  std::vector<TensorView> rows = weights.project_qkv;
  rows.insert(rows.end(), {weights.project_z, weights.project_b, weights.project_a});
  MNEME_TRY(Pack(rows, kernels, layer.project_in));
  MNEME_TRY(Pack({&weights.project_out, 1}, kernels, layer.project_out));
  if (weights.conv.elements() > 0) layer.conv = ToF32(weights.conv);
  layer.decay_rate = ToF32(weights.decay_log);
  for (float& rate : layer.decay_rate) rate = std::exp(rate);
  layer.dt_bias = ToF32(weights.dt_bias);
  layer.norm = ToF32(weights.norm);
  layer.linear_layer = linear;
  layer.paged_layer = IndexIn(layout.paged_layers, linear);
  layer.routed_layer = IndexIn(layout.routed_layers, linear);
  layer.recent_chunks = history.recent_chunks;
  if (layer.routed_layer >= 0) {
    layer.route_query = ToF32(history.route->query);
    layer.route_bias = ToF32(history.route->bias);
    layer.pool_key = ToF32(history.route->pool_key);
    layer.pool_value = ToF32(history.route->pool_value);
    layer.pool_output = ToF32(history.route->pool_output);
  }
  return layer;
}

Result<AttentionLayer> MakeAttention(const AttentionWeights& weights, int attention,
                                     const kernels::KernelTable& kernels) {
  AttentionLayer layer;
  const TensorView rows[] = {weights.project_q, weights.project_k, weights.project_v};
  MNEME_TRY(Pack(rows, kernels, layer.project_in));
  MNEME_TRY(Pack({&weights.project_out, 1}, kernels, layer.project_out));
  layer.q_norm = ToF32(weights.q_norm);
  layer.k_norm = ToF32(weights.k_norm);
  layer.attention_layer = attention;
  return layer;
}

Result<DecoderLayer> MakeLayer(const ModelConfig& config, const LayerWeights& weights,
                               const LayerHistory& history, const memory::MemoryLayout& layout,
                               int linear, int attention, const kernels::KernelTable& kernels) {
  DecoderLayer layer;
  layer.mixer_norm = NormWeight(weights.input_norm, config);
  layer.mlp_norm = NormWeight(weights.mlp_norm, config);
  if (weights.kind == LayerKind::kLinear) {
    auto made = MakeLinear(weights.linear, history, layout, linear, kernels);
    MNEME_TRY(made);
    layer.linear = std::move(*made);
  } else {
    auto made = MakeAttention(weights.attention, attention, kernels);
    MNEME_TRY(made);
    layer.attention = std::move(*made);
  }
  const TensorView rows[] = {weights.mlp_gate, weights.mlp_up};
  MNEME_TRY(Pack(rows, kernels, layer.gate_up));
  MNEME_TRY(Pack({&weights.mlp_down, 1}, kernels, layer.down));
  return layer;
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::Make(
    const ModelConfig& config, const Weights& weights, const RouterWeights& router, Reader reader,
    Dtype page_dtype, const kernels::KernelTable& kernels,
    const std::function<void(int, int)>& progress) {
  MNEME_CHECK(router.Offers(reader), "reader {}", NameOf(reader));
  std::unique_ptr<LoadedModel> model(new LoadedModel());
  model->config_ = config;
  model->layout_ = LayoutOf(config, router, reader, page_dtype);
  model->theta_ = router.theta();
  const memory::MemoryLayout& layout = model->layout_;
  int linear = 0;
  int attention = 0;
  for (int index = 0; index < config.layer_count(); ++index) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(index)];
    auto made = MakeLayer(config, layer, router.layers()[static_cast<size_t>(index)], layout,
                          linear, attention, kernels);
    MNEME_TRY(made);
    ++(layer.kind == LayerKind::kLinear ? linear : attention);
    model->layers_.push_back(std::move(*made));
    if (progress) progress(index + 1, config.layer_count() + 1);
  }
  model->final_norm_ = NormWeight(weights.final_norm, config);
  MNEME_TRY(model->TakeHead(weights, kernels));
  if (progress) progress(config.layer_count() + 1, config.layer_count() + 1);
  model->TakeHistory(router);
  return model;
}

Status LoadedModel::TakeHead(const Weights& weights, const kernels::KernelTable& kernels) {
  embedding_bytes_.assign(weights.embedding.bytes,
                          weights.embedding.bytes + weights.embedding.size_bytes());
  embedding_ = weights.embedding;
  embedding_.bytes = embedding_bytes_.data();
  return Pack({&weights.head, 1}, kernels, head_);
}

void LoadedModel::TakeHistory(const RouterWeights& router) {
  for (const DecoderLayer& layer : layers_) {
    if (!layer.linear || layer.linear->routed_layer < 0) continue;
    pool_.push_back({.key = layer.linear->pool_key.data(),
                     .value = layer.linear->pool_value.data(),
                     .output = layer.linear->pool_output.data()});
  }
  if (layout_.reader != Reader::kMhla) return;
  mixing_blocks_ = static_cast<uint32_t>(router.mixing_blocks());
  for (const int linear : layout_.paged_layers) {
    const auto layer = static_cast<size_t>(layout_.linear_layers[static_cast<size_t>(linear)]);
    const LayerHistory& history = router.layers()[layer];
    mixing_.push_back(history.mixing ? ToF32(*history.mixing) : std::vector<float>());
  }
}

float LoadedModel::Mixing(int paged_layer, uint32_t query, uint32_t key) const {
  const auto paged = static_cast<size_t>(paged_layer);
  const uint32_t distance = query - key;
  if (distance <= static_cast<uint32_t>(layout_.recent_chunks[paged])) return 1.0f;
  const std::vector<float>& mixing = mixing_[paged];
  if (mixing.empty()) return 0.0f;
  // Beyond the matrix the last row serves by distance; what is further back than it knows is not
  // read.
  const uint32_t row = std::min(query, mixing_blocks_ - 1);
  return distance > row ? 0.0f : mixing[size_t{row} * mixing_blocks_ + row - distance];
}

size_t LoadedModel::bytes_read() const {
  size_t bytes = head_->bytes_read();
  for (const DecoderLayer& layer : layers_) {
    bytes += layer.gate_up->bytes_read() + layer.down->bytes_read();
    bytes += layer.linear
                 ? layer.linear->project_in->bytes_read() + layer.linear->project_out->bytes_read()
                 : layer.attention->project_in->bytes_read() +
                       layer.attention->project_out->bytes_read();
  }
  return bytes;
}

}  // namespace mneme::model
