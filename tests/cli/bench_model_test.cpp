// What bench measures with: its tokens, and the shapes it makes models of.
#include "cli/bench_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mneme::cli {
namespace {

TEST(BenchModelTest, TokensAreTheSameEachTimeAndAllOverTheVocabulary) {
  const std::vector<int32_t> tokens = AnyTokens(4000, 100);
  EXPECT_EQ(tokens, AnyTokens(4000, 100));
  EXPECT_GE(*std::min_element(tokens.begin(), tokens.end()), 0);
  EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), 100);
  EXPECT_EQ(std::set(tokens.begin(), tokens.end()).size(), 100u);
}

TEST(BenchModelTest, AShapeHasNoRouterAndAnUnknownOneIsNone) {
  BenchModel model;
  model.shape = "0.8b";
  model.choice.reader = "hla";
  EXPECT_EQ(MakeBenchModel(model).error().message(),
            "reader hla: a --shape has no router; use native");
  model.shape = "7b";
  model.choice.reader = "";
  EXPECT_FALSE(MakeBenchModel(model));
}

}  // namespace
}  // namespace mneme::cli
