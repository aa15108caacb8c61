// MhlaFolder: a checkpoint folder of an MHLA language model, opened and checked as a whole. Weights
// lie in model.safetensors or its shards, under their authors' names:
//
//   model.embeddings.weight [vocab, D]
//   model.norm.weight [D]
//   lm_head.weight [vocab, D], if untied
//   of each layer, model.layers.N.:
//     attn_norm.weight, mlp_norm.weight [D]
//     attn.{q,k}_proj.weight [H K, D]
//     attn.{v,g}_proj.weight [H V, D]
//     attn.o_proj.weight [D, H V]
//     attn.g_norm_swish_gate.weight [V]
//     attn.mixing_matrix [32, 32, 1, 1, 1, 1]
//     mlp.{gate,up}_proj.weight [F, D]
//     mlp.down_proj.weight [D, F]
//
// in F32, BF16 or F16. A stored head where the embedding is the head, and rotary frequencies, are
// skipped; any other tensor is refused.
//
// Source:   models.md 1.1; DAGroup-PKU/MHLA, the configuration and the model of its nlp part.
// Owns:     the mapped files, which its views look into; needed only until the model is packed.
// Errors:   kNotFound         no folder, no configuration, no weights, or a tensor is missing
//           kInvalidArgument  a tensor has another shape or type than expected, or is unknown
//           otherwise as MhlaConfig and WeightFolder; a message names file, value, what was
//           expected and what was found
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "model/mhla_config.h"
#include "model/tokenizer.h"
#include "model/weight_folder.h"

namespace mneme::model {

struct MhlaLayerWeights {
  kernels::TensorView attn_norm;    // [1, D]
  kernels::TensorView project_q;    // [H K, D]
  kernels::TensorView project_k;    // [H K, D]
  kernels::TensorView project_v;    // [H V, D]
  kernels::TensorView project_g;    // [H V, D]  output gate
  kernels::TensorView project_out;  // [D, H V]
  kernels::TensorView out_norm;     // [1, V]
  kernels::TensorView mixing;       // [32, 32]
  kernels::TensorView mlp_norm;     // [1, D]
  kernels::TensorView mlp_gate;     // [F, D]
  kernels::TensorView mlp_up;       // [F, D]
  kernels::TensorView mlp_down;     // [D, F]
};

struct MhlaWeights {
  kernels::TensorView embedding;   // [vocab, D]
  kernels::TensorView final_norm;  // [1, D]
  kernels::TensorView head;        // [vocab, D], the embedding itself where the model ties them
  std::vector<MhlaLayerWeights> layers;

  uint64_t parameters = 0;       // numbers in the views above, a tied head counted once
  uint64_t stored_bytes = 0;     // the bytes they take in the files
  uint64_t skipped_tensors = 0;  // a head that is not read
};

// What the model needs of a machine, in bytes.
struct MhlaNeeds {
  uint64_t weights_bytes = 0;      // packed, embedding and head included
  uint64_t block_bytes = 0;        // sums of one block, all layers
  uint64_t session_bytes_max = 0;  // 32 blocks to read, the open one and the prefix
};

class MhlaFolder {
 public:
  // Every error names the folder.
  static Result<MhlaFolder> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const MhlaConfig& config() const { return config_; }
  const MhlaWeights& weights() const { return weights_; }
  MhlaNeeds Needs() const;

  bool has_tokenizer() const;
  // kNotFound where there is no tokenizer.json: the model then speaks in ids only.
  Result<Tokenizer> OpenTokenizer() const;

  // Refuses a folder whose model does not fit into the machine's free memory.
  Status CheckFitsMachine() const;

  // As ModelFolder::CheckFinite.
  Status CheckFinite() const;

 private:
  static Result<MhlaFolder> OpenFiles(const std::filesystem::path& path);
  MhlaFolder(std::filesystem::path path, MhlaConfig config, WeightFolder files)
      : path_(std::move(path)), config_(std::move(config)), files_(std::move(files)) {}
  Status TakeWeights();

  std::filesystem::path path_;
  MhlaConfig config_;
  WeightFolder files_;
  MhlaWeights weights_;
};

}  // namespace mneme::model
