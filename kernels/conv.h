// The short causal convolution of a linear layer and what follows it for one token (models.md 3.1
// steps 3 to 6): SiLU, l2norm of q and k, q times K^-1/2, write strength and log decay.
//
//   x_c = SiLU(sum_{j=0..3} weight[c, j] raw_{t-3+j, c})        zeros before the session's start
//   q, k = x / sqrt(|x|^2 + 1e-6);  beta = sigmoid(b);  g = -decay_rate softplus(a + dt_bias)
//
// A layer without a convolution (conv_taps 0) has x_c = SiLU(raw_{t, c}).
//
// g is held at or above kLogDecayMin, so that differences of its sums are never inf - inf.
#pragma once

#include "kernels/shape.h"

namespace mneme::kernels {

// Below this e^g is no normal f32; it forgets everything.
inline constexpr float kLogDecayMin = -88.0f;

struct ConvTokenArgs {
  LinearShape shape;
  // Rows of the projection of the last kConvTaps tokens, oldest first; only the first conv width
  // columns are read, of the last one all. A row before the session's start points to zeros.
  // Without a convolution only the last is read.
  const float* raw[kConvTaps] = {};
  const float* conv_weight = nullptr;  // [conv width, kConvTaps]; not read without a convolution
  const float* decay_rate = nullptr;   // [H]
  const float* dt_bias = nullptr;      // [H]
  float* q = nullptr;                  // [G, K]
  float* k = nullptr;                  // [G, K]
  float* v = nullptr;                  // [H, V]
  float* write_strength = nullptr;     // [H]
  float* log_decay = nullptr;          // [H]
  float* scratch = nullptr;            // [conv width]
};

namespace cpu {
void ConvToken(const ConvTokenArgs& args);
}

}  // namespace mneme::kernels
