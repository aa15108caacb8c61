// The three matrix products of the linear layers, in fewer words than gemm.h's PlainProduct.
//
// Shapes:   C [m, n], inner size k, row-major; strides are between rows.
// Order:    a product depends on its operands and sizes alone.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"

namespace mneme::kernels::cpu {

struct Matrix {
  const float* first = nullptr;
  int64_t stride = 0;
};

// C = A B, A [m, k], B [k, n]
inline void Multiply(int m, int n, int k, Matrix a, Matrix b, float* c, int64_t stride) {
  Multiply(PlainProduct{.rows = m,
                        .cols = n,
                        .inner = k,
                        .a = a.first,
                        .a_stride = a.stride,
                        .b = b.first,
                        .b_stride = b.stride,
                        .c = c,
                        .c_stride = stride});
}

// C = A B^T, A [m, k], B [n, k]
inline void MultiplyByTransposed(int m, int n, int k, Matrix a, Matrix b, float* c,
                                 int64_t stride) {
  Multiply(PlainProduct{.rows = m,
                        .cols = n,
                        .inner = k,
                        .a = a.first,
                        .a_stride = a.stride,
                        .b = b.first,
                        .b_stride = b.stride,
                        .transpose_b = true,
                        .c = c,
                        .c_stride = stride});
}

// C = keep C + A^T B, A [k, m], B [k, n]
inline void AddTransposedTimes(int m, int n, int k, Matrix a, Matrix b, float keep, float* c,
                               int64_t stride) {
  Multiply(PlainProduct{.rows = m,
                        .cols = n,
                        .inner = k,
                        .a = a.first,
                        .a_stride = a.stride,
                        .transpose_a = true,
                        .b = b.first,
                        .b_stride = b.stride,
                        .c = c,
                        .c_stride = stride,
                        .beta = keep});
}

}  // namespace mneme::kernels::cpu
