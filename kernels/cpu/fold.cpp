#include "kernels/fold.h"

#include <algorithm>

#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"

namespace mneme::kernels::cpu {

void FoldRows(const FoldRowsArgs& args) {
  const int K = args.key_dim, V = args.value_dim, T = args.tokens, width = K + V;
  float* key = args.scratch;                           // e^{c_T - c_t} k_t [T, K]
  float* write = key + static_cast<ptrdiff_t>(T) * K;  // uA S + uB [T, V]
  const float last = args.c[T - 1];
  for (int t = 0; t < T; ++t) {
    const ptrdiff_t row = static_cast<ptrdiff_t>(t) * K;
    ScaleRow(args.k + row, DecayOf(last - args.c[t]), K, key + row);
  }
  Multiply(T, V, K, {args.u, width}, {args.state, V}, write, V);
  for (int t = 0; t < T; ++t) {
    const float* u = args.u + static_cast<ptrdiff_t>(t) * width + K;
    float* row = write + static_cast<ptrdiff_t>(t) * V;
    for (int d = 0; d < V; ++d) row[d] += u[d];
  }
  ScaleRow(args.state, DecayOf(last), K * V, args.state);
  AddTransposedTimes(K, V, T, {key, K}, {write, V}, 1.0f, args.state, V);
}

void FoldPage(const FoldPageArgs& args) {
  const PageView& page = args.page;
  const int K = args.key_dim, V = args.value_dim;
  float* a = args.scratch;                             // [K, K]
  float* b = a + static_cast<ptrdiff_t>(K) * K;        // [K, V]
  float* product = b + static_cast<ptrdiff_t>(K) * V;  // A S [K, V]
  const auto convert = [&](const std::byte* matrix, int64_t count, float* out) {
    if (page.dtype == Dtype::kF16) {
      F16ToF32Row(reinterpret_cast<const uint16_t*>(matrix), count, out);
    } else {
      std::copy_n(reinterpret_cast<const float*>(matrix), count, out);
    }
  };
  convert(page.b, int64_t{K} * V, b);
  if (page.transition != TransitionKind::kDense) {
    const bool identity = page.transition == TransitionKind::kIdentity;
    for (int i = 0; i < K; ++i) {
      const ptrdiff_t row = static_cast<ptrdiff_t>(i) * V;
      ScaleRow(args.state + row, identity ? 1.0f : page.NumberOfA(i), V, product + row);
    }
  } else if (page.a != nullptr) {
    convert(page.a, int64_t{K} * K, a);
    Multiply(K, V, K, {a, K}, {args.state, V}, product, V);
  } else {
    std::fill_n(product, K * V, 0.0f);
  }
  const float keep = 1.0f - args.gate;
  for (int i = 0; i < K * V; ++i) {
    const float next = page.a_scale * product[i] + page.b_scale * b[i];
    args.state[i] = keep * args.state[i] + args.gate * next;
  }
}

}  // namespace mneme::kernels::cpu
