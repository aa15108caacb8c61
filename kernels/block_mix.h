// BlockMix: MHLA as its language model uses it: causal linear attention in blocks of 64 tokens,
// where a block reads those before it through the layer's mixing matrix, and itself with the
// matrix's diagonal. With S_j = sum_{u in block j} k_u^T v_u, token t of block i gets, per head,
//
//   o_t = q_t ( sum_{j<i} m[i,j] S_j  +  m[i,i] sum_{u<=t, u in block i} k_u^T v_u )
//
// There is no normaliser. A session keeps, per layer, the open block's sum C so far, the sums of
// closed blocks, and their mixture for the open block, the prefix P, made once when a block opens:
// a token then costs C += k^T v and o = q (P + m[i,i] C).
//
// Source:   models.md 1.2, 1.3; DAGroup-PKU/MHLA, the language model's layer and its chunk form.
// Shapes:   sums, prefix [H, K, V]; letters as in docs/glossary.md.
// Threads:  the stream's, or any where no stream is given.
// Order:    decode rows depend on the row alone. Rows of a piece go through BLAS: their bits may
//           depend on where the pieces were cut, and a NaN in a later token of a piece reaches
//           its earlier rows.
// Errors:   kInvalidArgument  an array is null or a size is out of range; nothing was done
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "kernels/shape.h"

namespace mneme::kernels {

inline constexpr int kMixBlockTokens = 64;
inline constexpr float kMixingWeightMin = 1e-5f;  // at and below the diagonal

// The mixing matrix of one layer as every call of the model holds it: numbers in
// [kMixingWeightMin, 1], above the diagonal 0. Rows need not sum to 1.
//
// Beyond the matrix (the released one is 32 x 32, and its code ends there) the last row serves by
// distance, and what is further back than it knows has weight 0. That rule is ours.
class CausalMixing {
 public:
  // stored [blocks, blocks], any finite numbers. kInvalidArgument for a NaN, or blocks below 1.
  static Result<CausalMixing> Make(std::span<const float> stored, int blocks);

  int blocks() const { return blocks_; }
  // m[query, key], key <= query.
  float Weight(int64_t query, int64_t key) const;
  // The oldest block that a block reads.
  int64_t FirstRead(int64_t query) const { return query < blocks_ ? 0 : query - blocks_ + 1; }

 private:
  int blocks_ = 0;
  std::vector<float> weights_;  // [blocks, blocks]
};

// Up to kMixBlockTokens tokens of one head and block.
template <typename Real>
struct MixPieceArgs {
  int count = 0;  // n
  int key_dim = 0, value_dim = 0;
  const Real* q = nullptr;  // [n, K], key_stride from token to token; scaled
  const Real* k = nullptr;  // [n, K]
  const Real* v = nullptr;  // [n, V], value_stride from token to token
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  const Real* prefix = nullptr;  // P [K, V]; null: no block before
  Real own_weight = 0;           // m[i,i]
  Real* open = nullptr;          // C [K, V]  in and out
  Real* out = nullptr;           // [n, V], out_stride from token to token
  int64_t out_stride = 0;
  Real* scratch = nullptr;  // [n, n]
};

Status Validate(const BlockReadArgs& args);
Status Validate(const BlockPrefixArgs& args);

namespace cpu {

template <typename Real>
void MixPiece(const MixPieceArgs<Real>& args);

// out[i] <- sum_j weights[j] sums[j][i] for i in [begin, end), in order of j.
template <typename Real>
void MixSums(std::span<const Real* const> sums, std::span<const Real> weights, int64_t begin,
             int64_t end, Real* out);

Status BlockRead(const BlockReadArgs& args, Stream& stream);
Status BlockPrefix(const BlockPrefixArgs& args, Stream& stream);

}  // namespace cpu

}  // namespace mneme::kernels
