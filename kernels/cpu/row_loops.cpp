#include "kernels/cpu/row_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/targets.h"
#include "kernels/dtype.h"
#include "kernels/gdn_step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_loops.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include <hwy/contrib/math/math-inl.h>

// Instruction sets whose f16 conversions are the processor's own.
#undef MNEME_HARDWARE_F16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
#define MNEME_HARDWARE_F16 1
#else
#define MNEME_HARDWARE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace mneme::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr size_t kLanesMax = HWY_MAX_BYTES / sizeof(float);

// The last `count` < Lanes numbers, followed by `fill`.
HWY_INLINE V TakeTail(D d, const float* x, size_t count, float fill = 0.0f) {
  HWY_ALIGN float buffer[kLanesMax];
  for (size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = i < count ? x[i] : fill;
  return hn::Load(d, buffer);
}

HWY_INLINE void StoreTail(D d, V v, float* x, size_t count) {
  HWY_ALIGN float buffer[kLanesMax];
  hn::Store(v, d, buffer);
  for (size_t i = 0; i < count; ++i) x[i] = buffer[i];
}

HWY_INLINE V Take(D d, const float* x) { return hn::LoadU(d, x); }

HWY_INLINE V Take(D d, const uint16_t* x) {
#if MNEME_HARDWARE_F16
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::Rebind<uint16_t, D> du16;
  return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(du16, x)));
#else
  HWY_ALIGN float buffer[kLanesMax];
  for (size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = F16ToF32(x[i]);
  return hn::Load(d, buffer);
#endif
}

