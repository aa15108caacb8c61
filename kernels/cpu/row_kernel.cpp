// The decode form's inner loop. The lanes of a vector are outputs, so a sum never crosses lanes and
// its order is the same for every instruction set that has fused multiply-adds.
#include "kernels/cpu/targets.h"
#include "kernels/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_kernel.cpp"
#include "hwy/foreach_target.h"
// After it, in this order:
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mneme::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<Floats>;

// Rows computed together: their sums and two vectors of weights must fit in the registers.
constexpr int kRowBlock = 4;
constexpr int kSumRegisters = HWY_TARGET <= HWY_AVX3 ? 16 : 8;

// Sums of R rows and kVectors vectors of outputs. `sums` is [R, kPanelOutputs], at these outputs.
// What lies `ahead` bytes behind the weights in hand is asked for.
template <int kRows, int kVectors, bool kBf16>
HWY_INLINE void SumBlock(const std::byte* panel, int64_t ahead, int64_t cols,
                         const float* HWY_RESTRICT x, int64_t x_stride, float* HWY_RESTRICT sums) {
  const Floats d;
  const Words w;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  hn::Vec<Floats> even[kRows][kVectors];
  hn::Vec<Floats> odd[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) even[r][v] = odd[r][v] = hn::Zero(d);
  }
  const auto high_half = hn::Set(w, 0xffff0000u);
  const int64_t pairs = cols / 2;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    hn::Vec<Floats> low[kVectors];
    hn::Vec<Floats> high[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kBf16) {
        const uint32_t* words = reinterpret_cast<const uint32_t*>(panel) + pair * kPanelOutputs;
        const auto both = hn::Load(w, words + v * kLanes);
        low[v] = hn::BitCast(d, hn::ShiftLeft<16>(both));
        high[v] = hn::BitCast(d, hn::And(both, high_half));
      } else {
        const float* floats = reinterpret_cast<const float*>(panel) + pair * 2 * kPanelOutputs;
        low[v] = hn::Load(d, floats + v * kLanes);
        high[v] = hn::Load(d, floats + kPanelOutputs + v * kLanes);
      }
    }
    constexpr int64_t kStep = kPanelOutputs * (kBf16 ? 4 : 8);
    hwy::Prefetch(panel + pair * kStep + ahead);
    hwy::Prefetch(panel + pair * kStep + ahead + 64);
    for (int r = 0; r < kRows; ++r) {
      const auto x_even = hn::Set(d, x[r * x_stride + 2 * pair]);
      const auto x_odd = hn::Set(d, x[r * x_stride + 2 * pair + 1]);
      for (int v = 0; v < kVectors; ++v) {
        even[r][v] = hn::MulAdd(low[v], x_even, even[r][v]);
        odd[r][v] = hn::MulAdd(high[v], x_odd, odd[r][v]);
      }
    }
  }
  if (cols % 2 != 0) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Vec<Floats> last;
      if constexpr (kBf16) {
        const uint32_t* words = reinterpret_cast<const uint32_t*>(panel) + pairs * kPanelOutputs;
        last = hn::BitCast(d, hn::ShiftLeft<16>(hn::Load(w, words + v * kLanes)));
      } else {
        const float* floats = reinterpret_cast<const float*>(panel) + pairs * 2 * kPanelOutputs;
        last = hn::Load(d, floats + v * kLanes);
      }
      for (int r = 0; r < kRows; ++r)
        even[r][v] = hn::MulAdd(last, hn::Set(d, x[r * x_stride + cols - 1]), even[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(hn::Add(even[r][v], odd[r][v]), d, sums + r * kPanelOutputs + v * kLanes);
  }
}

template <int kRows, bool kBf16>
HWY_NOINLINE void SumRows(const std::byte* panel, int64_t ahead, int64_t cols, const float* x,
                          int64_t x_stride, float* sums) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(Floats()));
  constexpr int kAll = kPanelOutputs / kLanes;
  constexpr int kFit = kSumRegisters / (2 * kRows) < 1 ? 1 : kSumRegisters / (2 * kRows);
  constexpr int kVectors = kFit < kAll ? kFit : kAll;
  static_assert(kAll % kVectors == 0);
  for (int v = 0; v < kAll; v += kVectors)
    SumBlock<kRows, kVectors, kBf16>(panel + 4 * v * kLanes, ahead, cols, x, x_stride,
                                     sums + v * kLanes);
}

template <bool kBf16>
void SumsOf(int rows, const std::byte* panel, int64_t ahead, int64_t cols, const float* x,
            int64_t x_stride, float* sums) {
  switch (rows) {
    case 1:
      return SumRows<1, kBf16>(panel, ahead, cols, x, x_stride, sums);
    case 2:
      return SumRows<2, kBf16>(panel, ahead, cols, x, x_stride, sums);
    case 3:  // three rows in two steps: 6 does not divide the registers
      SumRows<2, kBf16>(panel, ahead, cols, x, x_stride, sums);
      return SumRows<1, kBf16>(panel, ahead, cols, x + 2 * x_stride, x_stride,
                               sums + 2 * kPanelOutputs);
    default:
      return SumRows<4, kBf16>(panel, ahead, cols, x, x_stride, sums);
  }
}

void MultiplyPanelHere(const PanelRows& args) {
  alignas(64) float sums[kRowBlock * kPanelOutputs];
  for (int64_t row = 0; row < args.rows; row += kRowBlock) {
    const int rows = static_cast<int>(args.rows - row < kRowBlock ? args.rows - row : kRowBlock);
    const float* x = args.x + row * args.x_stride;
    if (args.dtype == Dtype::kBf16) {
      SumsOf<true>(rows, args.panel, args.ahead_bytes, args.cols, x, args.x_stride, sums);
    } else {
      SumsOf<false>(rows, args.panel, args.ahead_bytes, args.cols, x, args.x_stride, sums);
    }
    for (int r = 0; r < rows; ++r) {
      float* out = args.out + (row + r) * args.out_stride;
      const float* from = sums + r * kPanelOutputs;
      if (args.add) {
        for (int o = 0; o < args.outputs; ++o) out[o] += from[o];
      } else {
        for (int o = 0; o < args.outputs; ++o) out[o] = from[o];
      }
    }
  }
}

void WidenPanelHere(const std::byte* panel, Dtype dtype, int64_t cols, float* tile,
                    int64_t stride) {
  const Floats d;
  const Words w;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const auto high_half = hn::Set(w, 0xffff0000u);
  for (int64_t i = 0; i < cols; ++i) {
    float* to = tile + i * stride;
    for (int o = 0; o < kPanelOutputs; o += kLanes) {
      if (dtype == Dtype::kF32) {
        const float* from = reinterpret_cast<const float*>(panel) + i * kPanelOutputs + o;
        hn::StoreU(hn::Load(d, from), d, to + o);
        continue;
      }
      const uint32_t* from = reinterpret_cast<const uint32_t*>(panel) + i / 2 * kPanelOutputs + o;
      const auto both = hn::Load(w, from);
      const auto bits = i % 2 == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, high_half);
      hn::StoreU(hn::BitCast(d, bits), d, to + o);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mneme::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mneme::kernels::cpu {

HWY_EXPORT(MultiplyPanelHere);
HWY_EXPORT(WidenPanelHere);

void MultiplyPanel(const PanelRows& args) { HWY_DYNAMIC_DISPATCH(MultiplyPanelHere)(args); }

void WidenPanel(const std::byte* panel, Dtype dtype, int64_t cols, float* tile, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(WidenPanelHere)(panel, dtype, cols, tile, stride);
}

}  // namespace mneme::kernels::cpu
#endif  // HWY_ONCE
