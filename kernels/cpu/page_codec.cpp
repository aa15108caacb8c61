#include "kernels/page_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/row_loops.h"

namespace mneme::kernels::cpu {
namespace {

// The exponent that puts `magnitude` in [2^14, 2^15), as far as 2^-exponent is a normal f32.
int16_t ExponentFor(float magnitude) {
  constexpr int kTarget = 14;
  constexpr int kLeast = -126;
  if (magnitude == 0.0f) return 0;
  return static_cast<int16_t>(std::max(std::ilogb(magnitude) - kTarget, kLeast));
}

// Packs [rows, width] numbers that lie `stride` apart and returns the exponent.
int16_t PackMatrix(const float* x, int rows, int width, int stride, Dtype dtype, std::byte* out) {
  int16_t exponent = 0;
  if (dtype == Dtype::kF16) {
    float magnitude = 0.0f;
    for (int row = 0; row < rows; ++row)
      magnitude = std::max(magnitude, MagnitudeMax(x + int64_t{row} * stride, width));
    exponent = ExponentFor(magnitude);
  }
  const size_t row_bytes = static_cast<size_t>(width) * BytesOf(dtype);
  for (int row = 0; row < rows; ++row) {
    const float* from = x + int64_t{row} * stride;
    std::byte* to = out + static_cast<size_t>(row) * row_bytes;
    if (dtype == Dtype::kF16) {
      F32ToF16Row(from, width, std::ldexp(1.0f, -exponent), reinterpret_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, from, row_bytes);
    }
  }
  return exponent;
}

bool AllFinite(const float* x, int64_t count) { return std::isfinite(MagnitudeMax(x, count)); }

}  // namespace

Status PackPage(const float* transition, float log_gamma, int head, PageGroupHeader& header,
                std::byte* group) {
  const int K = header.key_dim, V = header.value_dim, width = K + V;
  if (!AllFinite(transition, int64_t{K} * width) || !std::isfinite(log_gamma))
    return Fail(ErrorCode::kInvalidArgument,
                "pack page: layer {} key head {} value head {} of it: a number is not finite",
                header.layer, header.key_head, head);
  std::byte* b = group + PageOffset(header, head);
  std::byte* a = b + size_t{header.key_dim} * header.value_dim * BytesOf(header.dtype);
  header.log_gamma[head] = log_gamma;
  header.b_exponent[head] = PackMatrix(transition + K, K, V, width, header.dtype, b);
  header.a_stored[head] = log_gamma < kLogGammaDrop ? 0 : 1;
  header.a_exponent[head] = 0;
  if (header.a_stored[head] != 0) {
    header.a_exponent[head] = PackMatrix(transition, K, K, width, header.dtype, a);
  } else {
    std::memset(a, 0, size_t{header.key_dim} * header.key_dim * BytesOf(header.dtype));
  }
  return {};
}

}  // namespace mneme::kernels::cpu
