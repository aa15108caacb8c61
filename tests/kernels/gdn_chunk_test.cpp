// Prompt tokens in pieces, through the table's gdn_read and seal, against the token recurrence in
// double, and against generated tokens: both forms write the same rows within rounding.
#include "kernels/gdn_chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/page_codec.h"
#include "tests/support/gdn_session.h"
#include "tests/support/near.h"

namespace mneme::kernels {
namespace {

using support::Doubles;
using support::ExpectNear;
using support::ExpectSameBits;
using support::GatedNormOf;
using support::GdnSession;
using support::GdnTokens;
using support::MakeTokens;
using support::Role;

constexpr double kTolerance = 1e-4;  // docs/numerics.md: gdn_read, seal

float Open(int, int, int) { return 1.0f; }

LinearShape Shape(int g, int h, int k, int v, int chunk) {
  return {.key_heads = g,
          .value_heads = h,
          .key_dim = k,
          .value_dim = v,
          .chunk_tokens = chunk,
          .window_tokens = 16,
          .pages_max = 8};
}

class GdnChunkTest : public ::testing::TestWithParam<LinearShape> {};

TEST_P(GdnChunkTest, OneShotEqualsTheRecurrenceAtEveryLength) {
  for (const int length : {1, 63, 64, 65, 255, 256, 257, 1000}) {
    SCOPED_TRACE(length);
    if (GetParam().key_dim > 100 && length > 257) continue;  // the definition is slow
    const GdnTokens tokens = MakeTokens(GetParam(), length, /*seed=*/5);
    GdnSession session(tokens);
    session.Run({{.tokens = length}}, Open);
    ExpectNear(session.out(),
               GatedNormOf(RecurrenceOf(tokens), session.norm_weight(), tokens.z, 1e-2),
               kTolerance);
  }
}

TEST_P(GdnChunkTest, PromptAndGeneratedTokensMayAlternateAnywhere) {
  const GdnTokens tokens = MakeTokens(GetParam(), 600, /*seed=*/6);
  GdnSession session(tokens);
  session.Run({{.tokens = 3},
               {.tokens = 70, .form = RowForm::kDecode},
               {.tokens = 1},
               {.tokens = 1, .form = RowForm::kDecode},
               {.tokens = 200},
               {.tokens = 20, .form = RowForm::kDecode},
               {.tokens = 255},
               {.tokens = 50, .form = RowForm::kDecode}},
              Open, /*twice=*/true);
  ExpectNear(session.out(), session.Expected(Open), kTolerance);
}

TEST_P(GdnChunkTest, SlicesDoNotChangeABit) {
  const GdnTokens tokens = MakeTokens(GetParam(), 400, /*seed=*/7);
  GdnSession one(tokens), many(tokens);
  one.Run({{.tokens = 400}}, Open);
  many.Run({{.tokens = 400, .slice_pieces = 1}}, Open);
  ExpectSameBits(one.out(), many.out());
  EXPECT_EQ(one.groups(), many.groups());
}

TEST_P(GdnChunkTest, ThreadsDoNotChangeABit) {
  const GdnTokens tokens = MakeTokens(GetParam(), 400, /*seed=*/8);
  const std::vector<Role> roles = {{.tokens = 300}, {.tokens = 100, .form = RowForm::kDecode}};
  GdnSession one(tokens, {.dtype = Dtype::kF16});
  GdnSession two(tokens, {.dtype = Dtype::kF16, .threads = 2});
  one.Run(roles, Open);
  two.Run(roles, Open);
  ExpectSameBits(one.out(), two.out());
  ExpectSameBits(one.share(), two.share());
  EXPECT_EQ(one.groups(), two.groups());
}

TEST_P(GdnChunkTest, SealsTheProductOfTheTokensTransitionsFromBothForms) {
  const LinearShape& shape = GetParam();
  const int T = shape.chunk_tokens;
  const GdnTokens tokens = MakeTokens(shape, T, /*seed=*/9, {0.01, 0.002});
  for (const RowForm form : {RowForm::kPrefill, RowForm::kDecode}) {
    GdnSession session(tokens);
    session.Run({{.tokens = T, .form = form}}, Open);
    for (int h = 0; h < shape.value_heads; ++h) {
      const std::byte* group =
          session.groups()[static_cast<size_t>(h / shape.heads_per_group())].data();
      const Result<PageGroupHeader> header = ReadPageGroupHeader(group, shape);
      ASSERT_TRUE(header);
      const PageView page = PageOf(group, *header, h % shape.heads_per_group());
      const support::Transition expected = ChunksOf(tokens, h)[0];
      ASSERT_NE(page.a, nullptr);
      ExpectNear({reinterpret_cast<const float*>(page.a), expected.a.size()}, expected.a,
                 kTolerance);
      ExpectNear({reinterpret_cast<const float*>(page.b), expected.b.size()}, expected.b,
                 kTolerance);
      double log_gamma = 0.0;
      for (int t = 0; t < T; ++t)
        log_gamma +=
            static_cast<double>(tokens.log_decay[static_cast<size_t>(t * shape.value_heads + h)]);
      EXPECT_NEAR(static_cast<double>(header->log_gamma[h % shape.heads_per_group()]), log_gamma,
                  1e-4);
    }
  }
}

TEST_P(GdnChunkTest, SurvivesGatesThatForgetEverythingAtOnce) {
  const GdnTokens tokens = MakeTokens(GetParam(), 300, /*seed=*/10, {88.0, 30.0, 1e-9});
  GdnSession session(tokens);
  session.Run({{.tokens = 300}}, Open);
  ExpectNear(session.out(), session.Expected(Open), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GdnChunkTest,
                         ::testing::Values(Shape(1, 1, 1, 1, 128), Shape(1, 2, 128, 128, 128),
                                           Shape(2, 4, 18, 10, 128), Shape(1, 4, 33, 17, 256)));

// Heads of 64, 128 and 256, K and V unequal, and chunks from 64 to 1,024 tokens. The released
// HLA-1.3B is the third: 256 x 256 in chunks of 256.
INSTANTIATE_TEST_SUITE_P(Published, GdnChunkTest,
                         ::testing::Values(Shape(1, 1, 64, 64, 64), Shape(1, 1, 64, 128, 512),
                                           Shape(1, 1, 256, 256, 256), Shape(1, 2, 128, 256, 128),
                                           Shape(1, 1, 256, 64, 1024)));

}  // namespace
}  // namespace mneme::kernels
