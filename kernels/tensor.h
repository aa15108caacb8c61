// TensorView: where a weight lies, in which type and with which sizes. It owns nothing; the mapped
// file or the array behind it must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

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

// The numbers of a tensor in F32, BF16 or F16, widened exactly.
inline std::vector<float> ToF32(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  for (size_t index = 0; index < values.size(); ++index) {
    const std::byte* at = tensor.bytes + index * BytesOf(tensor.dtype);
    if (tensor.dtype == Dtype::kF32) {
      std::memcpy(&values[index], at, sizeof(float));
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    values[index] = tensor.dtype == Dtype::kBf16 ? Bf16ToF32(bits) : F16ToF32(bits);
  }
  return values;
}

}  // namespace mneme::kernels
