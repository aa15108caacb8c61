// MhlaModel is an MHLA language model packed for a backend; MhlaSession is a session with it in
// this process alone, without a log or a store, as LocalSession is for the models that the server
// serves.
//
// A session keeps, per layer, the sums of the blocks that may still be read, the open block's sum
// and the prefix (block_mix.h): no more than 33 sums, whatever its length, since beyond its 32
// blocks the matrix serves by distance. Forks share the sums of closed blocks.
//
// Threads:  one at a time: sessions of a model share its activations.
// Order:    a prompt is read in pieces of one block; other cuts may change the last bits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/block_mix.h"
#include "kernels/kernel_table.h"
#include "model/mhla_folder.h"

namespace mneme::model {

inline constexpr int kMhlaRowsMax = 4 * kernels::kPieceTokens;  // of one step

// What becomes of a session whose next block the mixing matrix does not know.
enum class BeyondMatrix : uint8_t {
  kByDistance,  // the last row serves by distance: our rule, no published one exists
  kRefuse       // kContextLimit
};

struct MhlaOptions {
  int threads = 1;
  BeyondMatrix beyond = BeyondMatrix::kByDistance;
  uint64_t session_bytes_max = uint64_t{1} << 31;  // cap on one session's block sums, bytes
  // Called with parts done and in all while the weights are packed; may be empty.
  std::function<void(int done, int total)> progress;
};

class MhlaModel {
 public:
  // kResourceExhausted where the model does not fit into the machine, before anything is packed;
  // kInvalidArgument for a mixing matrix with a NaN.
  static Result<std::unique_ptr<MhlaModel>> Load(const MhlaFolder& folder,
                                                 const MhlaOptions& options);

  const MhlaConfig& config() const { return config_; }
  // Logits of each token that `progress` was told of last, [tokens, vocab].
  Status StepLogits(std::span<float> logits);

 private:
  friend class MhlaSession;

  struct Layer {
    std::vector<float> attn_norm, mlp_norm;              // [D]
    std::vector<float> out_norm;                         // [V]
    std::unique_ptr<kernels::PackedMatrix> project_in;   // [2 H K + 2 H V, D]: q, k, v, g
    std::unique_ptr<kernels::PackedMatrix> project_out;  // [D, H V]
    std::unique_ptr<kernels::PackedMatrix> gate_up;      // [2 F, D]
    std::unique_ptr<kernels::PackedMatrix> down;         // [D, F]
    kernels::CausalMixing mixing;
  };

  MhlaModel(const MhlaConfig& config, const MhlaOptions& options);
  static Result<Layer> MakeLayer(const MhlaLayerWeights& weights, int index);

  // Lays out a step: pieces of one block each, or one token.
  void BeginStep(uint64_t position, std::span<const int32_t> tokens, kernels::RowForm form);
  // Runs it; `read` does one piece of one layer, from projected_ to mixed_.
  Status RunLayers(const std::function<Status(size_t layer, const kernels::Piece& piece)>& read);
  Status BlockRead(size_t layer, const kernels::Piece& piece, const kernels::BlockState& state);
  Status Logits(const float* x, std::span<const int32_t> rows, const kernels::Sampling* sampling);

  MhlaConfig config_;
  MhlaOptions options_;
  kernels::BlockShape shape_;
  const kernels::KernelTable& kernels_;
  std::unique_ptr<kernels::Stream> stream_;
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;           // [D]
  std::vector<std::byte> embedding_bytes_;  // [vocab, D]
  kernels::TensorView embedding_;
  std::unique_ptr<kernels::PackedMatrix> head_;  // [vocab, D]

  // The step under way.
  kernels::StepTable table_;
  std::vector<kernels::Piece> pieces_;               // of a prompt; for one token, that token
  std::vector<int32_t> token_, position_, session_;  // [kMhlaRowsMax]
  std::vector<int32_t> rows_;                        // those that are no padding
  std::vector<float> x_, projected_, mixed_;         // [kMhlaRowsMax, ...]
  std::vector<float> logits_;                        // [vocab], or of a whole step
  int32_t drawn_ = -1;
};

class MhlaSession {
 public:
  // An empty session. The model must outlive it.
  explicit MhlaSession(MhlaModel& model);

  // Computes tokens that somebody else wrote. `progress`, where given, is called after each step
  // with the tokens done; false stops early (kCancelled). kInvalidArgument for an id the model does
  // not have, with nothing read; kContextLimit and kResourceExhausted where the next block may not
  // be opened: the tokens before it are read, and position() says how many.
  Status Read(std::span<const int32_t> tokens,
              const std::function<bool(size_t tokens_done)>& progress = {});

  // Draws the token after the last one. kInvalidArgument for an empty session.
  Result<int32_t> Next(const kernels::Sampling& sampling, std::span<float> logits = {});

  // Computes a token that the model drew itself. Errors as Read.
  Status Feed(int32_t token);

  // Another session with the same past.
  MhlaSession Fork() const;

  uint64_t position() const { return position_; }
  // Bytes of the block sums it holds, those shared with forks included.
  uint64_t bytes() const;

 private:
  using Sum = std::vector<float>;  // [H, K, V]

  struct LayerMemory {
    std::deque<std::shared_ptr<const Sum>> closed;  // oldest first, up to the open block
    std::shared_ptr<const Sum> prefix;              // null in the first block
    std::unique_ptr<Sum> open;                      // null before the first token
  };

  Status CheckTokens(std::span<const int32_t> tokens) const;
  // Whether the session may have a block of that number.
  Status CheckBlock(int64_t block) const;
  // How many of `count` tokens one step may take: at least 1, or why not even that.
  Result<size_t> StepTokens(size_t count) const;
  Status Run(std::span<const int32_t> tokens, kernels::RowForm form);
  // One piece of a layer, whose block is opened where it begins.
  Status ReadPiece(size_t layer, const kernels::Piece& piece);
  // Closes the block before, where there is one, and mixes what the new one reads.
  Status OpenBlock(size_t layer, int64_t block);

  MhlaModel* model_;
  uint64_t position_ = 0;
  std::vector<LayerMemory> layers_;
  std::vector<float> last_;  // [D] the last token's row after all layers
};

}  // namespace mneme::model
