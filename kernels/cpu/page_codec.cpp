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
int16_t PackMatrix(const float* x, int rows, int width, int64_t stride, Dtype dtype,
                   std::byte* out) {
  int16_t exponent = 0;
  if (dtype == Dtype::kF16) {
    float magnitude = 0.0f;
    for (int row = 0; row < rows; ++row)
      magnitude = std::max(magnitude, MagnitudeMax(x + row * stride, width));
    exponent = ExponentFor(magnitude);
  }
  const size_t row_bytes = static_cast<size_t>(width) * BytesOf(dtype);
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * stride;
    std::byte* to = out + static_cast<size_t>(row) * row_bytes;
    if (dtype == Dtype::kF16) {
      F32ToF16Row(from, width, std::ldexp(1.0f, -exponent), reinterpret_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, from, row_bytes);
    }
  }
  return exponent;
}

// Nothing from before a chunk comes through: its decays say so, and its A, which they alone do not
// bound where channels decay apart or keys are erased with others.
bool Forgets(const PackPageArgs& args, int K) {
  static const float drop = std::exp(kLogGammaDrop);
  if (args.log_gamma >= kLogGammaDrop) return false;
  for (int row = 0; row < K; ++row) {
    if (MagnitudeMax(args.a + row * args.a_stride, K) > drop) return false;
  }
  return true;
}

bool AllFinite(const float* x, int rows, int64_t width, int64_t stride) {
  for (int row = 0; row < rows; ++row) {
    if (!std::isfinite(MagnitudeMax(x + row * stride, width))) return false;
  }
  return true;
}

}  // namespace

Status PackPage(const PackPageArgs& args, PageGroupHeader& header, std::byte* group) {
  const int K = header.key_dim, V = header.value_dim, head = args.head;
  const bool dense = header.transition == TransitionKind::kDense;
  const int a_rows = dense ? K : 1;
  const int64_t a_width = TransitionNumbers(header.transition, K) / a_rows;
  if (!AllFinite(args.a, a_rows, a_width, args.a_stride) ||
      !AllFinite(args.b, K, V, args.b_stride) || !std::isfinite(args.log_gamma))
    return Fail(ErrorCode::kInvalidArgument,
                "pack page: layer {} key head {} value head {} of it: a number is not finite",
                header.layer, header.key_head, head);
  std::byte* b = group + PageOffset(header, head);
  std::byte* a = b + size_t{header.key_dim} * header.value_dim * BytesOf(header.dtype);
  header.log_gamma[head] = args.log_gamma;
  header.b_exponent[head] = PackMatrix(args.b, K, V, args.b_stride, header.dtype, b);
  header.a_stored[head] = dense && Forgets(args, K) ? 0 : 1;
  header.a_exponent[head] = 0;
  if (!dense) {
    std::copy_n(reinterpret_cast<const std::byte*>(args.a),
                static_cast<size_t>(a_width) * sizeof(float), a);
  } else if (header.a_stored[head] != 0) {
    header.a_exponent[head] = PackMatrix(args.a, K, K, args.a_stride, header.dtype, a);
  } else {
    std::memset(a, 0, size_t{header.key_dim} * header.key_dim * BytesOf(header.dtype));
  }
  return {};
}

}  // namespace mneme::kernels::cpu
