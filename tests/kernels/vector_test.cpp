// Sums over rows against sums in double; widening against dtype.h for every one of the 65,536 f16
// numbers.
#include "kernels/vector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/dtype.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

TEST(VectorTest, DotRowsEqualsTheSums) {
  support::RandomFloats random(1);
  for (const int64_t size : {1, 17, 64, 256}) {
    for (const int64_t count : {1, 4, 7}) {
      const int64_t stride = size + 3;
      const std::vector<float> x = random.Many(size);
      const std::vector<float> rows = random.Many(count * stride);
      std::vector<float> out(static_cast<size_t>(count));
      DotRows(x.data(), rows.data(), stride, count, size, 0.5f, out.data());
      std::vector<double> expected;
      for (int64_t t = 0; t < count; ++t) {
        double sum = 0;
        for (int64_t i = 0; i < size; ++i)
          sum += static_cast<double>(x[static_cast<size_t>(i)]) *
                 static_cast<double>(rows[static_cast<size_t>(t * stride + i)]);
        expected.push_back(0.5 * sum);
      }
      support::ExpectNear(out, expected, 1e-5);
      // A row's bits do not depend on how many are asked for.
      for (int64_t t = 0; t < count; ++t) {
        float alone = 0;
        DotRows(x.data(), rows.data() + t * stride, stride, 1, size, 0.5f, &alone);
        ASSERT_EQ(alone, out[static_cast<size_t>(t)]);
      }
    }
  }
}

TEST(VectorTest, AddRowsEqualsTheSumsAndStaysInside) {
  support::RandomFloats random(2);
  for (const int64_t size : {1, 17, 64, 200}) {
    const int64_t count = 9;
    const int64_t stride = size + 1;
    const std::vector<float> weights = random.Many(count);
    const std::vector<float> rows = random.Many(count * stride);
    std::vector<float> out = random.Many(size + 1);
    std::vector<double> expected(out.begin(), out.end());
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t i = 0; i < size; ++i)
        expected[static_cast<size_t>(i)] +=
            static_cast<double>(weights[static_cast<size_t>(t)]) *
            static_cast<double>(rows[static_cast<size_t>(t * stride + i)]);
    }
    AddRows(weights.data(), rows.data(), stride, count, size, out.data());
    support::ExpectNear(out, expected, 1e-5);
  }
}

TEST(VectorTest, WidensEveryF16Exactly) {
  std::vector<std::byte> bytes(1 + 2 * 65'536);
  for (uint32_t bits = 0; bits < 65'536; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    std::memcpy(bytes.data() + 1 + 2 * bits, &value, 2);
  }
  std::vector<float> out(65'536);
  WidenF16(bytes.data() + 1, 65'535, out.data());  // an odd count takes the last elements' path
  WidenF16(bytes.data() + 1 + 2 * 65'535, 1, out.data() + 65'535);
  for (uint32_t bits = 0; bits < 65'536; ++bits) {
    const float expected = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[bits]));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[bits]), std::bit_cast<uint32_t>(expected)) << bits;
    }
  }
}

}  // namespace
}  // namespace mneme::kernels::cpu
