// A piece of prompt tokens of a Gated-DeltaNet layer in block form, and the transition of a full
// chunk. Both work on the open rows (step_table.h) of one key head and its r value heads, and give
// what gdn_step.h gives token by token, within rounding.
//
// A piece of n tokens at place i0, rows i of the piece, c summed from the chunk's start,
// D_ij = e^{c_i - c_j}:
//
//   (I + L) uA = -diag(beta) (diag(e^c) K + P u'A)     L_ij = beta_i (k_i . k_j) D_ij,  j < i
//   (I + L) uB =  diag(beta) (V           - P u'B)     P_ij = (k_i . k_j) D_ij over rows j < i0
//   carry  = diag(e^c) Q + R u'A + N uA                R as P with q_i for k_i
//   output =               R u'B + N uB                N_ij = (q_i . k_j) D_ij,  j <= i
//
// (uA, uB) is -W A_before and U - W B_before of the WY form, solved in one forward substitution
// from the open rows u' before the piece, so no state is ever formed. A full chunk's transition is
//
//   A = e^{c_T} I + sum_t e^{c_T - c_t} k_t^T uA_t,     B = sum_t e^{c_T - c_t} k_t^T uB_t.
//
// Order:    depends on n and i0 alone. Rows of the open chunk at and after i0 + n are read into
//           products that are thrown away, never into results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/shape.h"

namespace mneme::kernels {

struct GdnPieceArgs {
  int key_dim = 0;         // K
  int value_dim = 0;       // V
  int heads = 0;           // r
  int chunk_tokens = 0;    // T
  int at = 0;              // i0
  int tokens = 0;          // n, within one kPieceTokens cell of the chunk
  bool transition = true;  // as GdnStepArgs
  // Row i of q, k starts at i * key_stride, of v at i * value_stride (its r heads side by side), of
  // write_strength and log_decay at i * head_stride.
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t head_stride = 0;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* write_strength = nullptr;
  const float* log_decay = nullptr;
  float* open_k = nullptr;   // [T, K]
  float* open_u = nullptr;   // [r, T, K+V]
  float* open_c = nullptr;   // [r, T]
  float* carry = nullptr;    // [r, kPieceTokens, K]  out
  float* output = nullptr;   // [r, kPieceTokens, V]  out
  float* scratch = nullptr;  // [GdnPieceScratch(...)]
};

constexpr size_t GdnPieceScratch(int chunk_tokens, int key_dim, int value_dim) {
  const size_t rows = 2 * static_cast<size_t>(kPieceTokens);
  return rows * static_cast<size_t>(key_dim) + 2 * rows * static_cast<size_t>(chunk_tokens) +
         rows * static_cast<size_t>(key_dim + value_dim) + static_cast<size_t>(chunk_tokens) +
         2 * static_cast<size_t>(kPieceTokens);
}

struct TransitionArgs {
  int key_dim = 0;           // K
  int value_dim = 0;         // V
  int tokens = 0;            // T
  const float* k = nullptr;  // [T, K]
  const float* u = nullptr;  // [T, K+V]  of one value head
  const float* c = nullptr;  // [T]
  float* out = nullptr;      // [K, K+V]  A then B, row by row
  float* scratch = nullptr;  // [T, K]
};

namespace cpu {
void GdnPiece(const GdnPieceArgs& args);
void ChunkTransition(const TransitionArgs& args);
}  // namespace cpu

}  // namespace mneme::kernels
