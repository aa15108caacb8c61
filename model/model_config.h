// ModelConfig: the sizes and switches of a model, read from config.json once and checked, so that
// nobody below asks again. `model_type` says in which layout the folder is: a dense Qwen3.5 text
// model, or one that a file of its own reads (hla_layout.h).
//
// Qwen3.5:  accepts the file with or without `text_config` (fields of `text_config` win; what
// stands only at the top counts too), and `layer_types` as a list or derived from
// full_attention_interval. What this build does not compute is refused by name: mixtures of
// experts, rope scaling, quantised weights, another activation, biases, another convolution width,
// attention without output gate.
//
// Errors:   kNotFound         no config.json in the folder
//           kCorruption       not JSON, or a field of the wrong type
//           kInvalidArgument  a size outside its limit, or a feature that is not supported; the
//                             message names file, field, what was expected and what was found
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/shape.h"

namespace mneme::model {

inline constexpr uint64_t kConfigBytesMax = 4 * kMiB;
inline constexpr int kHiddenMax = 32768;
inline constexpr int kIntermediateMax = 131072;
inline constexpr int kLayersMax = 256;
inline constexpr int kVocabMax = 1 << 20;
inline constexpr int kHeadsMax = 256;
inline constexpr int kHeadDimMax = 512;
inline constexpr int kValueHeadsPerKeyHeadMax = 8;
inline constexpr int kPositionsMax = 1 << 26;
inline constexpr size_t kEosIdsMax = 16;

enum class LayerKind : uint8_t { kLinear, kAttention };

// By whose names a folder's configuration and tensors go.
enum class ModelLayout : uint8_t {
  kQwen35,  // as Hugging Face writes a dense Qwen3.5
  kHla      // the released HLA-1.3B and its plain twin, converted (hla_layout.h)
};

constexpr std::string_view NameOf(ModelLayout layout) {
  return layout == ModelLayout::kHla ? "hla" : "qwen3_5";
}

// What a layout's own router is read with, where the checkpoint brings one; what the metadata of
// router.safetensors says elsewhere (router_weights.h).
struct BuiltInRouter {
  int window_tokens = 0;
  int pages_max = 0;  // per key head
  float theta = 0;    // gates below it are 0
  float bias = 0;     // of every head's score
};

struct ModelConfig {
  ModelLayout layout = ModelLayout::kQwen35;
  int hidden = 0;        // D
  int intermediate = 0;  // F, width of the MLP
  int vocab = 0;         // rows of the embedding; the last may be padding
  std::vector<LayerKind> layers;

  int key_heads = 0;                   // G
  int value_heads = 0;                 // H, a multiple of G
  int key_dim = 0;                     // K
  int value_dim = 0;                   // V
  int conv_taps = kernels::kConvTaps;  // 0: no convolution before q, k and v
  std::optional<BuiltInRouter> router;

  int query_heads = 0;    // Hq, a multiple of kv_heads
  int kv_heads = 0;       // Hkv
  int attention_dim = 0;  // E, width of an attention head
  int rotary_dim = 0;     // its first dims that turn with the position, even
  double rope_theta = 0;

  int positions_max = 0;     // max_position_embeddings
  float epsilon = 0;         // of every RMSNorm
  bool plain_norms = false;  // weights of all norms are factors; else those of layers are minus 1
  bool tied = false;         // the head is the embedding
  // The top and text_config contradict each other on that; whether lm_head.weight is there decides.
  bool tied_unsure = false;
  // `mneme_thinking` of config.json: false where the model was trained without thinking first, so
  // that asking for it gives noise. Absent: not known, and allowed.
  bool thinking = true;
  // Where generation ends: eos_token_id of config.json and generation_config.json, each id once, in
  // rising order. The tokenizer may add its own.
  std::vector<int32_t> eos_ids;

  // kInvalidArgument where thinking is `wanted` of a model that was trained without.
  Status CheckThinking(bool wanted) const;

  // Reads config.json, and eos_token_id of generation_config.json where there is one.
  static Result<ModelConfig> Read(const std::filesystem::path& folder);
  // The same from text; `generation` may be empty.
  static Result<ModelConfig> Parse(std::string_view config, std::string_view generation = {});

  // Every field that the forward pass reads, as text: configurations with the same text compute the
  // same of the same weights.
  std::string ForwardText() const;

  int layer_count() const { return static_cast<int>(layers.size()); }
  int linear_layers() const;
  int attention_layers() const;
  int key_width() const { return key_heads * key_dim; }
  int value_width() const { return value_heads * value_dim; }
  int conv_width() const { return 2 * key_width() + value_width(); }

  // As the kernels want it. A reader without pages leaves window and pages_max at 0.
  kernels::LinearShape Linear(int chunk_tokens, int window_tokens, int pages_max) const;
  kernels::AttentionShape Attention(int chunk_tokens) const;
};

}  // namespace mneme::model
