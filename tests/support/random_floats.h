// Seeded inputs for tests: uniform in [-scale, scale), the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/tensor.h"

namespace mneme::support {

class RandomFloats {
 public:
  explicit RandomFloats(uint64_t seed) : state_(seed) {}

  uint64_t Bits() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float Next(float scale = 1.0f) {
    return (static_cast<float>(Bits() >> 40) * 0x1p-23f - 1.0f) * scale;
  }
  std::vector<float> Many(int64_t count, float scale = 1.0f) {
    std::vector<float> floats(static_cast<size_t>(count));
    for (float& each : floats) each = Next(scale);
    return floats;
  }

 private:
  uint64_t state_;
};

// A stored matrix and what its numbers are in f32. The bytes lie at an odd address, because a
// TensorView promises no alignment.
class StoredMatrix {
 public:
  StoredMatrix(int64_t rows, int64_t cols, kernels::Dtype dtype, const std::vector<float>& values)
      : rows_(rows), cols_(cols), dtype_(dtype), floats_(values) {
    const size_t width = kernels::BytesOf(dtype);
    bytes_.resize(1 + values.size() * width);
    for (size_t i = 0; i < values.size(); ++i) {
      std::byte* at = bytes_.data() + 1 + i * width;
      if (dtype == kernels::Dtype::kF32) {
        std::memcpy(at, &values[i], 4);
        continue;
      }
      const bool bf16 = dtype == kernels::Dtype::kBf16;
      const uint16_t bits = bf16 ? kernels::F32ToBf16(values[i]) : kernels::F32ToF16(values[i]);
      std::memcpy(at, &bits, 2);
      floats_[i] = bf16 ? kernels::Bf16ToF32(bits) : kernels::F16ToF32(bits);
    }
  }

  kernels::TensorView view() const { return {bytes_.data() + 1, dtype_, rows_, cols_}; }
  const std::vector<float>& floats() const { return floats_; }

 private:
  int64_t rows_;
  int64_t cols_;
  kernels::Dtype dtype_;
  std::vector<float> floats_;
  std::vector<std::byte> bytes_;
};

}  // namespace mneme::support
