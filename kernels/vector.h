// Sums over rows of floats and the widening of f16: the inner loops of attention.
//
// The order of a sum depends on its length alone. Rows lie `stride` floats apart.
#pragma once

#include <cstdint>

namespace mneme::kernels::cpu {

// out[t] = scale (x . rows[t]), for t in [0, count)
void DotRows(const float* x, const float* rows, int64_t stride, int64_t count, int64_t size,
             float scale, float* out);

// out += sum_t weights[t] rows[t], in ascending order of t with fused multiply-adds
void AddRows(const float* weights, const float* rows, int64_t stride, int64_t count, int64_t size,
             float* out);

// to[i] = from[i], exactly; `from` may be unaligned
void WidenF16(const void* from, int64_t size, float* to);

}  // namespace mneme::kernels::cpu
