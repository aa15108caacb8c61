// Generated tokens one at a time, through the table's gdn_read, against the recurrence on a state
// matrix in double. The recurrence is the definition of the layer; nothing of the open rows is in
// it.
#include "kernels/gdn_step.h"

#include <gtest/gtest.h>

#include "tests/support/gdn_session.h"
#include "tests/support/near.h"

namespace mneme::kernels {
namespace {

using support::ExpectNear;
using support::ExpectSameBits;
using support::GatedNormOf;
using support::GdnSession;
using support::GdnTokens;
using support::History;
using support::MakeTokens;

constexpr double kTolerance = 1e-4;  // docs/numerics.md: gdn_read

float Open(int, int, int) { return 1.0f; }

std::vector<LinearShape> Shapes() {
  const auto shape = [](int g, int h, int k, int v) {
    return LinearShape{.key_heads = g,
                       .value_heads = h,
                       .key_dim = k,
                       .value_dim = v,
                       .chunk_tokens = 128,
                       .window_tokens = 16,
                       .pages_max = 4};
  };
  return {shape(1, 1, 1, 1), shape(2, 2, 128, 128), shape(2, 4, 18, 10), shape(1, 4, 33, 17)};
}

class GdnStepTest : public ::testing::TestWithParam<LinearShape> {};

TEST_P(GdnStepTest, EqualsTheRecurrenceInsideAChunk) {
  const GdnTokens tokens = MakeTokens(GetParam(), 128, /*seed=*/1);
  GdnSession session(tokens);
  session.Run({{.tokens = 128, .form = RowForm::kDecode}}, Open);
  ExpectNear(session.out(),
             GatedNormOf(RecurrenceOf(tokens), session.norm_weight(), tokens.z, 1e-2), kTolerance);
}

TEST_P(GdnStepTest, AStepRunAgainChangesNothing) {
  const GdnTokens tokens = MakeTokens(GetParam(), 150, /*seed=*/2);
  GdnSession session(tokens);
  session.Run({{.tokens = 150, .form = RowForm::kDecode}}, Open, /*twice=*/true);
}

TEST_P(GdnStepTest, WithoutHistoryTheOutputIsThatOfTheOpenChunkAlone) {
  const GdnTokens tokens = MakeTokens(GetParam(), 150, /*seed=*/3);
  GdnSession session(tokens, {.history = History::kNone});
  session.Run({{.tokens = 150, .form = RowForm::kDecode}});
  ExpectNear(session.out(), session.Expected([](int, int, int) { return 0.0f; }), kTolerance);
}

TEST_P(GdnStepTest, SurvivesGatesThatForgetEverythingAtOnce) {
  const GdnTokens tokens = MakeTokens(GetParam(), 140, /*seed=*/4, {88.0, 30.0, 1e-9});
  GdnSession session(tokens);
  session.Run({{.tokens = 140, .form = RowForm::kDecode}}, Open);
  ExpectNear(session.out(), session.Expected(Open), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GdnStepTest, ::testing::ValuesIn(Shapes()));

}  // namespace
}  // namespace mneme::kernels
