#include "kernels/conv.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/row_loops.h"

namespace mneme::kernels::cpu {
namespace {

constexpr float kNormEpsilon = 1e-6f;

// out = x factor / sqrt(|x|^2 + epsilon), head by head.
void NormalizeHeads(const float* x, int heads, int width, float factor, float* out) {
  for (int head = 0; head < heads; ++head, x += width, out += width) {
    float square = 0.0f;
    DotRows(x, width, 1, width, x, &square);
    ScaleRow(x, factor / std::sqrt(square + kNormEpsilon), width, out);
  }
}

// log(1 + e^x); beyond 20 the 1 is below half an ulp.
float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

void ConvToken(const ConvTokenArgs& args) {
  const LinearShape& shape = args.shape;
  const int keys = shape.key_width();
  if (shape.conv_taps == 0) {
    SiluRow(args.raw[kConvTaps - 1], shape.conv_width(), args.scratch);
  } else {
    ConvSilu(args.conv_weight, args.raw, shape.conv_width(), args.scratch);
  }
  NormalizeHeads(args.scratch, shape.key_heads, shape.key_dim,
                 1.0f / std::sqrt(static_cast<float>(shape.key_dim)), args.q);
  NormalizeHeads(args.scratch + keys, shape.key_heads, shape.key_dim, 1.0f, args.k);
  std::copy_n(args.scratch + 2 * keys, shape.value_width(), args.v);

  const float* b = args.raw[kConvTaps - 1] + shape.conv_width() + shape.value_width();
  const float* a = b + shape.value_heads;
  for (int head = 0; head < shape.value_heads; ++head) {
    args.write_strength[head] = 1.0f / (1.0f + std::exp(-b[head]));
    const float decay = -args.decay_rate[head] * Softplus(a[head] + args.dt_bias[head]);
    args.log_decay[head] = std::max(decay, kLogDecayMin);
  }
}

}  // namespace mneme::kernels::cpu