HWY_INLINE V TakeTail(D d, const uint16_t* x, size_t count) {
  HWY_ALIGN float buffer[kLanesMax];
  for (size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = i < count ? F16ToF32(x[i]) : 0.0f;
  return hn::Load(d, buffer);
}

// Bytes ahead of the row in hand that are asked for. The hardware's own guesses end with a page of
// 4 KiB and come too late for rows that lie in main memory.
constexpr int64_t kAheadBytes = 8192;
constexpr int64_t kLineBytes = 64;
constexpr int kLineFloats = 16;

// Into the second-level cache, which has more room for what is under way than the first.
HWY_INLINE void AskFor(const void* line) { __builtin_prefetch(line, 0, 2); }

template <typename Row>
struct Ahead {
  Ahead(int64_t stride, int width)
      : rows(static_cast<int>(kAheadBytes / (std::max<int64_t>(stride, 1) * kNumberBytes)) + 1),
        bytes(width * kNumberBytes) {}

  void Ask(const Row* row) const {
    for (int64_t line = 0; line < bytes; line += kLineBytes)
      AskFor(reinterpret_cast<const char*>(row) + line);
  }

  static constexpr int64_t kNumberBytes = sizeof(Row);
  int rows;       // between the row in hand and the one that is asked for
  int64_t bytes;  // of one row
};

HWY_INLINE float Total(D d, V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

// Four rows at a time against kInputs vectors: eight sums in flight hide the latency of an FMA.
template <int kInputs, typename Row>
HWY_INLINE void DotRowsOf(const Row* rows, int64_t stride, int count, int width, const float* x0,
                          const float* x1, float* out0, float* out1) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const int whole = width - width % lanes;
  const size_t rest = static_cast<size_t>(width - whole);
  const Ahead<Row> ahead(stride, width);
  for (int j = 0; j < count; j += 4) {
    for (int i = j + ahead.rows; i < std::min(j + ahead.rows + 4, count); ++i)
      ahead.Ask(rows + stride * i);
    // Missing rows repeat the last one; what they give is not stored.
    const Row* row[4];
    for (int i = 0; i < 4; ++i) row[i] = rows + stride * std::min(j + i, count - 1);
    V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    const auto step = [&](V v0, V v1, V v2, V v3, V y0, V y1) HWY_ATTR {
      a0 = hn::MulAdd(v0, y0, a0);
      a1 = hn::MulAdd(v1, y0, a1);
      a2 = hn::MulAdd(v2, y0, a2);
      a3 = hn::MulAdd(v3, y0, a3);
      if constexpr (kInputs == 2) {
        b0 = hn::MulAdd(v0, y1, b0);
        b1 = hn::MulAdd(v1, y1, b1);
        b2 = hn::MulAdd(v2, y1, b2);
        b3 = hn::MulAdd(v3, y1, b3);
      }
    };
    for (int i = 0; i < whole; i += lanes) {
      step(Take(d, row[0] + i), Take(d, row[1] + i), Take(d, row[2] + i), Take(d, row[3] + i),
           Take(d, x0 + i), Take(d, x1 + i));
    }
    if (rest != 0) {
      step(TakeTail(d, row[0] + whole, rest), TakeTail(d, row[1] + whole, rest),
           TakeTail(d, row[2] + whole, rest), TakeTail(d, row[3] + whole, rest),
           TakeTail(d, x0 + whole, rest), TakeTail(d, x1 + whole, rest));
    }
    const V sums[8] = {a0, a1, a2, a3, b0, b1, b2, b3};
    for (int i = 0; i < std::min(4, count - j); ++i) {
      out0[j + i] = Total(d, sums[i]);
      if constexpr (kInputs == 2) out1[j + i] = Total(d, sums[4 + i]);
    }
  }
}

// Asks for the strips of f32 rows in the order in which they lie, a strip a call, beginning some
// rows ahead of the one in hand: a loop that takes strips in another order is met with one stream.
class StripsAhead {
 public:
  StripsAhead(const float* rows, int64_t stride, int count, int width, int strip)
      : row_(rows + kRows * stride),
        stride_(stride),
        left_(count - kRows),
        width_(width),
        strip_(strip) {}

  HWY_INLINE void Ask() {
    if (left_ <= 0) return;
    for (int i = 0; i < strip_; i += kLineFloats) AskFor(row_ + column_ + i);
    column_ += strip_;
    if (column_ + strip_ <= width_) return;
    column_ = 0;
    row_ += stride_;
    --left_;
  }

 private:
  static constexpr int kRows = 16;

  const float* row_;
  int64_t stride_;
  int left_;  // rows not yet asked for
  int width_;
  int strip_;
  int column_ = 0;
};

// Columns in strips of four vectors, kept in registers while all rows pass by. One set: rows are
// taken two at a time, into sums of their own, so that eight additions are in flight. Two sets:
// rows come in blocks that stay in the first-level cache from strip to strip.
constexpr int kBlockRows = 8;

template <int kSets, typename Row>
HWY_INLINE void AddRowsOf(const Row* rows, int64_t stride, int count, int width,
                          const float* weight0, const float* weight1, float* sum0, float* sum1,
                          StripsAhead* strips) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Ahead<Row> ahead(stride, width);
  int column = 0;
  for (; column + 4 * lanes <= width; column += 4 * lanes) {
    V a0 = Take(d, sum0 + column), a1 = Take(d, sum0 + column + lanes);
    V a2 = Take(d, sum0 + column + 2 * lanes), a3 = Take(d, sum0 + column + 3 * lanes);
    V b0 = hn::Zero(d), b1 = b0, b2 = b0, b3 = b0;
    if constexpr (kSets == 2) {
      b0 = Take(d, sum1 + column), b1 = Take(d, sum1 + column + lanes);
      b2 = Take(d, sum1 + column + 2 * lanes), b3 = Take(d, sum1 + column + 3 * lanes);
    }
    const Row* row = rows + column;
    int j = 0;
    if constexpr (kSets == 1) {
      for (; j + 2 <= count; j += 2, row += 2 * stride) {
        if (column == 0 && j + ahead.rows + 2 <= count) {
          ahead.Ask(row + ahead.rows * stride);
          ahead.Ask(row + (ahead.rows + 1) * stride);
        }
        const V w = hn::Set(d, weight0[j]), x = hn::Set(d, weight0[j + 1]);
        const Row* next = row + stride;
        a0 = hn::MulAdd(w, Take(d, row), a0);
        a1 = hn::MulAdd(w, Take(d, row + lanes), a1);
        a2 = hn::MulAdd(w, Take(d, row + 2 * lanes), a2);
        a3 = hn::MulAdd(w, Take(d, row + 3 * lanes), a3);
        b0 = hn::MulAdd(x, Take(d, next), b0);
        b1 = hn::MulAdd(x, Take(d, next + lanes), b1);
        b2 = hn::MulAdd(x, Take(d, next + 2 * lanes), b2);
        b3 = hn::MulAdd(x, Take(d, next + 3 * lanes), b3);
      }
    }
    for (; j < count; ++j, row += stride) {
      if constexpr (kSets == 2) strips->Ask();
      const V v0 = Take(d, row), v1 = Take(d, row + lanes);
      const V v2 = Take(d, row + 2 * lanes), v3 = Take(d, row + 3 * lanes);
      const V w = hn::Set(d, weight0[j]);
      a0 = hn::MulAdd(w, v0, a0);
      a1 = hn::MulAdd(w, v1, a1);
      a2 = hn::MulAdd(w, v2, a2);
      a3 = hn::MulAdd(w, v3, a3);
      if constexpr (kSets == 2) {
        const V x = hn::Set(d, weight1[j]);
        b0 = hn::MulAdd(x, v0, b0);
        b1 = hn::MulAdd(x, v1, b1);
        b2 = hn::MulAdd(x, v2, b2);
        b3 = hn::MulAdd(x, v3, b3);
      }
    }
    if constexpr (kSets == 1) {
      a0 = hn::Add(a0, b0), a1 = hn::Add(a1, b1), a2 = hn::Add(a2, b2), a3 = hn::Add(a3, b3);
    } else {
      hn::StoreU(b0, d, sum1 + column), hn::StoreU(b1, d, sum1 + column + lanes);
      hn::StoreU(b2, d, sum1 + column + 2 * lanes), hn::StoreU(b3, d, sum1 + column + 3 * lanes);
    }
    hn::StoreU(a0, d, sum0 + column), hn::StoreU(a1, d, sum0 + column + lanes);
    hn::StoreU(a2, d, sum0 + column + 2 * lanes), hn::StoreU(a3, d, sum0 + column + 3 * lanes);
  }
  for (; column < width; column += lanes) {
    const size_t rest = static_cast<size_t>(std::min(lanes, width - column));
    const bool full = rest == static_cast<size_t>(lanes);
    V a = TakeTail(d, sum0 + column, rest);
    V b = hn::Zero(d);
    if constexpr (kSets == 2) b = TakeTail(d, sum1 + column, rest);
    for (int j = 0; j < count; ++j) {
      const Row* row = rows + stride * j + column;
      const V v = full ? Take(d, row) : TakeTail(d, row, rest);
      a = hn::MulAdd(hn::Set(d, weight0[j]), v, a);
      if constexpr (kSets == 2) b = hn::MulAdd(hn::Set(d, weight1[j]), v, b);
    }
    StoreTail(d, a, sum0 + column, rest);
    if constexpr (kSets == 2) StoreTail(d, b, sum1 + column, rest);
  }
}

