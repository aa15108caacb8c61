// Products of rows with a packed weight matrix, out[n, o] = sum_i x[n, i] W[o, i], in the two forms
// of architecture decision 8, and the plain product of two f32 or f64 matrices.
//
// A row's bits depend on the row, the matrix and the form alone: not on the other rows, their
// number, or the number of threads. Work is split over output columns, never over i.
//
// * Decode form: our own kernel. Per (row, output) there are two sums, of the even and of the odd
//   inputs, each in ascending order with fused multiply-adds; the result is even + odd. Weights are
//   read from memory once, whatever the number of rows.
// * Prefill form: kPieceTokens rows at a time by BLAS, on tiles of weights widened to f32. Every
// call
//   for the same tile has the same shape, so the library always takes the same path.
//
// Letters: N rows, O outputs, I inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "kernels/dtype.h"
#include "kernels/kernel_table.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace mneme::kernels {

// Inputs and outputs a matrix may have: what a tile of scratch memory and 32-bit counts allow.
inline constexpr int64_t kMatrixInputsMax = 131'072;
inline constexpr int64_t kMatrixOutputsMax = int64_t{1} << 24;

// Refuses blocks that no matrix can be made of; used by every backend.
Status ValidateBlocks(std::span<const TensorView> blocks);

namespace cpu {

// Outputs of one panel: what two AVX-512 registers hold.
inline constexpr int kPanelOutputs = 32;

// A matrix cut into panels of kPanelOutputs outputs, one after the other, inputs outermost, so that
// one pass over it is one ascending read:
//
//   f32   panel [I, 32]
//   bf16  panel [ceil(I/2), 32] of 32-bit words: input 2i in the low half, 2i + 1 in the high half
//
// Outputs past O and the input past an odd I are 0.
class PanelMatrix final : public PackedMatrix {
 public:
  static Result<std::unique_ptr<PackedMatrix>> Pack(std::span<const TensorView> blocks);

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t bytes() const override { return static_cast<size_t>(panels()) * panel_bytes(); }
  size_t bytes_read() const override { return bytes(); }

  Dtype dtype() const { return dtype_; }
  int64_t panels() const { return (rows_ + kPanelOutputs - 1) / kPanelOutputs; }
  size_t panel_bytes() const;
  const std::byte* panel(int64_t index) const {
    return storage_.get() + static_cast<size_t>(index) * panel_bytes();
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };

  PanelMatrix() = default;

  Dtype dtype_ = Dtype::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::unique_ptr<std::byte[], Free> storage_;
};

// The CPU backend's view of a matrix handed through the table.
inline const PanelMatrix& AsPanels(const PackedMatrix& matrix) {
  return static_cast<const PanelMatrix&>(matrix);
}

struct MatrixProduct {
  const PackedMatrix* weight = nullptr;  // [O, I], made by PanelMatrix::Pack
  const float* x = nullptr;              // [rows, I], x_stride floats from row to row
  int64_t x_stride = 0;
  float* out = nullptr;  // [rows, outputs], out_stride floats from row to row; not x
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t outputs = 0;  // the first so many of O; 0: all
  bool add = false;     // out += instead of out =
};

// The decode form, for any number of rows.
void MultiplyRows(const MatrixProduct& product, Stream& stream);

// The prefill form; rows is a multiple of kPieceTokens.
void MultiplyPieces(const MatrixProduct& product, Stream& stream);

// One or the other.
void Multiply(RowForm form, const MatrixProduct& product, Stream& stream);

// c <- alpha op(a) op(b) + beta c, all of one type and row-major, on the calling thread, by BLAS.
// The bits of a row of c may depend on the shape, so callers whose rows must not know each other
// keep it fixed (rows padded to kPieceTokens).
template <typename Real>
struct PlainProductOf {
  int rows = 0;   // of op(a) and c
  int cols = 0;   // of op(b) and c
  int inner = 0;  // cols of op(a), rows of op(b)
  const Real* a = nullptr;
  int64_t a_stride = 0;
  bool transpose_a = false;  // a lies as [inner, rows]
  const Real* b = nullptr;
  int64_t b_stride = 0;
  bool transpose_b = false;  // b lies as [cols, inner]
  Real* c = nullptr;
  int64_t c_stride = 0;
  Real alpha = 1;
  Real beta = 0;
};
using PlainProduct = PlainProductOf<float>;
void Multiply(const PlainProductOf<float>& product);
void Multiply(const PlainProductOf<double>& product);

// One panel of the decode form and the widening of one panel; cpu/row_kernel.cpp.
struct PanelRows {
  const std::byte* panel = nullptr;  // of PanelMatrix
  Dtype dtype = Dtype::kF32;
  int64_t cols = 0;          // I
  const float* x = nullptr;  // [rows, I]
  int64_t x_stride = 0;
  float* out = nullptr;  // [rows, outputs]
  int64_t out_stride = 0;
  int64_t rows = 0;
  int outputs = kPanelOutputs;  // 1 .. kPanelOutputs
  // Weights so far behind those in hand are asked for: about the latency of memory.
  int64_t ahead_bytes = 2048;
  bool add = false;
};
void MultiplyPanel(const PanelRows& args);

// tile[i, 0 .. 32) <- the panel's weights as f32, `stride` floats from row to row.
void WidenPanel(const std::byte* panel, Dtype dtype, int64_t cols, float* tile, int64_t stride);

}  // namespace cpu
}  // namespace mneme::kernels
