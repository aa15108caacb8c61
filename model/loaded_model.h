// LoadedModel: a checkpoint in the form its backend computes with: packed matrices, small vectors
// as f32, and where each layer's memory lies.
//
// Owns:     everything; the checkpoint's files may be closed afterwards.
// Threads:  read-only after Make.
// Bugs:     a reader that the router file does not offer aborts (MNEME_CHECK).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "memory/memory_layout.h"
#include "model/model_config.h"
#include "model/router_weights.h"
#include "model/weights.h"

namespace mneme::model {

// A Gated-DeltaNet layer's own parameters.
struct LinearLayer {
  std::unique_ptr<kernels::PackedMatrix> project_in;   // [projected width, D]: q, k, v, z, b, a
  std::unique_ptr<kernels::PackedMatrix> project_out;  // [D, H V]
  std::vector<float> conv;                             // [conv width, kConvTaps]; empty: none
  std::vector<float> decay_rate;                       // [H]  exp(A_log)
  std::vector<float> dt_bias;                          // [H]
  std::vector<float> norm;                             // [V]
  int linear_layer = 0;                                // index among the linear layers
  int paged_layer = -1;                                // index among the paged layers, or -1
  int routed_layer = -1;                               // index among the routed layers, or -1
  int recent_chunks = 0;
  std::vector<float> route_query;  // [G, K, K]; empty without a router
  std::vector<float> route_bias;   // [G]
  std::vector<float> pool_key;     // [G, K, K]
  std::vector<float> pool_value;   // [G, K, K]
  std::vector<float> pool_output;  // [G, K, K]
};

// A gated full-attention layer's own parameters.
struct AttentionLayer {
  std::unique_ptr<kernels::PackedMatrix> project_in;   // [projected width, D]: q and gate, k, v
  std::unique_ptr<kernels::PackedMatrix> project_out;  // [D, Hq E]
  std::vector<float> q_norm;                           // [E]
  std::vector<float> k_norm;                           // [E]
  int attention_layer = 0;                             // index among the attention layers
};

struct DecoderLayer {
  std::vector<float> mixer_norm;  // [D]
  std::vector<float> mlp_norm;    // [D]
  std::optional<LinearLayer> linear;
  std::optional<AttentionLayer> attention;         // exactly one of the two
  std::unique_ptr<kernels::PackedMatrix> gate_up;  // [2 F, D]
  std::unique_ptr<kernels::PackedMatrix> down;     // [D, F]
};

class LoadedModel {
 public:
  // Packs `weights` for `kernels`, as `reader` wants them, which ModelFolder::ChooseReader allowed.
  // `progress`, where given, is called with parts done and parts in all.
  static Result<std::unique_ptr<LoadedModel>> Make(
      const ModelConfig& config, const Weights& weights, const RouterWeights& router,
      memory::Reader reader, kernels::Dtype page_dtype, const kernels::KernelTable& kernels,
      const std::function<void(int done, int total)>& progress = {});

  const ModelConfig& config() const { return config_; }
  const memory::MemoryLayout& layout() const { return layout_; }
  const std::vector<DecoderLayer>& layers() const { return layers_; }
  const std::vector<float>& final_norm() const { return final_norm_; }
  const kernels::TensorView& embedding() const { return embedding_; }
  const kernels::PackedMatrix& head() const { return *head_; }
  std::span<const kernels::PoolWeights> pool() const { return pool_; }
  float theta() const { return theta_; }

  // MHLA: weight of chunk `key` for queries of chunk `query`, m[query, key].
  float Mixing(int paged_layer, uint32_t query, uint32_t key) const;

  // Bytes that one decode step reads of weights.
  size_t bytes_read() const;

 private:
  LoadedModel() = default;
  Status TakeHead(const Weights& weights, const kernels::KernelTable& kernels);
  void TakeHistory(const RouterWeights& router);

  ModelConfig config_;
  memory::MemoryLayout layout_;
  std::vector<DecoderLayer> layers_;
  std::vector<float> final_norm_;           // [D]
  std::vector<std::byte> embedding_bytes_;  // [vocab, D]
  kernels::TensorView embedding_;
  std::unique_ptr<kernels::PackedMatrix> head_;  // [vocab, D]
  std::vector<kernels::PoolWeights> pool_;       // [routed layers]
  std::vector<std::vector<float>> mixing_;       // [paged layers] of [blocks, blocks] or empty
  uint32_t mixing_blocks_ = 0;
  float theta_ = 0;
};

}  // namespace mneme::model