void DotRowsLoop(const float* rows, int64_t stride, int count, int width, const float* x,
                 float* out) {
  DotRowsOf<1>(rows, stride, count, width, x, x, out, out);
}

void DotRowsTwiceLoop(const float* rows, int64_t stride, int count, int width, const float* x0,
                      const float* x1, float* out0, float* out1) {
  DotRowsOf<2>(rows, stride, count, width, x0, x1, out0, out1);
}

void DotRowsF16Loop(const uint16_t* rows, int count, int width, const float* x, float* out) {
  DotRowsOf<1>(rows, width, count, width, x, x, out, out);
}

void AddRowsLoop(const float* rows, int64_t stride, int count, int width, const float* weight,
                 float* sum) {
  AddRowsOf<1>(rows, stride, count, width, weight, weight, sum, sum, nullptr);
}

void AddRowsTwiceLoop(const float* rows, int64_t stride, int count, int width, const float* weight0,
                      const float* weight1, float* sum0, float* sum1) {
  StripsAhead strips(rows, stride, count, width, 4 * static_cast<int>(hn::Lanes(D())));
  for (int j = 0; j < count; j += kBlockRows) {
    AddRowsOf<2>(rows + stride * j, stride, std::min(kBlockRows, count - j), width, weight0 + j,
                 weight1 + j, sum0, sum1, &strips);
  }
}

