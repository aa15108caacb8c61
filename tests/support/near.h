// Comparing arrays of floats: near a definition computed in double, or the same to the last bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace mneme::support {

// The tolerance is absolute below one and relative above; docs/numerics.md lists them.
inline void ExpectNear(std::span<const float> actual, std::span<const double> expected,
                       double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed = tolerance * std::max(1.0, std::abs(expected[i]));
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], allowed) << "at " << i;
  }
}

// NaN equals the same NaN.
inline void ExpectSameBits(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << "at " << i << ": " << actual[i] << " and " << expected[i];
  }
}

}  // namespace mneme::support
