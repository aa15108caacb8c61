// Representatives of a chunk and the first level of its index (models.md 2.2 step 2).
//
// A window of p raw route keys x [p, K] gives one representative:
//
//   a = W_k x;  m = mean over rows of softmax(a a^T K^-1/2);  rep = W_o W_v (sum_j m_j x_j)
//
// which is the mean of W_o applied to the attended W_v x, both maps being linear. It is rounded to
// f16 once; beyond f16's largest number it is that number.
//
// A chunk's centre is the mean of its representatives in int8 steps of `scale`; `radius` holds
// every representative, widened so that the bound  q . rep <= q . (scale centroid) + |q| radius
// also holds for the sums as computed in f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/shape.h"

namespace mneme::kernels {

struct WindowArgs {
  int key_dim = 0;                     // K
  int tokens = 0;                      // p
  PoolWeights pool;                    // of one key head, [K, K] each
  const float* route_key = nullptr;    // [p, K]
  uint16_t* representative = nullptr;  // f16 [K]  out
  float* scratch = nullptr;            // [WindowScratch(...)]
};

constexpr size_t WindowScratch(int tokens, int key_dim) {
  const size_t p = static_cast<size_t>(tokens), k = static_cast<size_t>(key_dim);
  return p * k + p * p + p + 2 * k;
}

struct CentreArgs {
  int key_dim = 0;                           // K
  int representatives = 0;                   // P
  const uint16_t* representative = nullptr;  // f16 [P, K]
  int8_t* centroid = nullptr;                // [K]  out
  float* scale = nullptr;                    // out
  float* radius = nullptr;                   // out
};

namespace cpu {
void PoolWindow(const WindowArgs& args);
void FindCentre(const CentreArgs& args);
}  // namespace cpu

}  // namespace mneme::kernels