void AddRowsF16Loop(const uint16_t* rows, int count, int width, const float* weight, float* sum) {
  AddRowsOf<1>(rows, width, count, width, weight, weight, sum, sum, nullptr);
}

float DotI8Loop(const int8_t* row, int width, const float* x) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  V a = hn::Zero(d), b = a;
  int i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    const V u = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, row + i)));
    const V v = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, row + i + lanes)));
    a = hn::MulAdd(u, Take(d, x + i), a);
    b = hn::MulAdd(v, Take(d, x + i + lanes), b);
  }
  float sum = Total(d, hn::Add(a, b));
  for (; i < width; ++i) sum += static_cast<float>(row[i]) * x[i];
  return sum;
}

// Not-a-number stays what it is.
HWY_INLINE V Decay(D d, V x) {
  const V e = hn::Exp(d, x);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kDecayDrop)), e);
}

void DecayWeightsLoop(const float* c, int count, float last, const float* factor, float* out) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const V from = hn::Set(d, last);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V decay = Decay(d, hn::Sub(from, Take(d, c + i)));
    hn::StoreU(hn::Mul(decay, Take(d, factor + i)), d, out + i);
  }
  if (i >= count) return;
  const size_t rest = static_cast<size_t>(count - i);
  const V decay = Decay(d, hn::Sub(from, TakeTail(d, c + i, rest, last)));
  StoreTail(d, hn::Mul(decay, TakeTail(d, factor + i, rest)), out + i, rest);
}

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// e^{scale score[i] - highest} into `out` where that is not null; the sum is returned.
HWY_INLINE float ExpSum(const float* score, int count, float scale, float* highest, float* out) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const int whole = count - count % lanes;
  const size_t rest = static_cast<size_t>(count - whole);
  const V factor = hn::Set(d, scale);
  V top = hn::Set(d, kMinusInfinity);
  for (int i = 0; i < whole; i += lanes) top = hn::Max(top, hn::Mul(factor, Take(d, score + i)));
  float most = hn::GetLane(hn::MaxOfLanes(d, top));
  for (int i = whole; i < count; ++i) most = std::max(most, scale * score[i]);
  const V shift = hn::Set(d, most);
  V sum = hn::Zero(d);
  for (int i = 0; i < whole; i += lanes) {
    const V e = hn::Exp(d, hn::Sub(hn::Mul(factor, Take(d, score + i)), shift));
    if (out != nullptr) hn::StoreU(e, d, out + i);
    sum = hn::Add(sum, e);
  }
  float total = Total(d, sum);
  if (rest != 0) {
    const V e = hn::Exp(d, hn::Sub(hn::Mul(factor, TakeTail(d, score + whole, rest)), shift));
    HWY_ALIGN float tail[kLanesMax];
    hn::Store(e, d, tail);
    for (size_t i = 0; i < rest; ++i) {
      total += tail[i];
      if (out != nullptr) out[static_cast<size_t>(whole) + i] = tail[i];
    }
  }
  *highest = most;
  return total;
}

float LogMeanExpLoop(const float* score, int count, float scale) {
  float highest = 0.0f;
  const float sum = ExpSum(score, count, scale, &highest, nullptr);
  return highest + std::log(sum / static_cast<float>(count));
}

void ScaleRowLoop(const float* x, float scale, int width, float* out) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const V factor = hn::Set(d, scale);
  int i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(hn::Mul(factor, Take(d, x + i)), d, out + i);
  for (; i < width; ++i) out[i] = scale * x[i];
}

