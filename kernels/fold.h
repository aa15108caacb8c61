// Advances the folded state of one value head over one closed chunk.
//
//   native  S <- A S + B             from the open rows, unrounded:
//                                    S <- e^{c_T} S + sum_t e^{c_T - c_t} k_t^T (uA_t S + uB_t)
//   mixing  S <- (1 - w) S + w (A S + B)   from the chunk's page
//
// The first form never makes A.
#pragma once

#include <cstddef>

#include "kernels/page_codec.h"

namespace mneme::kernels {

struct FoldRowsArgs {
  int key_dim = 0;           // K
  int value_dim = 0;         // V
  int tokens = 0;            // T
  const float* k = nullptr;  // [T, K]
  const float* u = nullptr;  // [T, K+V]  of one value head
  const float* c = nullptr;  // [T]
  float* state = nullptr;    // [K, V]  in and out
  float* scratch = nullptr;  // [FoldRowsScratch(...)]
};

constexpr size_t FoldRowsScratch(int tokens, int key_dim, int value_dim) {
  return static_cast<size_t>(tokens) * static_cast<size_t>(key_dim + value_dim);
}

struct FoldPageArgs {
  PageView page;
  int key_dim = 0;           // K
  int value_dim = 0;         // V
  float gate = 0;            // w in (0, 1]
  float* state = nullptr;    // [K, V]  in and out
  float* scratch = nullptr;  // [FoldPageScratch(...)]
};

constexpr size_t FoldPageScratch(int key_dim, int value_dim) {
  const size_t k = static_cast<size_t>(key_dim), v = static_cast<size_t>(value_dim);
  return k * (k + v) + k * v;
}

namespace cpu {
void FoldRows(const FoldRowsArgs& args);
void FoldPage(const FoldPageArgs& args);
}  // namespace cpu

}  // namespace mneme::kernels
