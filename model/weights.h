// Weights: every tensor of a model, by layer, as views into the mapped files. Each has been found,
// in the shape that the configuration calls for and in F32, BF16 or F16.
//
// Names are those of the configuration's layout; hla_layout.h has its own. Of a dense Qwen3.5 both
// prefixes of names are read, `model.language_model.` and `model.`. `mtp.*` and the vision
// tower are skipped, as is a stored head where the configuration ties it to the embedding. A tensor
// that belongs to none of these is refused: ignoring a bias would change answers in silence.
//
// Shapes:   letters as in docs/glossary.md; D hidden, F intermediate, E attention head width.
// Owns:     nothing: the WeightFolder must outlive it.
// Errors:   kNotFound         a tensor is missing
//           kInvalidArgument  a tensor has another shape or type than expected, or is unknown
//           kCorruption       a file changed while it was read
//           The message names file, tensor, what was expected and what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "model/model_config.h"
#include "model/weight_folder.h"

namespace mneme::model {

using kernels::TensorView;

// Gated DeltaNet. Rows of project_qkv are q, k, v, each head after head, in one tensor or three.
struct LinearWeights {
  std::vector<TensorView> project_qkv;  // [2 G K + H V, D] together
  TensorView project_z;                 // [H V, D]    output gate
  TensorView project_b;                 // [H, D]      write strength
  TensorView project_a;                 // [H, D]      decay
  TensorView conv;                      // [2 G K + H V, 4], last tap is the current token; or none
  TensorView decay_log;                 // [1, H]      A_log
  TensorView dt_bias;                   // [1, H]
  TensorView norm;                      // [1, V]      plain weight
  TensorView project_out;               // [D, H V]
};

// Gated full attention. Rows of project_q are, per query head, query E then gate E.
struct AttentionWeights {
  TensorView project_q;    // [2 Hq E, D]
  TensorView project_k;    // [Hkv E, D]
  TensorView project_v;    // [Hkv E, D]
  TensorView project_out;  // [D, Hq E]
  TensorView q_norm;       // [1, E]  zero-centred
  TensorView k_norm;       // [1, E]  zero-centred
};

// A layer's router, y = W x per key head.
struct RouteWeights {
  TensorView query;        // [G K, K], head after head
  TensorView pool_key;     // [G K, K]
  TensorView pool_value;   // [G K, K]
  TensorView pool_output;  // [G K, K]
  TensorView bias;         // [1, G]; none where the configuration has one for all
};

struct LayerWeights {
  LayerKind kind = LayerKind::kLinear;
  TensorView input_norm;              // [1, D]  zero-centred
  TensorView mlp_norm;                // [1, D]  the same
  TensorView mlp_gate;                // [F, D]
  TensorView mlp_up;                  // [F, D]
  TensorView mlp_down;                // [D, F]
  LinearWeights linear;               // where kind is kLinear
  AttentionWeights attention;         // where kind is kAttention
  std::optional<RouteWeights> route;  // where the checkpoint itself brings a router
};

struct Weights {
  TensorView embedding;   // [vocab, D]
  TensorView final_norm;  // [1, D]  zero-centred unless ModelConfig::plain_norms
  TensorView head;        // [vocab, D], the embedding itself where the model ties them
  std::vector<LayerWeights> layers;

  uint64_t parameters = 0;       // numbers in the views above, a tied head counted once
  uint64_t stored_bytes = 0;     // the bytes they take in the files
  uint64_t skipped_tensors = 0;  // vision, MTP and the like

  static Result<Weights> Load(const WeightFolder& folder, const ModelConfig& config);
};

}  // namespace mneme::model