void SoftmaxLoop(float* score, int count, float scale) {
  float highest = 0.0f;
  const float sum = ExpSum(score, count, scale, &highest, score);
  ScaleRowLoop(score, 1.0f / sum, count, score);
}

HWY_INLINE V Silu(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  // Beyond 88 the exponential is not a float any more and SiLU is zero to the last bit.
  const V e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)));
  return hn::Div(x, hn::Add(one, e));
}

void ConvSiluLoop(const float* weight, const float* const* x, int width, float* out) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= width; i += lanes) {
    V w0, w1, w2, w3;
    hn::LoadInterleaved4(d, weight + 4 * static_cast<ptrdiff_t>(i), w0, w1, w2, w3);
    V sum = hn::Mul(w0, Take(d, x[0] + i));
    sum = hn::MulAdd(w1, Take(d, x[1] + i), sum);
    sum = hn::MulAdd(w2, Take(d, x[2] + i), sum);
    sum = hn::MulAdd(w3, Take(d, x[3] + i), sum);
    hn::StoreU(Silu(d, sum), d, out + i);
  }
  if (i >= width) return;
  const size_t rest = static_cast<size_t>(width - i);
  HWY_ALIGN float weights[4 * kLanesMax] = {};
  std::memcpy(weights, weight + 4 * static_cast<ptrdiff_t>(i), 4 * rest * sizeof(float));
  V w0, w1, w2, w3;
  hn::LoadInterleaved4(d, weights, w0, w1, w2, w3);
  V sum = hn::Mul(w0, TakeTail(d, x[0] + i, rest));
  sum = hn::MulAdd(w1, TakeTail(d, x[1] + i, rest), sum);
  sum = hn::MulAdd(w2, TakeTail(d, x[2] + i, rest), sum);
  sum = hn::MulAdd(w3, TakeTail(d, x[3] + i, rest), sum);
  StoreTail(d, Silu(d, sum), out + i, rest);
}

void SiluRowLoop(const float* x, int width, float* out) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(Silu(d, Take(d, x + i)), d, out + i);
  if (i >= width) return;
  const size_t rest = static_cast<size_t>(width - i);
  StoreTail(d, Silu(d, TakeTail(d, x + i, rest)), out + i, rest);
}

void GateRowLoop(const float* y, float scale, const float* norm_weight, const float* z, int width,
                 float* out) {
  const D d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const V factor = hn::Set(d, scale);
  int i = 0;
  for (; i + lanes <= width; i += lanes) {
    const V normed = hn::Mul(hn::Mul(Take(d, y + i), factor), Take(d, norm_weight + i));
    hn::StoreU(hn::Mul(normed, Silu(d, Take(d, z + i))), d, out + i);
  }
  if (i >= width) return;
  const size_t rest = static_cast<size_t>(width - i);
  const V normed =
      hn::Mul(hn::Mul(TakeTail(d, y + i, rest), factor), TakeTail(d, norm_weight + i, rest));
  StoreTail(d, hn::Mul(normed, Silu(d, TakeTail(d, z + i, rest))), out + i, rest);
}

void F16ToF32RowLoop(const uint16_t* x, int64_t count, float* out) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Take(d, x + i), d, out + i);
  for (; i < count; ++i) out[i] = F16ToF32(x[i]);
}

void F32ToF16RowLoop(const float* x, int64_t count, float scale, uint16_t* out) {
  int64_t i = 0;
#if MNEME_HARDWARE_F16
  const D d;
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::Rebind<uint16_t, D> du16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, scale);
  for (; i + lanes <= count; i += lanes) {
    const auto half = hn::DemoteTo(d16, hn::Mul(factor, Take(d, x + i)));
    hn::StoreU(hn::BitCast(du16, half), du16, out + i);
  }
#endif
  for (; i < count; ++i) out[i] = F32ToF16(scale * x[i]);
}

float MagnitudeMaxLoop(const float* x, int64_t count) {
  // Integer comparison of magnitudes orders floats and puts infinity and NaN above all of them.
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return std::bit_cast<float>(most);
}

}  // namespace mneme::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mneme::kernels::cpu {

