// The backward read with a row vector, through the table's gdn_read, against the forward recurrence
// on state matrices in double, S <- (1 - w) S + w (A S + B), oldest chunk first.
#include "kernels/page_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/page_codec.h"
#include "tests/support/gdn_session.h"
#include "tests/support/near.h"

namespace mneme::kernels {
namespace {

using support::Doubles;
using support::ExpectNear;
using support::ExpectSameBits;
using support::GateOf;
using support::GdnSession;
using support::GdnTokens;
using support::MakeTokens;
using support::Role;

constexpr double kTolerance = 1e-4;     // docs/numerics.md: gdn_read, pages in f32
constexpr double kF16Tolerance = 2e-3;  // the same, pages in f16

LinearShape Shape(int g, int h, int k, int v) {
  return {.key_heads = g,
          .value_heads = h,
          .key_dim = k,
          .value_dim = v,
          .chunk_tokens = 64,
          .window_tokens = 16,
          .pages_max = 8};
}

// Gates that differ by token, head and chunk; a third of them closed.
float Mixed(int position, int key_head, int chunk) {
  const uint32_t x = static_cast<uint32_t>(position * 31 + key_head * 17 + chunk * 7) * 2654435761u;
  return (x >> 28) % 3 == 0 ? 0.0f : static_cast<float>(x >> 16) / 65536.0f;
}

const std::vector<Role> kRoles = {
    {.tokens = 200}, {.tokens = 60, .form = RowForm::kDecode}, {.tokens = 120}};

class PageReadTest : public ::testing::TestWithParam<LinearShape> {};

TEST_P(PageReadTest, EqualsTheForwardMatrixRecurrence) {
  const GdnTokens tokens = MakeTokens(GetParam(), 380, /*seed=*/11);
  GdnSession session(tokens);
  session.Run(kRoles, Mixed);
  ExpectNear(session.out(), session.Expected(Mixed), kTolerance);
}

TEST_P(PageReadTest, EqualsItInF16WithinTheRoundingOfThePages) {
  const GdnTokens tokens = MakeTokens(GetParam(), 380, /*seed=*/12);
  GdnSession session(tokens, {.dtype = Dtype::kF16});
  session.Run(kRoles, Mixed);
  ExpectNear(session.out(), session.Expected(Mixed), kF16Tolerance);
}

TEST_P(PageReadTest, NeverTouchesAPageWhoseGateIsZero) {
  const GdnTokens tokens = MakeTokens(GetParam(), 320, /*seed=*/13);
  const GateOf without = [](int, int, int chunk) { return chunk == 1 ? 0.0f : 0.75f; };
  GdnSession session(tokens);
  session.Run({{.tokens = 128}}, without);
  for (std::vector<std::byte>& group : session.groups()) {
    if (&group - session.groups().data() >= GetParam().key_heads)
      std::fill(group.begin(), group.end(), std::byte{0xff});  // NaN, and no valid header
  }
  session.Run({{.tokens = 130}, {.tokens = 62, .form = RowForm::kDecode}}, without);
  ExpectNear(session.out(), session.Expected(without), kTolerance);
}

TEST_P(PageReadTest, SaysWhatEachEntryGaveToTheOutput) {
  const LinearShape& shape = GetParam();
  const GdnTokens tokens = MakeTokens(shape, 256, /*seed=*/14);
  const GateOf gate = [](int, int, int chunk) { return chunk == 1 ? 0.0f : 0.5f; };
  GdnSession session(tokens);
  session.Run({{.tokens = 200}, {.tokens = 56, .form = RowForm::kDecode}}, gate);
  // The newest entry's part is q A_open w B: the output with it less the output without it would
  // change r as well, so it is taken from the definition with all older chunks closed.
  const GateOf newest = [](int, int, int chunk) { return chunk == 2 ? 0.5f : 0.0f; };
  const GateOf none = [](int, int, int) { return 0.0f; };
  const Doubles all = ReadsOf(tokens, gate), part = ReadsOf(tokens, newest),
                open = ReadsOf(tokens, none);
  const int width = shape.heads_per_group() * shape.value_dim;
  for (int t = 192; t < 256; ++t) {
    for (int g = 0; g < shape.key_heads; ++g) {
      double square = 0.0, given = 0.0;
      for (int d = 0; d < width; ++d) {
        const size_t at = static_cast<size_t>((t * shape.key_heads + g) * width + d);
        square += all[at] * all[at];
        given += (part[at] - open[at]) * (part[at] - open[at]);
      }
      const size_t entry = static_cast<size_t>((t * shape.key_heads + g) * shape.pages_max);
      const double expected = std::sqrt(given / square);
      EXPECT_NEAR(static_cast<double>(session.share()[entry]), expected, 1e-4 + 1e-3 * expected);
      EXPECT_GT(session.share()[entry + 1], 0.0f);
      EXPECT_EQ(session.share()[entry + 2], 0.0f);  // only two chunks are listed
    }
  }
}

TEST_P(PageReadTest, PassesOverAGroupThatIsNotInMemory) {
  const GdnTokens tokens = MakeTokens(GetParam(), 200, /*seed=*/15);
  GdnSession whole(tokens), missing(tokens);
  missing.Forget(1);
  const GateOf gate = [](int, int, int) { return 1.0f; };
  whole.Run({{.tokens = 200}}, gate);
  missing.Run({{.tokens = 200}}, gate);
  const std::ptrdiff_t before = 128 * GetParam().value_width();
  ExpectSameBits({missing.out().data(), static_cast<size_t>(before)},
                 {whole.out().data(), static_cast<size_t>(before)});
  EXPECT_FALSE(std::equal(missing.out().begin() + before, missing.out().end(),
                          whole.out().begin() + before));
}

TEST_P(PageReadTest, ReadsAForgottenTransitionAsZero) {
  const LinearShape& shape = GetParam();
  // 64 tokens at a mean of -0.5 lie below log gamma -16.
  const GdnTokens tokens = MakeTokens(shape, 300, /*seed=*/16, {0.5});
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
    GdnSession session(tokens, {.dtype = dtype});
    session.Run({{.tokens = 256}}, Mixed);
    for (std::vector<std::byte>& group : session.groups()) {
      const Result<PageGroupHeader> header = ReadPageGroupHeader(group.data(), shape);
      ASSERT_TRUE(header);
      for (int head = 0; head < shape.heads_per_group(); ++head) {
        ASSERT_LT(header->log_gamma[head], kLogGammaDrop);
        ASSERT_EQ(header->a_stored[head], 0);
        ASSERT_EQ(PageOf(group.data(), *header, head).a, nullptr);
        // Whatever lies there is not read.
        std::byte* a = group.data() + PageOffset(*header, head) +
                       static_cast<size_t>(shape.key_dim * shape.value_dim) * BytesOf(dtype);
        std::fill_n(a, static_cast<size_t>(shape.key_dim * shape.key_dim) * BytesOf(dtype),
                    std::byte{0xff});
      }
    }
    session.Run({{.tokens = 40}, {.tokens = 4, .form = RowForm::kDecode}}, Mixed);
    ExpectNear(session.out(), session.Expected(Mixed),
               dtype == Dtype::kF32 ? kTolerance : kF16Tolerance);
  }
}

TEST_P(PageReadTest, RefusesAGroupOfAnotherShape) {
  const GdnTokens tokens = MakeTokens(GetParam(), 65, /*seed=*/17);
  GdnSession session(tokens);
  session.Run({{.tokens = 64}});
  LinearShape other = GetParam();
  other.key_dim += 1;
  const Result<PageGroupHeader> header = ReadPageGroupHeader(session.groups()[0].data(), other);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code(), ErrorCode::kCorruption);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PageReadTest,
                         ::testing::Values(Shape(1, 1, 1, 1), Shape(1, 2, 64, 64),
                                           Shape(2, 4, 18, 10), Shape(2, 8, 33, 17)));

}  // namespace
}  // namespace mneme::kernels
