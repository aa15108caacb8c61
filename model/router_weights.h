// RouterWeights: what our two files beside a checkpoint add to it, and how its layers keep history.
// A folder with neither is read natively, and says so, unless the checkpoint brings its own router
// (layout hla). That one stands in the weights, is read with ModelConfig::router, and admits no
// router.safetensors beside it.
//
// router.safetensors (reader hla), mathematics of docs/models.md:
//   layers.N.route.q.weight, .pool_k.weight, .pool_v.weight, .pool_o.weight   [G, K, K], y = W x
//   layers.N.route.bias                                                        [G]
//   for each linear layer N that is not closed. Metadata: reader "hla", chunk, window, theta,
//   pages_max; closed_layers and recent_chunks may be absent.
// mixing.safetensors (reader mhla):
//   layers.N.mixing   [blocks, blocks], at most 128; row: the query's chunk, column: the chunk read
//   for each linear layer N that is not closed. Metadata: reader "mhla", chunk; closed_layers and
//   recent_chunks may be absent.
//
// Metadata values are strings, as safetensors has it: decimal numbers ("16", "0.1"), and lists of
// decimal numbers with or without brackets ("[0,1]" or "0,1"; "[]" or "" is empty).
//   closed_layers   layers without a router, as indices in the model: no tensors, every gate 0
//   recent_chunks   one number for each layer of the model: so many of the newest closed chunks are
//                   read with gate 1 whatever the router says, and count in pages_max
// Both files carry them, and must agree. Keys that are not listed here, but for `format` and those
// that begin with `note`, are refused: a misspelt key would change answers in silence.
//
// Owns:     the mapped files its views look into.
// Errors:   kNotFound         a tensor is missing
//           kInvalidArgument  a value outside its limits, an unknown key or tensor, another shape
//           or
//                             type, files that disagree
//           kCorruption       the bytes contradict themselves, or changed while they were read
//           The message names file, tensor or key, what was expected and what was found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "memory/memory_layout.h"
#include "model/model_config.h"
#include "model/weight_file.h"
#include "model/weights.h"

namespace mneme::model {

inline constexpr int kChunkTokens = 256;  // the only size of a chunk that this build seals
inline constexpr int kWindowTokensMin = 4;
inline constexpr int kPagesMaxMax = 256;
inline constexpr int kMixingBlocksMax = 128;

// How one layer of the model keeps history.
struct LayerHistory {
  bool linear = false;    // a full-attention layer has none of what follows
  bool closed = false;    // every gate 0 but for the recent chunks
  int recent_chunks = 0;  // newest closed chunks read with gate 1
  // Where the file exists and the layer is linear and not closed.
  std::optional<RouteWeights> route;
  std::optional<kernels::TensorView> mixing;  // [blocks, blocks]
};

class RouterWeights {
 public:
  // Reads the files that are there; neither is a good answer too. The views of a router that the
  // checkpoint brings are those of `weights`.
  static Result<RouterWeights> Open(const std::filesystem::path& folder, const ModelConfig& config,
                                    const Weights& weights);

  // Of a model without such files and without a router of its own.
  static RouterWeights None(const ModelConfig& config);

  // Of a model with a mixing that reads the newest `chunks` closed chunks of every linear layer
  // with gate 1 and no others: `mneme bench` measures with it what static gates cost.
  static RouterWeights NewestOpen(const ModelConfig& config, int chunks);

  bool has_router() const { return router_.has_value() || !bias_.empty(); }
  bool has_mixing() const { return mixing_.has_value() || newest_open_; }
  bool Offers(memory::Reader reader) const;
  // hla where there is a router, else native.
  memory::Reader default_reader() const;

  // One for each layer of the model. Without files: linear layers, none closed, no recent chunks.
  const std::vector<LayerHistory>& layers() const { return layers_; }
  // Numbers in router.safetensors and in mixing.safetensors.
  uint64_t router_parameters() const;
  uint64_t mixing_parameters() const;
  int chunk_tokens() const { return kChunkTokens; }
  int window_tokens() const { return window_tokens_; }  // 0 without a router
  int pages_max() const { return pages_max_; }          // per key head; 0 without a router
  float theta() const { return theta_; }                // gates below it are 0; 0 without a router
  int mixing_blocks() const { return mixing_blocks_; }  // 0 without mixing

  // The files that this reader's weights are fingerprinted over; none for native.
  std::vector<const MappedFile*> FingerprintFiles(memory::Reader reader) const;
  Status CheckFinite() const;
  Status CheckUnchanged() const;

 private:
  friend class RouterReading;

  std::optional<WeightFile> router_;
  std::optional<WeightFile> mixing_;
  bool newest_open_ = false;  // mixing without a file
  std::vector<float> bias_;   // [G] of the checkpoint's own router; empty without one
  std::vector<LayerHistory> layers_;
  int window_tokens_ = 0;
  int pages_max_ = 0;
  float theta_ = 0;
  int mixing_blocks_ = 0;
};

}  // namespace mneme::model