HWY_EXPORT(DotRowsLoop);
HWY_EXPORT(DotRowsTwiceLoop);
HWY_EXPORT(DotRowsF16Loop);
HWY_EXPORT(AddRowsLoop);
HWY_EXPORT(AddRowsTwiceLoop);
HWY_EXPORT(AddRowsF16Loop);
HWY_EXPORT(DotI8Loop);
HWY_EXPORT(DecayWeightsLoop);
HWY_EXPORT(LogMeanExpLoop);
HWY_EXPORT(SoftmaxLoop);
HWY_EXPORT(ConvSiluLoop);
HWY_EXPORT(SiluRowLoop);
HWY_EXPORT(GateRowLoop);
HWY_EXPORT(ScaleRowLoop);
HWY_EXPORT(F16ToF32RowLoop);
HWY_EXPORT(F32ToF16RowLoop);
HWY_EXPORT(MagnitudeMaxLoop);

void DotRows(const float* rows, int64_t stride, int count, int width, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(DotRowsLoop)(rows, stride, count, width, x, out);
}
void DotRowsTwice(const float* rows, int64_t stride, int count, int width, const float* x0,
                  const float* x1, float* out0, float* out1) {
  HWY_DYNAMIC_DISPATCH(DotRowsTwiceLoop)(rows, stride, count, width, x0, x1, out0, out1);
}
void DotRowsF16(const uint16_t* rows, int count, int width, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(DotRowsF16Loop)(rows, count, width, x, out);
}
void AddRows(const float* rows, int64_t stride, int count, int width, const float* weight,
             float* sum) {
  HWY_DYNAMIC_DISPATCH(AddRowsLoop)(rows, stride, count, width, weight, sum);
}
void AddRowsTwice(const float* rows, int64_t stride, int count, int width, const float* weight0,
                  const float* weight1, float* sum0, float* sum1) {
  HWY_DYNAMIC_DISPATCH(AddRowsTwiceLoop)
  (rows, stride, count, width, weight0, weight1, sum0, sum1);
}
void AddRowsF16(const uint16_t* rows, int count, int width, const float* weight, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddRowsF16Loop)(rows, count, width, weight, sum);
}
float DotI8(const int8_t* row, int width, const float* x) {
  return HWY_DYNAMIC_DISPATCH(DotI8Loop)(row, width, x);
}
void DecayWeights(const float* c, int count, float last, const float* factor, float* out) {
  HWY_DYNAMIC_DISPATCH(DecayWeightsLoop)(c, count, last, factor, out);
}
float DecayOf(float x) { return x < kDecayDrop ? 0.0f : std::exp(x); }
float LogMeanExp(const float* score, int count, float scale) {
  return HWY_DYNAMIC_DISPATCH(LogMeanExpLoop)(score, count, scale);
}
void Softmax(float* score, int count, float scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxLoop)(score, count, scale);
}
void ConvSilu(const float* weight, const float* const* x, int width, float* out) {
  HWY_DYNAMIC_DISPATCH(ConvSiluLoop)(weight, x, width, out);
}
void SiluRow(const float* x, int width, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluRowLoop)(x, width, out);
}
void GateRow(const float* y, float scale, const float* norm_weight, const float* z, int width,
             float* out) {
  HWY_DYNAMIC_DISPATCH(GateRowLoop)(y, scale, norm_weight, z, width, out);
}
void ScaleRow(const float* x, float scale, int width, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleRowLoop)(x, scale, width, out);
}
void F16ToF32Row(const uint16_t* x, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(F16ToF32RowLoop)(x, count, out);
}
void F32ToF16Row(const float* x, int64_t count, float scale, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(F32ToF16RowLoop)(x, count, scale, out);
}
float MagnitudeMax(const float* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(MagnitudeMaxLoop)(x, count);
}

}  // namespace mneme::kernels::cpu
#endif  // HWY_ONCE
