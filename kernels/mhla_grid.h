// MhlaGrid: MHLA as images and videos use it: linear attention over a grid of tokens that is cut
// into blocks, where a block reads the others through a mixing matrix. Nothing is causal. With
//
//   S_j = sum_{u in block j} k_u^T v_u        z_j = sum_{u in block j} k_u
//
// token t of block i gets
//
//   o_t = q_t sum_j m[i,j] S_j / n_t
//
//   kNone      n_t = 1
//   kOfQuery   n_t = q_t . sum_j m[i,j] z_j + epsilon
//   kOfPlace   n_t = sum_j m[i,j] (q_jw . z_j) + epsilon, q_jw the query at t's place w of block j:
//              what the released layers compute. All blocks must then be of one size
//
// q and k come through a feature map (`MapFeatures` is the layers' own) and may be rotated
// afterwards; the normaliser is of the features before the rotation, which `plain_q` and `plain_k`
// are for. One block of weight 1, or a matrix of ones, is plain linear attention.
//
// Source:   DAGroup-PKU/MHLA, the layers for image classification and for video.
// Shapes:   tokens in the grid's own order, last axis innermost; m [L, L], query block first, is
//           shared by grids and heads. L blocks are counted like tokens, last axis innermost.
// Threads:  the stream's; a workspace serves one call at a time.
// Order:    a number's bits depend on the grid, its blocks and the sizes, not on threads.
// Cost:     2 T K V + L^2 K V multiplications a head, for T tokens.
// Errors:   kInvalidArgument  an array is null, a size or a weight is out of range; nothing was
// done
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/stream.h"

namespace mneme::kernels {

inline constexpr int kGridAxes = 3;
inline constexpr int64_t kGridTokensMax = int64_t{1} << 22;
inline constexpr int kGridBlocksMax = 4096;
// L K V of one head: block sums and their mixtures take twice as many numbers of memory.
inline constexpr int64_t kGridNumbersMax = int64_t{1} << 26;

// Tokens and tokens of a block along each axis. A grid of fewer axes has its first sizes 1. The
// last block of an axis is smaller where the sizes do not divide.
struct TokenGrid {
  std::array<int, kGridAxes> size = {1, 1, 1};
  std::array<int, kGridAxes> block = {1, 1, 1};

  int64_t tokens() const { return int64_t{size[0]} * size[1] * size[2]; }
  int blocks_along(int axis) const;
  int64_t blocks() const;  // L
  // All blocks are of one size.
  bool even() const;
};

// Sizes of at least 1, tokens and blocks within the limits.
Status Validate(const TokenGrid& grid);

// What a mixing matrix is before training, by the Euclidean distance d between the places of two
// blocks in the grid of blocks; D is the largest there is:
//
//   kLinear    1 - d / D               kExp      e^(-d / exp_reach)
//   kCos       cos(pi/4 d / D)         kLocal    1 where d <= local_reach, else 0
//   kGaussian  e^(-d^2 / (2 (D/3)^2))
//
// One block has weight 1. The released layers begin with kCos (image classes), kLinear (image
// generation and video).
enum class MixingStart : uint8_t { kLinear, kCos, kExp, kGaussian, kLocal };

struct MixingStartOptions {
  MixingStart start = MixingStart::kCos;
  double exp_reach = 3;      // blocks
  double local_reach = 1.5;  // blocks
  // Each column, what the blocks take from one block, is made to sum to 1. The released code leaves
  // kGaussian as it is.
  bool normalize_columns = true;
};

// mixing [L, L] <- the weights, computed in double and rounded once.
template <typename Real>
Status StartMixing(const TokenGrid& grid, const MixingStartOptions& options,
                   std::span<Real> mixing);

// Holds the weights of a learned matrix in [0, 1], as training does after each of its steps.
// kInvalidArgument for a NaN, which no range can hold; nothing is changed then.
template <typename Real>
Status ClipMixing(std::span<Real> mixing);

// out[i] <- max(x[i], 0) + epsilon, the feature map; `out` may be `x`.
template <typename Real>
void MapFeatures(std::span<const Real> x, Real epsilon, Real* out);

enum class GridNormalizer : uint8_t { kNone, kOfQuery, kOfPlace };

struct MhlaGridShape {
  TokenGrid grid;
  int heads = 0;      // H
  int key_dim = 0;    // K, at most kHeadDimMax
  int value_dim = 0;  // V, at most kHeadDimMax
};

// Room for what lies between, for one shape.
template <typename Real>
struct MhlaGridWorkspace {
  explicit MhlaGridWorkspace(const MhlaGridShape& shape_of_calls);

  MhlaGridShape shape;
  int heads_at_once = 0;            // heads whose sums are in memory together
  std::vector<int> token;           // [T]  tokens, block after block
  std::vector<int> first;           // [L + 1]  where a block begins in `token`
  std::vector<Real> sum, mixed;     // [heads at once, L, K V]
  std::vector<Real> key_sum;        // [heads at once, L, K]
  std::vector<Real> mixed_key_sum;  // [heads at once, L, K]
  std::vector<Real> norm;           // [heads at once, T]  n_t, tokens as in `token`
  std::vector<Real> rows;           // [threads, kPieceTokens, K + V]
};

template <typename Real>
struct MhlaGridArgs {
  MhlaGridShape shape;
  int grids = 1;                 // N
  const Real* q = nullptr;       // [N, T, H, K]
  const Real* k = nullptr;       // [N, T, H, K]
  const Real* v = nullptr;       // [N, T, H, V]
  const Real* mixing = nullptr;  // m [L, L], each in [0, 1]
  GridNormalizer normalizer = GridNormalizer::kNone;
  Real epsilon = Real{1e-6f};                    // above 0; read with a normaliser only
  const Real* plain_q = nullptr;                 // [N, T, H, K]  null: q
  const Real* plain_k = nullptr;                 // [N, T, H, K]  null: k
  Real* out = nullptr;                           // [N, T, H, V]
  MhlaGridWorkspace<Real>* workspace = nullptr;  // made for this shape
};

template <typename Real>
Status Validate(const MhlaGridArgs<Real>& args);

namespace cpu {

template <typename Real>
Status MhlaGrid(const MhlaGridArgs<Real>& args, Stream& stream);

}  // namespace cpu

}  // namespace mneme::kernels
