// The evaluation's random numbers: the same on every machine, and within their bounds.
#include "eval/random.h"

#include <gtest/gtest.h>

namespace mneme::eval {
namespace {

TEST(RandomTest, TheSameSeedGivesTheSameNumbersEverywhere) {
  // The C++ standard fixes the 10,000th number of this engine for its default seed.
  Random standard(std::mt19937_64::default_seed);
  for (int index = 0; index < 9'999; ++index) standard.Below(2);
  EXPECT_EQ(standard.Below(SIZE_MAX), 9'981'545'732'273'789'042u);
}

TEST(RandomTest, StaysWithinItsBounds) {
  Random random(1);
  bool low = false;
  bool high = false;
  for (int draw = 0; draw < 1000; ++draw) {
    const int64_t number = random.Between(-3, 3);
    ASSERT_GE(number, -3);
    ASSERT_LE(number, 3);
    low = low || number == -3;
    high = high || number == 3;
    const double share = random.Unit();
    ASSERT_GE(share, 0.0);
    ASSERT_LT(share, 1.0);
  }
  EXPECT_TRUE(low && high) << "both ends are drawn";
}

}  // namespace
}  // namespace mneme::eval
