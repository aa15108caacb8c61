#include "kernels/norm.h"

#include <cmath>

namespace mneme::kernels::cpu {

float InverseRms(const float* x, int64_t size, float epsilon) {
  constexpr int64_t kSums = 16;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t lane = 0; lane < kSums; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  }
  for (int64_t lane = 0; i + lane < size; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  float sum = 0;
  for (const float each : sums) sum += each;
  return 1.0f / std::sqrt(sum / static_cast<float>(size) + epsilon);
}

void NormZeroCentred(const float* x, const float* weight, int64_t size, float epsilon, float* out) {
  const float scale = InverseRms(x, size, epsilon);
  for (int64_t i = 0; i < size; ++i) out[i] = x[i] * scale * (1.0f + weight[i]);
}

void NormPlain(const float* x, const float* weight, int64_t size, float epsilon, float* out) {
  const float scale = InverseRms(x, size, epsilon);
  for (int64_t i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

void Norm(NormWeight norm, const float* x, const float* weight, int64_t size, float epsilon,
          float* out) {
  if (norm == NormWeight::kPlain) {
    NormPlain(x, weight, size, epsilon, out);
  } else {
    NormZeroCentred(x, weight, size, epsilon, out);
  }
}

}  // namespace mneme::kernels::cpu
