// Tensors taken by name: shapes and types, what was counted, and what nobody asked for.
#include "model/tensor_taker.h"

#include <gtest/gtest.h>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::Counting;
using support::ScratchFolder;
using support::TestTensors;

class TensorTakerTest : public ::testing::Test {
 protected:
  TensorTakerTest() {
    const TestTensors tensors = {{"a", Counting("BF16", {3, 5})},
                                 {"b", Counting("F32", {2, 3, 4})},
                                 {"c", Counting("F32", {6})},
                                 {"d", Counting("I8", {2})}};
    scratch_.Write("model.safetensors", FileOf(tensors));
    auto folder = WeightFolder::Open(scratch_.path());
    EXPECT_TRUE(folder);
    folder_ = std::make_unique<WeightFolder>(std::move(*folder));
  }

  ScratchFolder scratch_;
  std::unique_ptr<WeightFolder> folder_;
  kernels::TensorView view_;
};

TEST_F(TensorTakerTest, TakesWhatIsThereAndCountsIt) {
  TensorTaker taker(*folder_);
  EXPECT_TRUE(taker.Has("a"));
  EXPECT_FALSE(taker.Has("e"));
  ASSERT_TRUE(taker.Take(view_, "a", {3, 5}));
  EXPECT_EQ(view_.rows, 3);
  EXPECT_EQ(view_.cols, 5);
  ASSERT_TRUE(taker.Take(view_, "b", {2, 3, 4}));
  EXPECT_EQ(view_.cols, 12);
  ASSERT_TRUE(taker.Take(view_, "c", {6}));
  EXPECT_EQ(view_.rows, 1) << "a vector is one row";
  EXPECT_EQ(taker.parameters(), 15u + 24u + 6u);
  EXPECT_EQ(taker.stored_bytes(), 30u + 96u + 24u);
}

TEST_F(TensorTakerTest, RefusesOtherShapesTypesAndNames) {
  TensorTaker taker(*folder_);
  EXPECT_EQ(taker.Take(view_, "a", {5, 3}).error().message(),
            "model.safetensors: tensor a: expected shape [5, 3], found [3, 5]");
  EXPECT_EQ(taker.Take(view_, "d", {2}).error().message(),
            "model.safetensors: tensor d: expected F32, BF16 or F16, found I8");
  const Status missing = taker.Take(view_, "e", {2});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message(),
            "model.safetensors: tensor e: expected shape [2], found no such tensor");
}

TEST_F(TensorTakerTest, NamesWhatNobodyAskedFor) {
  TensorTaker taker(*folder_);
  ASSERT_TRUE(taker.Take(view_, "a", {3, 5}));
  const auto known = [](std::string_view name) { return name == "c" || name == "d"; };
  const auto refused = taker.CountSkipped(known, "a small model");
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().message(),
      "model.safetensors: tensor b: expected only tensors of a small model, found this one of "
      "shape [2, 3, 4]");
  ASSERT_TRUE(taker.Take(view_, "b", {2, 3, 4}));
  EXPECT_EQ(*taker.CountSkipped(known, "a small model"), 2u);
}

}  // namespace
}  // namespace mneme::model
