// RMSNorm of one row, in f32. The squares are summed in 16 interleaved partial sums, which are then
// added in ascending order: one order for every machine and both forms.
#pragma once

#include <cstdint>

#include "kernels/shape.h"

namespace mneme::kernels::cpu {

// 1 / sqrt(mean x^2 + epsilon)
float InverseRms(const float* x, int64_t size, float epsilon);

// out <- x InverseRms(x) (1 + weight): the zero-centred weights of Qwen's norms. `out` may be `x`.
void NormZeroCentred(const float* x, const float* weight, int64_t size, float epsilon, float* out);

// out <- x InverseRms(x) weight: the plain weight of a linear layer's output norm.
void NormPlain(const float* x, const float* weight, int64_t size, float epsilon, float* out);

// One or the other.
void Norm(NormWeight norm, const float* x, const float* weight, int64_t size, float epsilon,
          float* out);

}  // namespace mneme::kernels::cpu
