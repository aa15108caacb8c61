// The backward read with a row vector, through the table's gdn_read, against the forward recurrence
// on state matrices in double, S <- (1 - w) S + w (A S + B), oldest chunk first.
#include "kernels/page_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/fold.h"
#include "kernels/page_codec.h"
#include "tests/support/affine_history.h"
#include "tests/support/gdn_session.h"
#include "tests/support/near.h"
#include "tests/support/recurrence.h"

namespace mneme::kernels {
namespace {

using support::AffineHistory;
using support::Doubles;
using support::ExpectNear;
using support::ExpectSameBits;
using support::GateOf;
using support::GdnSession;
using support::GdnTokens;
using support::MakeTokens;
using support::Recurrence;
using support::RecurrenceState;
using support::RecurrenceTokens;
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

// Published head sizes; HLA-1.3B has 256 x 256.
INSTANTIATE_TEST_SUITE_P(Published, PageReadTest,
                         ::testing::Values(Shape(1, 1, 128, 128), Shape(1, 1, 256, 256),
                                           Shape(1, 1, 64, 256)));

// Chunks of every kind through pages: packed, then read by both forms and folded, against the token
// recurrence in double.
class PageKindTest : public ::testing::TestWithParam<Recurrence> {
 protected:
  static constexpr int K = 19, V = 11, T = 64, kChunks = 4;  // odd: rows of A lie unaligned

  PageKindTest()
      : tokens_(MakeRecurrenceTokens(GetParam(), K, V, kChunks * T + 1, /*seed=*/18)),
        history_(tokens_, T) {
    history_.Run(support::Cut::kPieces, [](int, int) { return 1.0; });
    shape_ = {.key_heads = 1,
              .value_heads = 1,
              .key_dim = K,
              .value_dim = V,
              .chunk_tokens = T,
              .window_tokens = 16,
              .pages_max = kChunks,
              .transition = RuleOf(GetParam()).kind()};
  }

  Status Pack(int chunk, Dtype dtype) {
    header_ = MakePageGroupHeader(shape_, dtype, 0, 0, 0);
    group_.resize(PageGroupBytes(1, K, V, dtype, shape_.transition));
    auto& numbers = history_.chunks()[static_cast<size_t>(chunk)];
    MNEME_TRY(
        cpu::PackPage({.a = numbers.a.data(), .b = numbers.b.data(), .a_stride = K, .b_stride = V},
                      header_, group_.data()));
    std::memcpy(group_.data(), &header_, sizeof(header_));
    return {};
  }
  PageView Page() {
    const Result<PageGroupHeader> header = ReadPageGroupHeader(group_.data(), shape_);
    EXPECT_TRUE(header);
    return PageOf(group_.data(), *header, 0);
  }

  RecurrenceTokens tokens_;
  AffineHistory<float> history_;
  LinearShape shape_;
  PageGroupHeader header_;
  std::vector<std::byte> group_;
};

TEST_P(PageKindTest, ReadsAsTheRecurrenceInBothForms) {
  const auto gate = [](int, int chunk) {
    return std::vector<double>{0.5, 0.0, 1.0, 0.75, 0.0}[static_cast<size_t>(chunk)];
  };
  // The gate of the open chunk is 0: the query as it is before the newest closed chunk.
  const Doubles expected = GatedReadOf(tokens_, T, kChunks * T, gate);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
    for (const bool together : {false, true}) {
      std::vector<float> carry(tokens_.q.end() - K, tokens_.q.end());
      std::vector<float> output(V, 0.0f), scratch(PageReadScratch(K, V));
      for (int j = kChunks - 1; j >= 0; --j) {
        const float w = static_cast<float>(gate(0, j));
        if (w == 0.0f) continue;
        ASSERT_TRUE(Pack(j, dtype));
        const int32_t row = 0;
        float square = 0.0f;
        const PageReadArgs args = {.page = Page(),
                                   .key_dim = K,
                                   .value_dim = V,
                                   .count = 1,
                                   .row = &row,
                                   .gate = &w,
                                   .carry = carry.data(),
                                   .output = output.data(),
                                   .square = &square,
                                   .scratch = scratch.data()};
        together ? cpu::ReadPageTogether(args) : cpu::ReadPage(args);
      }
      ExpectNear(output, expected, dtype == Dtype::kF32 ? kTolerance : kF16Tolerance);
    }
  }
}

TEST_P(PageKindTest, FoldsAsTheRecurrence) {
  const auto gate = [](int, int chunk) { return 1.0 / (1.0 + chunk); };
  RecurrenceState state(tokens_);
  for (int j = 0; j < kChunks; ++j) {
    const Doubles before = state.numbers();
    state.Run(j * T, (j + 1) * T);
    for (size_t i = 0; i < before.size(); ++i)
      state.numbers()[i] = (1.0 - gate(0, j)) * before[i] + gate(0, j) * state.numbers()[i];
  }
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
    std::vector<float> folded(K * V, 0.0f), scratch(FoldPageScratch(K, V));
    for (int j = 0; j < kChunks; ++j) {
      ASSERT_TRUE(Pack(j, dtype));
      cpu::FoldPage({.page = Page(),
                     .key_dim = K,
                     .value_dim = V,
                     .gate = static_cast<float>(gate(0, j)),
                     .state = folded.data(),
                     .scratch = scratch.data()});
    }
    ExpectNear(folded, state.numbers(), dtype == Dtype::kF32 ? kTolerance : kF16Tolerance);
  }
}

TEST_P(PageKindTest, AFewNumbersOfAAreNotRounded) {
  if (shape_.transition == TransitionKind::kDense) {
    ASSERT_TRUE(Pack(0, Dtype::kF16));
    EXPECT_EQ(group_.size(), sizeof(PageGroupHeader) + 2u * K * (K + V));
    return;
  }
  const std::vector<float>& a = history_.chunks()[0].a;
  ASSERT_TRUE(Pack(0, Dtype::kF16));
  EXPECT_EQ(group_.size(), sizeof(PageGroupHeader) + 2u * K * V + 4u * a.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(Page().NumberOfA(static_cast<int>(i)), a[i]);
}

TEST_P(PageKindTest, RefusesAPageOfAnotherKindAndNumbersThatAreNotFinite) {
  ASSERT_TRUE(Pack(0, Dtype::kF16));
  LinearShape other = shape_;
  other.transition = shape_.transition == TransitionKind::kScalar ? TransitionKind::kDiagonal
                                                                  : TransitionKind::kScalar;
  const Result<PageGroupHeader> header = ReadPageGroupHeader(group_.data(), other);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code(), ErrorCode::kCorruption);
  std::vector<float>& a = history_.chunks()[0].a;
  std::vector<float>& last = a.empty() ? history_.chunks()[0].b : a;
  last.back() = std::nanf("");
  const Status status = Pack(0, Dtype::kF16);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
}

std::string NameOfRecurrence(const ::testing::TestParamInfo<Recurrence>& info) {
  return std::string(NameOf(info.param));
}

INSTANTIATE_TEST_SUITE_P(Of, PageKindTest,
                         ::testing::Values(Recurrence::kLinear, Recurrence::kRetNet,
                                           Recurrence::kGla, Recurrence::kMamba2,
                                           Recurrence::kDeltaNet, Recurrence::kGdn,
                                           Recurrence::kKda),
                         NameOfRecurrence);

}  // namespace
}  // namespace mneme::kernels
