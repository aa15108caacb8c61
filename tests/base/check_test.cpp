// MNEME_CHECK must stop a release build too, and say what did not hold.
#include "base/check.h"

#include <gtest/gtest.h>

namespace mneme {
namespace {

TEST(CheckTest, PassesSilentlyWhenTheConditionHolds) { MNEME_CHECK(1 < 2, "never printed {}", 0); }

TEST(CheckDeathTest, PrintsTheConditionAndTheValuesAndAborts) {
  const int slot = 9;
  EXPECT_DEATH(MNEME_CHECK(slot < 4, "slot {} of {}", slot, 4),
               "slot < 4 does not hold: slot 9 of 4");
}

}  // namespace
}  // namespace mneme
