// The words of refused args.
#include "kernels/args.h"

#include <gtest/gtest.h>

namespace mneme::kernels {
namespace {

std::string MessageOf(const Status& status) {
  if (status) return "";
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  return status.error().message();
}

TEST(ArgsTest, NamesTheFirstNullPointer) {
  const int value = 0;
  EXPECT_EQ(MessageOf(RequirePointers("mlp", {{"x", &value}})), "");
  EXPECT_EQ(MessageOf(RequirePointers("mlp", {{"x", &value}, {"down", nullptr}, {"up", nullptr}})),
            "mlp: down is null");
}

TEST(ArgsTest, NamesTheFirstSizeBelowOne) {
  EXPECT_EQ(MessageOf(RequirePositive("mlp", {{"a", 1}, {"b", 1}})), "");
  EXPECT_EQ(MessageOf(RequirePositive("mlp", {{"a", 1}, {"b", -4}, {"c", 0}})), "mlp: b is -4");
}

TEST(ArgsTest, RefusesStepsThatNoOpCanRead) {
  EXPECT_EQ(MessageOf(RequireStep("mlp", nullptr)), "mlp: step is null");
  StepTable step;
  EXPECT_EQ(MessageOf(RequireStep("mlp", &step)), "");
  step.rows = -1;
  EXPECT_EQ(MessageOf(RequireStep("mlp", &step)), "mlp: rows is -1");
  step.rows = 65;
  EXPECT_EQ(MessageOf(RequireStep("mlp", &step)), "");
  step.form = RowForm::kPrefill;
  EXPECT_EQ(MessageOf(RequireStep("mlp", &step)), "mlp: 65 prefill rows, not a multiple of 64");
}

}  // namespace
}  // namespace mneme::kernels
