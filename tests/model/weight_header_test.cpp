// The header alone, before its ranges meet a file: what it declares comes out in its own order.
// weight_file_test.cpp has the refusals.
#include "model/weight_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mneme::model {
namespace {

using ::testing::HasSubstr;

TEST(WeightHeaderTest, KeepsOrderAndDeclaredNumbers) {
  const auto header = ParseWeightHeader(
      R"({"z":{"shape":[2,3],"data_offsets":[24,36],"dtype":"BF16"},
          "__metadata__":{"k":"v\n"},
          "a":{"dtype":"I64","shape":[],
               "data_offsets":[18446744073709551607,18446744073709551615]}})",
      "f");
  ASSERT_TRUE(header) << header.error().message();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].tensor.name, "z");
  EXPECT_EQ(header->tensors[0].tensor.ShapeText(), "[2, 3]");
  EXPECT_EQ(header->tensors[0].begin, 24u);
  EXPECT_EQ(header->tensors[1].tensor.rank, 0);
  EXPECT_EQ(header->tensors[1].end, UINT64_MAX);
  EXPECT_EQ(header->metadata.at("k"), "v\n");
}

TEST(WeightHeaderTest, TakesAnEmptyHeaderAndSpacesBehindIt) {
  const auto header = ParseWeightHeader("{}    ", "f");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_TRUE(header->tensors.empty());
}

TEST(WeightHeaderTest, RefusesDepthBeforeItCosts) {
  const auto header = ParseWeightHeader(std::string(1 << 20, '['), "f");
  ASSERT_FALSE(header);
  EXPECT_THAT(header.error().message(), HasSubstr("f: tensor (header): expected an object"));
}

}  // namespace
}  // namespace mneme::model
