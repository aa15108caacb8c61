// exp, sigmoid and SiLU of arrays. An element's bits depend on the element alone, not on its place
// or on the array's length, so both forms of a row and every op share these.
//
// `out` may be `x`. NaN gives NaN; exp is 0 below -104 and infinite above 88.73.
#pragma once

#include <cstdint>

namespace mneme::kernels::cpu {

// out[i] = e^(x[i] - shift)
void Exp(const float* x, int64_t size, float shift, float* out);

// out[i] = 1 / (1 + e^-x[i])
void Sigmoid(const float* x, int64_t size, float* out);

// out[i] = x[i] sigmoid(x[i])
void Silu(const float* x, int64_t size, float* out);

// out[i] = x[i] sigmoid(x[i]) factor[i]; `out` may be either
void SiluTimes(const float* x, const float* factor, int64_t size, float* out);

}  // namespace mneme::kernels::cpu
