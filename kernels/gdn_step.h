// One generated token of a Gated-DeltaNet layer, in one key head and the r value heads that use it:
// appends the token's row to the open chunk and reads the open chunk with its query.
//
// With c_i = c_{i-1} + g (c_{-1} = 0) and, for rows j < i of the open chunk, D_ij = e^{c_i - c_j}:
//
//   uA_i = -beta (e^{c_i} k + sum_{j<i} D_ij (k . k_j) uA_j)
//   uB_i =  beta (v        - sum_{j<i} D_ij (k . k_j) uB_j)
//   carry  = e^{c_i} q + sum_{j<=i} D_ij (q . k_j) uA_j          = q A_i
//   output =             sum_{j<=i} D_ij (q . k_j) uB_j          = q B_i
//
// These are the decayed state's rows before and after the token, written without the state:
// S_i = A_i S_0 + B_i for whatever state S_0 the chunk began with. Exponents are never positive.
//
// A decay below e^kDecayDrop is 0: from the first row with c_i below it nothing from before the
// chunk is left, and uA_i and carry are 0. That is far below what f32 shows beside the rest, and
// keeps numbers out of the denormal range, where processors are a hundred times slower.
//
// Writing is by place, so that the same step again changes nothing.
// Cost:     reads i rows of K and r i rows of K+V numbers, each once.
#pragma once

#include <cstddef>

namespace mneme::kernels {

inline constexpr float kDecayDrop = -40.0f;

struct GdnStepArgs {
  int key_dim = 0;         // K
  int value_dim = 0;       // V
  int heads = 0;           // r
  int chunk_tokens = 0;    // T
  int at = 0;              // i, the token's place in the open chunk
  bool transition = true;  // false: history is never read; uA is written as 0, carry means nothing
  const float* q = nullptr;               // [K]
  const float* k = nullptr;               // [K]
  const float* v = nullptr;               // [r, V]
  const float* write_strength = nullptr;  // [r]
  const float* log_decay = nullptr;       // [r]
  float* open_k = nullptr;                // [T, K]
  float* open_u = nullptr;                // [r, T, K+V]
  float* open_c = nullptr;                // [r, T]
  float* carry = nullptr;                 // [r, K]  out
  float* output = nullptr;                // [r, V]  out
  float* scratch = nullptr;               // [GdnStepScratch(...)]
};

constexpr size_t GdnStepScratch(int chunk_tokens, int key_dim, int value_dim) {
  return 4 * static_cast<size_t>(chunk_tokens) + 2 * static_cast<size_t>(key_dim + value_dim);
}

namespace cpu {
void GdnStep(const GdnStepArgs& args);
}

}  // namespace mneme::kernels
