#include "model/random_weights.h"

#include <cmath>
#include <utility>

#include "kernels/dtype.h"

namespace mneme::model {
namespace {

// Text sizes of Qwen3.5-0.8B, as its folder has them.
constexpr std::string_view kShape08B = R"({
  "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
  "tie_word_embeddings": true,
  "text_config": {
    "attention_bias": false, "attn_output_gate": true, "eos_token_id": 248044,
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3584, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_value_head_dim": 128,
    "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_attention_heads": 8,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "tie_word_embeddings": true, "vocab_size": 248320,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000,
      "rope_type": "default"}}})";

// softplus(kDecayBias) is 0.02: half of what a head holds is left after 40 tokens.
constexpr float kDecayBias = -4.0f;

}  // namespace

Result<ModelConfig> PublishedShape(std::string_view name) {
  if (name == "0.8b") return ModelConfig::Parse(kShape08B);
  return Fail(ErrorCode::kInvalidArgument, "shape {}: expected 0.8b", name);
}

RandomWeights::RandomWeights(const ModelConfig& config) {
  const int hidden = config.hidden;
  const float from_hidden = 1.0f / std::sqrt(static_cast<float>(hidden));
  weights_.embedding = Random(config.vocab, hidden, from_hidden);
  weights_.final_norm = Filled(hidden, 0.0f);
  weights_.head = config.tied ? weights_.embedding : Random(config.vocab, hidden, from_hidden);

  LayerWeights layer;
  layer.input_norm = layer.mlp_norm = weights_.final_norm;
  layer.mlp_gate = Random(config.intermediate, hidden, from_hidden);
  layer.mlp_up = Random(config.intermediate, hidden, from_hidden);
  layer.mlp_down = Random(hidden, config.intermediate,
                          1.0f / std::sqrt(static_cast<float>(config.intermediate)));
  if (config.linear_layers() > 0) layer.linear = Linear(config);
  if (config.attention_layers() > 0) layer.attention = Attention(config);
  for (const LayerKind kind : config.layers) {
    layer.kind = kind;
    weights_.layers.push_back(layer);
  }
}

LinearWeights RandomWeights::Linear(const ModelConfig& config) {
  const int hidden = config.hidden;
  const float from_hidden = 1.0f / std::sqrt(static_cast<float>(hidden));
  LinearWeights linear;
  linear.project_qkv = {Random(config.conv_width(), hidden, from_hidden)};
  linear.project_z = Random(config.value_width(), hidden, from_hidden);
  linear.project_b = Random(config.value_heads, hidden, from_hidden);
  linear.project_a = Random(config.value_heads, hidden, from_hidden);
  if (config.conv_taps != 0) linear.conv = Random(config.conv_width(), kernels::kConvTaps, 0.5f);
  linear.decay_log = Filled(config.value_heads, 0.0f);
  linear.dt_bias = Filled(config.value_heads, kDecayBias);
  linear.norm = Filled(config.value_dim, 1.0f);
  linear.project_out = Random(hidden, config.value_width(),
                              1.0f / std::sqrt(static_cast<float>(config.value_width())));
  return linear;
}

AttentionWeights RandomWeights::Attention(const ModelConfig& config) {
  const int hidden = config.hidden;
  const float from_hidden = 1.0f / std::sqrt(static_cast<float>(hidden));
  const int queries = config.query_heads * config.attention_dim;
  const int keys = config.kv_heads * config.attention_dim;
  AttentionWeights attention;
  attention.project_q = Random(2 * queries, hidden, from_hidden);
  attention.project_k = Random(keys, hidden, from_hidden);
  attention.project_v = Random(keys, hidden, from_hidden);
  attention.project_out = Random(hidden, queries, 1.0f / std::sqrt(static_cast<float>(queries)));
  attention.q_norm = Filled(config.attention_dim, 0.0f);
  attention.k_norm = Filled(config.attention_dim, 0.0f);
  return attention;
}

// Uniform in [-scale, scale).
TensorView RandomWeights::Random(int rows, int cols, float scale) {
  std::vector<uint16_t> numbers(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  for (uint16_t& number : numbers) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const float unit = static_cast<float>(state_ >> 40) * 0x1p-23f - 1.0f;
    number = kernels::F32ToBf16(unit * scale);
  }
  return Take(std::move(numbers), rows, cols);
}

TensorView RandomWeights::Filled(int size, float value) {
  return Take(std::vector<uint16_t>(static_cast<size_t>(size), kernels::F32ToBf16(value)), 1, size);
}

TensorView RandomWeights::Take(std::vector<uint16_t> numbers, int rows, int cols) {
  numbers_.push_back(std::move(numbers));
  return {.bytes = reinterpret_cast<const std::byte*>(numbers_.back().data()),
          .dtype = kernels::Dtype::kBf16,
          .rows = rows,
          .cols = cols};
}

}  // namespace mneme::model
