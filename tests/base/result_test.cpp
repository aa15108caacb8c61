// Result and MNEME_TRY: the error leaves early with its sentence, the value comes through.
#include "base/result.h"

#include <gtest/gtest.h>

namespace mneme {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Status Quarter(int value, int* quarter) {
  auto half = Half(value);
  MNEME_TRY(half);
  auto result = Half(*half);
  MNEME_TRY(result);
  *quarter = *result;
  return {};
}

TEST(ResultTest, TryLeavesWithTheError) {
  int quarter = 0;
  const Status status = Quarter(6, &quarter);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "3 is odd");
  EXPECT_EQ(quarter, 0);
}

TEST(ResultTest, TryGoesOnWithAValue) {
  int quarter = 0;
  ASSERT_TRUE(Quarter(8, &quarter));
  EXPECT_EQ(quarter, 2);
}

}  // namespace
}  // namespace mneme
