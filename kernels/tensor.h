// TensorView: where a weight lies, in which type and with which sizes. It owns nothing; the mapped
// file or the array behind it must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace mneme::kernels {

struct TensorView {
  const std::byte* bytes = nullptr;  // [rows, cols], row-major, no gaps; may be unaligned
  Dtype dtype = Dtype::kF32;
  int64_t rows = 0;  // a vector is one row
  int64_t cols = 0;

  int64_t elements() const { return rows * cols; }
  size_t size_bytes() const { return static_cast<size_t>(elements()) * BytesOf(dtype); }
};

}  // namespace mneme::kernels
