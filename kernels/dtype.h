// Number types that weights and pages are stored in, and their exact conversion to and from f32.
//
// Rounding is to nearest, ties to even, everywhere. bf16 is the upper half of an f32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mneme::kernels {

enum class Dtype : uint8_t { kF32 = 0, kBf16 = 1, kF16 = 2, kI8 = 3 };

constexpr size_t BytesOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return 4;
    case Dtype::kBf16:
    case Dtype::kF16:
      return 2;
    case Dtype::kI8:
      return 1;
  }
  return 0;
}

constexpr std::string_view NameOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "F32";
    case Dtype::kBf16:
      return "BF16";
    case Dtype::kF16:
      return "F16";
    case Dtype::kI8:
      return "I8";
  }
  return "?";
}

constexpr float Bf16ToF32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// GCC's _Float16 converts exactly both ways; the compiler uses F16C where the target has it.
inline float F16ToF32(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline uint16_t F32ToF16(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

}  // namespace mneme::kernels
