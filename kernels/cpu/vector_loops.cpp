// The loops of activation.h and vector.h, in one file because each file that is compiled for
// several instruction sets costs seconds.
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/activation.h"
#include "kernels/cpu/targets.h"
#include "kernels/dtype.h"
#include "kernels/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector_loops.cpp"
#include "hwy/foreach_target.h"
// After it, in this order:
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mneme::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Floats>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// Calls body(vector) on all of x; the last, shorter vector goes through a padded copy, so that its
// elements take the same instructions.
template <class Body>
HWY_INLINE void ForEach(const float* x, int64_t size, float* out, const Body& body) {
  const Floats d;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) hn::StoreU(body(hn::LoadU(d, x + i), i), d, out + i);
  if (i == size) return;
  float last[kLanes] = {};
  std::memcpy(last, x + i, static_cast<size_t>(size - i) * sizeof(float));
  hn::StoreU(body(hn::LoadU(d, last), i), d, last);
  std::memcpy(out + i, last, static_cast<size_t>(size - i) * sizeof(float));
}

HWY_INLINE Vector ExpOf(Vector x) {
  const Floats d;
  // The library's range ends at 104 and it takes NaN for a number below -104.
  const Vector limit = hn::Set(d, 88.7228394f);
  const Vector infinite = hn::Set(d, std::numeric_limits<float>::infinity());
  const Vector y = hn::Exp(d, hn::Min(x, limit));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::Gt(x, limit), infinite, y));
}

// From e^-|x|, which never overflows.
HWY_INLINE Vector SigmoidOf(Vector x) {
  const Floats d;
  const Vector e = ExpOf(hn::Neg(hn::Abs(x)));
  const Vector one = hn::Set(d, 1.0f);
  const Vector numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

void ExpHere(const float* x, int64_t size, float shift, float* out) {
  const Vector by = hn::Set(Floats(), shift);
  ForEach(x, size, out, [&](Vector v, int64_t) { return ExpOf(hn::Sub(v, by)); });
}

void SigmoidHere(const float* x, int64_t size, float* out) {
  ForEach(x, size, out, [](Vector v, int64_t) { return SigmoidOf(v); });
}

void SiluHere(const float* x, int64_t size, float* out) {
  ForEach(x, size, out, [](Vector v, int64_t) { return hn::Mul(v, SigmoidOf(v)); });
}

void SiluTimesHere(const float* x, const float* factor, int64_t size, float* out) {
  ForEach(x, size, out, [&](Vector v, int64_t i) {
    const Floats d;
    float last[kLanes] = {};
    const float* from = factor + i;
    if (i + kLanes > size) {
      std::memcpy(last, from, static_cast<size_t>(size - i) * sizeof(float));
      from = last;
    }
    return hn::Mul(hn::Mul(v, SigmoidOf(v)), hn::LoadU(d, from));
  });
}

// kRows sums at once, so that they do not wait for each other.
template <int kRows>
HWY_INLINE void DotSome(const float* x, const float* rows, int64_t stride, int64_t size,
                        float scale, float* out) {
  const Floats d;
  Vector sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Vector v = hn::LoadU(d, x + i);
    for (int r = 0; r < kRows; ++r)
      sums[r] = hn::MulAdd(v, hn::LoadU(d, rows + r * stride + i), sums[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    float sum = hn::GetLane(hn::SumOfLanes(d, sums[r]));
    for (int64_t j = i; j < size; ++j) sum += x[j] * rows[r * stride + j];
    out[r] = scale * sum;
  }
}

void DotRowsHere(const float* x, const float* rows, int64_t stride, int64_t count, int64_t size,
                 float scale, float* out) {
  int64_t t = 0;
  for (; t + 4 <= count; t += 4) DotSome<4>(x, rows + t * stride, stride, size, scale, out + t);
  for (; t < count; ++t) DotSome<1>(x, rows + t * stride, stride, size, scale, out + t);
}

template <int kVectors>
HWY_INLINE void AddColumns(const float* weights, const float* rows, int64_t stride, int64_t count,
                           float* out) {
  const Floats d;
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::LoadU(d, out + v * kLanes);
  for (int64_t t = 0; t < count; ++t) {
    const Vector weight = hn::Set(d, weights[t]);
    for (int v = 0; v < kVectors; ++v)
      sums[v] = hn::MulAdd(weight, hn::LoadU(d, rows + t * stride + v * kLanes), sums[v]);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, out + v * kLanes);
}

void AddRowsHere(const float* weights, const float* rows, int64_t stride, int64_t count,
                 int64_t size, float* out) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes)
    AddColumns<4>(weights, rows + i, stride, count, out + i);
  for (; i + kLanes <= size; i += kLanes) AddColumns<1>(weights, rows + i, stride, count, out + i);
  for (; i < size; ++i) {
    for (int64_t t = 0; t < count; ++t)
      out[i] = __builtin_fmaf(weights[t], rows[t * stride + i], out[i]);
  }
}

void WidenF16Here(const void* from, int64_t size, float* to) {
  const auto* bytes = static_cast<const std::byte*>(from);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const Floats d;
  const hn::Rebind<uint16_t, Floats> bits;
  const hn::Rebind<hwy::float16_t, Floats> half;
  for (; i + kLanes <= size; i += kLanes) {
    uint16_t values[kLanes];
    std::memcpy(values, bytes + 2 * i, sizeof(values));
    const auto loaded = hn::BitCast(half, hn::LoadU(bits, values));
    hn::StoreU(hn::PromoteTo(d, loaded), d, to + i);
  }
#endif
  for (; i < size; ++i) {
    uint16_t value;
    std::memcpy(&value, bytes + 2 * i, sizeof(value));
    to[i] = F16ToF32(value);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mneme::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mneme::kernels::cpu {

HWY_EXPORT(ExpHere);
HWY_EXPORT(SigmoidHere);
HWY_EXPORT(SiluHere);
HWY_EXPORT(SiluTimesHere);
HWY_EXPORT(DotRowsHere);
HWY_EXPORT(AddRowsHere);
HWY_EXPORT(WidenF16Here);

void Exp(const float* x, int64_t size, float shift, float* out) {
  HWY_DYNAMIC_DISPATCH(ExpHere)(x, size, shift, out);
}
void Sigmoid(const float* x, int64_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(SigmoidHere)(x, size, out);
}
void Silu(const float* x, int64_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluHere)(x, size, out);
}
void SiluTimes(const float* x, const float* factor, int64_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluTimesHere)(x, factor, size, out);
}
void DotRows(const float* x, const float* rows, int64_t stride, int64_t count, int64_t size,
             float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(DotRowsHere)(x, rows, stride, count, size, scale, out);
}
void AddRows(const float* weights, const float* rows, int64_t stride, int64_t count, int64_t size,
             float* out) {
  HWY_DYNAMIC_DISPATCH(AddRowsHere)(weights, rows, stride, count, size, out);
}
void WidenF16(const void* from, int64_t size, float* to) {
  HWY_DYNAMIC_DISPATCH(WidenF16Here)(from, size, to);
}

}  // namespace mneme::kernels::cpu
#endif  // HWY_ONCE
