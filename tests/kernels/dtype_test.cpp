// Conversions of stored number types against their definition: exact towards f32, nearest with ties
// to even the other way.
#include "kernels/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mneme::kernels {
namespace {

TEST(DtypeTest, EveryBf16AndF16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    if (!std::isnan(Bf16ToF32(stored))) {
      EXPECT_EQ(F32ToBf16(Bf16ToF32(stored)), stored);
    }
    if (!std::isnan(F16ToF32(stored))) {
      EXPECT_EQ(F32ToF16(F16ToF32(stored)), stored);
    }
  }
}

TEST(DtypeTest, RoundsToNearestWithTiesToEven) {
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-8f), F32ToBf16(1.0f)) << "a tie goes to the even neighbour";
  EXPECT_EQ(F32ToBf16(1.0f + 3 * 0x1p-8f), F32ToBf16(1.0f + 0x1p-6f));
  EXPECT_EQ(F32ToBf16(1.0f + 0x1.1p-8f), F32ToBf16(1.0f + 0x1p-7f));
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), F32ToF16(1.0f));
  EXPECT_EQ(F32ToF16(1.0f + 0x1.1p-11f), F32ToF16(1.0f + 0x1p-10f));
}

TEST(DtypeTest, KeepsNanAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(nan))));
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(nan))));
  EXPECT_EQ(Bf16ToF32(F32ToBf16(infinity)), infinity);
  EXPECT_EQ(F16ToF32(F32ToF16(1e6f)), infinity);
}

}  // namespace
}  // namespace mneme::kernels
