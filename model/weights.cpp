#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "model/hla_layout.h"
#include "model/tensor_taker.h"

namespace mneme::model {
namespace {

constexpr std::string_view kPrefixes[] = {"model.language_model.", "model."};
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kSkipped[] = {"mtp.", "model.mtp.", "model.visual.", "visual."};

uint64_t U(int value) { return static_cast<uint64_t>(value); }

// Takes the tensors of a dense Qwen3.5.
class QwenLoader {
 public:
  QwenLoader(Weights& weights, TensorTaker& taker, const ModelConfig& config)
      : weights_(weights), taker_(taker), config_(config) {}

  Status Load() {
    MNEME_TRY(FindPrefix());
    MNEME_TRY(Take(weights_.embedding, Named(kEmbedding), {U(config_.vocab), U(config_.hidden)}));
    MNEME_TRY(Take(weights_.final_norm, Named("norm.weight"), {U(config_.hidden)}));
    weights_.head = weights_.embedding;
    if (config_.tied_unsure ? taker_.Has(kHead) : !config_.tied)
      MNEME_TRY(Take(weights_.head, std::string(kHead), {U(config_.vocab), U(config_.hidden)}));
    weights_.layers.resize(config_.layers.size());
    for (size_t layer = 0; layer < config_.layers.size(); ++layer) MNEME_TRY(LoadLayer(layer));
    auto skipped = taker_.CountSkipped(
        IsSkipped, fmt::format("a dense Qwen3.5 model with {} layers", config_.layer_count()));
    MNEME_TRY(skipped);
    weights_.skipped_tensors = *skipped;
    return {};
  }

 private:
  static bool IsSkipped(std::string_view name) {
    return name == kHead || name.ends_with(".rotary_emb.inv_freq") ||
           std::any_of(std::begin(kSkipped), std::end(kSkipped),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
  }

  Status FindPrefix() {
    for (const std::string_view prefix : kPrefixes) {
      if (!taker_.Has(std::string(prefix) + std::string(kEmbedding))) continue;
      prefix_ = prefix;
      return {};
    }
    return Fail(ErrorCode::kNotFound, "{}: tensor {}{}: expected it or {}{}, found neither",
                taker_.first_file(), kPrefixes[0], kEmbedding, kPrefixes[1], kEmbedding);
  }

  std::string Named(std::string_view rest) const { return std::string(prefix_).append(rest); }

  Status Take(TensorView& view, std::string name, std::vector<uint64_t> shape) {
    return taker_.Take(view, std::move(name), std::move(shape));
  }

  Status LoadLayer(size_t index) {
    LayerWeights& layer = weights_.layers[index];
    layer.kind = config_.layers[index];
    const std::string at = Named(fmt::format("layers.{}.", index));
    const uint64_t hidden = U(config_.hidden);
    const uint64_t wide = U(config_.intermediate);
    MNEME_TRY(Take(layer.input_norm, at + "input_layernorm.weight", {hidden}));
    MNEME_TRY(Take(layer.mlp_norm, at + "post_attention_layernorm.weight", {hidden}));
    MNEME_TRY(Take(layer.mlp_gate, at + "mlp.gate_proj.weight", {wide, hidden}));
    MNEME_TRY(Take(layer.mlp_up, at + "mlp.up_proj.weight", {wide, hidden}));
    MNEME_TRY(Take(layer.mlp_down, at + "mlp.down_proj.weight", {hidden, wide}));
    return layer.kind == LayerKind::kLinear ? LoadLinear(layer.linear, at + "linear_attn.")
                                            : LoadAttention(layer.attention, at + "self_attn.");
  }

  Status LoadLinear(LinearWeights& linear, const std::string& at) {
    const uint64_t hidden = U(config_.hidden);
    const uint64_t heads = U(config_.value_heads);
    const uint64_t conv = U(config_.conv_width());
    const uint64_t values = U(config_.value_width());
    linear.project_qkv.resize(1);
    MNEME_TRY(Take(linear.project_qkv[0], at + "in_proj_qkv.weight", {conv, hidden}));
    MNEME_TRY(Take(linear.project_z, at + "in_proj_z.weight", {values, hidden}));
    MNEME_TRY(Take(linear.project_b, at + "in_proj_b.weight", {heads, hidden}));
    MNEME_TRY(Take(linear.project_a, at + "in_proj_a.weight", {heads, hidden}));
    MNEME_TRY(Take(linear.conv, at + "conv1d.weight", {conv, 1, U(kernels::kConvTaps)}));
    MNEME_TRY(Take(linear.decay_log, at + "A_log", {heads}));
    MNEME_TRY(Take(linear.dt_bias, at + "dt_bias", {heads}));
    MNEME_TRY(Take(linear.norm, at + "norm.weight", {U(config_.value_dim)}));
    return Take(linear.project_out, at + "out_proj.weight", {hidden, values});
  }

  Status LoadAttention(AttentionWeights& attention, const std::string& at) {
    const uint64_t hidden = U(config_.hidden);
    const uint64_t dim = U(config_.attention_dim);
    const uint64_t queries = U(config_.query_heads) * dim;
    const uint64_t keys = U(config_.kv_heads) * dim;
    MNEME_TRY(Take(attention.project_q, at + "q_proj.weight", {2 * queries, hidden}));
    MNEME_TRY(Take(attention.project_k, at + "k_proj.weight", {keys, hidden}));
    MNEME_TRY(Take(attention.project_v, at + "v_proj.weight", {keys, hidden}));
    MNEME_TRY(Take(attention.project_out, at + "o_proj.weight", {hidden, queries}));
    MNEME_TRY(Take(attention.q_norm, at + "q_norm.weight", {dim}));
    return Take(attention.k_norm, at + "k_norm.weight", {dim});
  }

  Weights& weights_;
  TensorTaker& taker_;
  const ModelConfig& config_;
  std::string_view prefix_;
};

}  // namespace

Result<Weights> Weights::Load(const WeightFolder& folder, const ModelConfig& config) {
  Weights weights;
  TensorTaker taker(folder);
  switch (config.layout) {
    case ModelLayout::kQwen35:
      MNEME_TRY(QwenLoader(weights, taker, config).Load());
      break;
    case ModelLayout::kHla:
      MNEME_TRY(TakeHlaWeights(weights, taker, config));
      break;
  }
  weights.parameters = taker.parameters();
  weights.stored_bytes = taker.stored_bytes();
  MNEME_TRY(folder.CheckUnchanged());
  return weights;
}

}  // namespace mneme::model
