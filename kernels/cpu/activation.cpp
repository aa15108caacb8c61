#include "kernels/activation.h"

#include <cstring>
#include <limits>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
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

}  // namespace HWY_NAMESPACE
}  // namespace mneme::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mneme::kernels::cpu {

HWY_EXPORT(ExpHere);
HWY_EXPORT(SigmoidHere);
HWY_EXPORT(SiluHere);
HWY_EXPORT(SiluTimesHere);

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

}  // namespace mneme::kernels::cpu
#endif  // HWY_ONCE
