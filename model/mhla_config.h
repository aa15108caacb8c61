// MhlaConfig: the sizes of an MHLA language model, read from the config.json of its authors' layout
// and checked. `model_type` is "gla", since their code grew out of that model's; what makes the
// folder an MHLA model are the mixing matrices among its tensors.
//
// Read:     hidden_size, num_hidden_layers, num_heads, vocab_size, expand_k (0.5), expand_v (1),
//           hidden_ratio (4), intermediate_size (null: hidden_size hidden_ratio 2/3, rounded up to
//           a multiple of 256), norm_eps (1e-6), max_position_embeddings (2048; no limit here),
//           tie_word_embeddings (false), bos_token_id, eos_token_id, fuse_norm (true)
// Refused:  what this build does not compute, by name: another attn_extends than "mhla", another
//           feature_map than "relu", fewer key heads, short convolutions, attention layers, no
//           output gate, another activation, quantised weights
// Errors:   as in config_fields.h, kNotFound where there is no config.json
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/shape.h"

namespace mneme::model {

inline constexpr std::string_view kMhlaModelType = "gla";
inline constexpr int kMhlaMatrixBlocks = 32;  // rows and columns of a stored mixing matrix
inline constexpr double kMhlaRopeTheta = 10'000;

struct MhlaConfig {
  int hidden = 0;        // D
  int intermediate = 0;  // F
  int layers = 0;
  int vocab = 0;
  int heads = 0;           // H
  int key_dim = 0;         // K, even
  int value_dim = 0;       // V
  int trained_tokens = 0;  // max_position_embeddings
  float epsilon = 0;       // of every RMSNorm
  bool tied = false;       // the head is the embedding
  bool fused_norm = true;  // decides the name of the output norm's weight
  int32_t bos_id = -1;     // -1: none
  std::vector<int32_t> eos_ids;

  static Result<MhlaConfig> Read(const std::filesystem::path& folder);
  static Result<MhlaConfig> Parse(std::string_view text);

  kernels::BlockShape Shape() const { return {heads, key_dim, value_dim, kMhlaRopeTheta}; }
};

// Whether the folder's config.json says that it is of this layout. kNotFound and kCorruption as
// above.
Result<bool> IsMhlaFolder(const std::filesystem::path& folder);

}  // namespace mneme::model
