#include "kernels/page_read.h"

#include <algorithm>

#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"

namespace mneme::kernels::cpu {
namespace {

// sum <- x M for a matrix of the page with `rows` rows.
void TimesPageMatrix(const float* x, const std::byte* matrix, Dtype dtype, int rows, int width,
                     float* sum) {
  std::fill_n(sum, width, 0.0f);
  if (dtype == Dtype::kF16) {
    AddRowsF16(reinterpret_cast<const uint16_t*>(matrix), rows, width, x, sum);
  } else {
    AddRows(reinterpret_cast<const float*>(matrix), width, rows, width, x, sum);
  }
}

// output += w scale b; returns |w scale b|^2.
float AddOutput(const float* b, float factor, int width, float* output) {
  for (int d = 0; d < width; ++d) output[d] += factor * b[d];
  float square = 0.0f;
  DotRows(b, width, 1, width, b, &square);
  return square * factor * factor;
}

// carry <- (1 - w) carry + w scale a, in this form because w = 1 must leave nothing of the old
// carry; a is null where A is 0.
void TurnCarry(const float* a, float scale, float gate, int width, float* carry) {
  if (a == nullptr) {
    ScaleRow(carry, 1.0f - gate, width, carry);
    return;
  }
  const float keep = 1.0f - gate, take = gate * scale;
  for (int d = 0; d < width; ++d) carry[d] = keep * carry[d] + take * a[d];
}

// The same where A is no matrix.
void TurnCarryByRow(const PageView& page, float gate, int width, float* carry) {
  if (page.transition == TransitionKind::kIdentity) return;
  const float keep = 1.0f - gate;
  for (int d = 0; d < width; ++d)
    carry[d] = keep * carry[d] + gate * (page.NumberOfA(d) * carry[d]);
}

bool IsSpent(const float* carry, int width) { return MagnitudeMax(carry, width) < kCarryDrop; }

// The page's matrix as f32: itself, or converted into `room`.
const float* AsF32(const std::byte* matrix, Dtype dtype, int64_t count, float* room) {
  if (dtype == Dtype::kF32) return reinterpret_cast<const float*>(matrix);
  F16ToF32Row(reinterpret_cast<const uint16_t*>(matrix), count, room);
  return room;
}

}  // namespace

void ReadPage(const PageReadArgs& args) {
  const PageView& page = args.page;
  const int K = args.key_dim, V = args.value_dim;
  float* product = args.scratch;  // [max(K, V)]
  for (int i = 0; i < args.count; ++i) {
    float* carry = args.carry + static_cast<ptrdiff_t>(args.row[i]) * K;
    float* output = args.output + static_cast<ptrdiff_t>(args.row[i]) * V;
    const float gate = args.gate[i];
    if (IsSpent(carry, K)) continue;
    TimesPageMatrix(carry, page.b, page.dtype, K, V, product);
    args.square[i] += AddOutput(product, gate * page.b_scale, V, output);
    if (page.transition != TransitionKind::kDense) {
      TurnCarryByRow(page, gate, K, carry);
      continue;
    }
    if (page.a != nullptr) TimesPageMatrix(carry, page.a, page.dtype, K, K, product);
    TurnCarry(page.a == nullptr ? nullptr : product, page.a_scale, gate, K, carry);
  }
}

void ReadPageTogether(const PageReadArgs& args) {
  const PageView& page = args.page;
  const int K = args.key_dim, V = args.value_dim;
  float* matrix = args.scratch;                                      // [K, max(K, V)]
  float* rows = matrix + static_cast<ptrdiff_t>(K) * (K + V);        // [n, K]
  float* product = rows + static_cast<ptrdiff_t>(kPieceTokens) * K;  // [n, max(K, V)]
  int entry[kPieceTokens];                                           // which of the args' rows
  int n = 0;
  const auto carry_of = [&](int i) { return args.carry + static_cast<ptrdiff_t>(args.row[i]) * K; };
  for (int i = 0; i < args.count; ++i) {
    if (IsSpent(carry_of(i), K)) continue;
    std::copy_n(carry_of(i), K, rows + static_cast<ptrdiff_t>(n) * K);
    entry[n++] = i;
  }
  if (n == 0) return;
  const float* b = AsF32(page.b, page.dtype, int64_t{K} * V, matrix);
  Multiply(n, V, K, {rows, K}, {b, V}, product, V);
  for (int m = 0; m < n; ++m) {
    const int i = entry[m];
    args.square[i] +=
        AddOutput(product + static_cast<ptrdiff_t>(m) * V, args.gate[i] * page.b_scale, V,
                  args.output + static_cast<ptrdiff_t>(args.row[i]) * V);
  }
  if (page.transition != TransitionKind::kDense) {
    for (int m = 0; m < n; ++m) TurnCarryByRow(page, args.gate[entry[m]], K, carry_of(entry[m]));
    return;
  }
  if (page.a != nullptr) {
    const float* a = AsF32(page.a, page.dtype, int64_t{K} * K, matrix);
    Multiply(n, K, K, {rows, K}, {a, K}, product, K);
  }
  for (int m = 0; m < n; ++m) {
    TurnCarry(page.a == nullptr ? nullptr : product + static_cast<ptrdiff_t>(m) * K, page.a_scale,
              args.gate[entry[m]], K, carry_of(entry[m]));
  }
}

}  // namespace mneme::kernels::cpu
