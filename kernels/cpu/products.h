// The three matrix products of the linear layers, in fewer words than gemm.h's PlainProductOf, for
// float and double.
//
// Shapes:   C [m, n], inner size k, row-major; strides are between rows.
// Order:    a product depends on its operands and sizes alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm.h"

namespace mneme::kernels::cpu {

template <typename Real>
struct Matrix {
  const Real* first = nullptr;
  int64_t stride = 0;
};

// Takes its type from the result alone, so that an operand can be written as {first, stride}.
template <typename Real>
using Operand = Matrix<std::type_identity_t<Real>>;

// C = A B of these sizes and places; what is transposed or kept is added by name.
template <typename Real>
PlainProductOf<Real> ProductOf(int m, int n, int k, Operand<Real> a, Operand<Real> b, Real* c,
                               int64_t stride) {
  return {.rows = m,
          .cols = n,
          .inner = k,
          .a = a.first,
          .a_stride = a.stride,
          .b = b.first,
          .b_stride = b.stride,
          .c = c,
          .c_stride = stride};
}

// C = A B, A [m, k], B [k, n]
template <typename Real>
void Multiply(int m, int n, int k, Operand<Real> a, Operand<Real> b, Real* c, int64_t stride) {
  Multiply(ProductOf<Real>(m, n, k, a, b, c, stride));
}

// C = A B^T, A [m, k], B [n, k]
template <typename Real>
void MultiplyByTransposed(int m, int n, int k, Operand<Real> a, Operand<Real> b, Real* c,
                          int64_t stride) {
  PlainProductOf<Real> product = ProductOf<Real>(m, n, k, a, b, c, stride);
  product.transpose_b = true;
  Multiply(product);
}

// C = keep C + A^T B, A [k, m], B [k, n]
template <typename Real>
void AddTransposedTimes(int m, int n, int k, Operand<Real> a, Operand<Real> b,
                        std::type_identity_t<Real> keep, Real* c, int64_t stride) {
  PlainProductOf<Real> product = ProductOf<Real>(m, n, k, a, b, c, stride);
  product.transpose_a = true;
  product.beta = keep;
  Multiply(product);
}

}  // namespace mneme::kernels::cpu
