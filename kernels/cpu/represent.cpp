#include "kernels/represent.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/dtype.h"

namespace mneme::kernels::cpu {
namespace {

constexpr float kF16Max = 65504.0f;

}  // namespace

void PoolWindow(const WindowArgs& args) {
  const int K = args.key_dim, p = args.tokens;
  float* projected = args.scratch;                           // a [p, K]
  float* score = projected + static_cast<ptrdiff_t>(p) * K;  // [p, p]
  float* share = score + static_cast<ptrdiff_t>(p) * p;      // m [p]
  float* mean = share + p;                                   // [K]
  float* value = mean + K;                                   // [K]
  MultiplyByTransposed(p, K, K, {args.route_key, K}, {args.pool.key, K}, projected, K);
  MultiplyByTransposed(p, p, K, {projected, K}, {projected, K}, score, p);
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  std::fill_n(share, p, 0.0f);
  for (int i = 0; i < p; ++i) {
    float* row = score + static_cast<ptrdiff_t>(i) * p;
    Softmax(row, p, scale);
    for (int j = 0; j < p; ++j) share[j] += row[j];
  }
  ScaleRow(share, 1.0f / static_cast<float>(p), p, share);
  std::fill_n(mean, K, 0.0f);
  AddRows(args.route_key, K, p, K, share, mean);
  DotRows(args.pool.value, K, K, K, mean, value);
  DotRows(args.pool.output, K, K, K, value, mean);
  for (int d = 0; d < K; ++d) mean[d] = std::clamp(mean[d], -kF16Max, kF16Max);
  F32ToF16Row(mean, K, 1.0f, args.representative);
}

void FindCentre(const CentreArgs& args) {
  const int K = args.key_dim, P = args.representatives;
  const auto element = [&](int b, int d) {
    return static_cast<double>(F16ToF32(args.representative[static_cast<ptrdiff_t>(b) * K + d]));
  };
  const auto mean = [&](int d) {
    double sum = 0.0;
    for (int b = 0; b < P; ++b) sum += element(b, d);
    return sum / P;
  };
  double most = 0.0;
  for (int d = 0; d < K; ++d) most = std::max(most, std::abs(mean(d)));
  const float scale = static_cast<float>(most / 127.0);
  double centre_square = 0.0;
  for (int d = 0; d < K; ++d) {
    const double steps = scale > 0.0f ? std::nearbyint(mean(d) / static_cast<double>(scale)) : 0.0;
    args.centroid[d] = static_cast<int8_t>(std::clamp(steps, -127.0, 127.0));
    const double centre = static_cast<double>(scale) * args.centroid[d];
    centre_square += centre * centre;
  }
  double radius_square = 0.0;
  for (int b = 0; b < P; ++b) {
    double square = 0.0;
    for (int d = 0; d < K; ++d) {
      const double distance = element(b, d) - static_cast<double>(scale) * args.centroid[d];
      square += distance * distance;
    }
    radius_square = std::max(radius_square, square);
  }
  // A dot product of K terms in f32 is off by at most K 2^-24 |q| |x|; both sides of the bound are
  // such sums, over vectors no longer than centre + radius. Twice that, and some for the rest.
  const double radius = std::sqrt(radius_square);
  const double slack = (K + 16.0) * 0x1p-22 * (std::sqrt(centre_square) + radius);
  *args.scale = scale;
  *args.radius =
      std::nextafter(static_cast<float>(radius + slack), std::numeric_limits<float>::infinity());
}

}  // namespace mneme::kernels::cpu
