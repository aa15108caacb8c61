// The folded state against the paged read it must equal, and both against the definition in double.
#include "kernels/fold.h"

#include <gtest/gtest.h>

#include "kernels/gdn.h"
#include "tests/support/gdn_session.h"
#include "tests/support/near.h"

namespace mneme::kernels {
namespace {

using support::Doubles;
using support::ExpectNear;
using support::GateOf;
using support::GdnSession;
using support::GdnTokens;
using support::History;
using support::MakeTokens;
using support::Role;

constexpr double kTolerance = 1e-4;     // docs/numerics.md: fold
constexpr double kF16Tolerance = 2e-3;  // fold_pages, pages in f16

float Open(int, int, int) { return 1.0f; }

LinearShape Shape(int g, int h, int k, int v) {
  return {.key_heads = g,
          .value_heads = h,
          .key_dim = k,
          .value_dim = v,
          .chunk_tokens = 64,
          .window_tokens = 16,
          .pages_max = 16};
}

const std::vector<Role> kRoles = {{.tokens = 500}, {.tokens = 100, .form = RowForm::kDecode}};

class FoldTest : public ::testing::TestWithParam<LinearShape> {};

TEST_P(FoldTest, NativeFoldedEqualsNativePaged) {
  const GdnTokens tokens = MakeTokens(GetParam(), 600, /*seed=*/21);
  GdnSession folded(tokens, {.history = History::kFolded}), paged(tokens);
  folded.Run(kRoles);
  paged.Run(kRoles, Open);
  ExpectNear(folded.out(), Doubles(paged.out().begin(), paged.out().end()), kTolerance);
  ExpectNear(folded.out(), folded.Expected(Open), kTolerance);
}

// Chunk pages of a session folded with one static gate each, as a mixing matrix gives them.
class Folder {
 public:
  Folder(GdnSession& session, const LinearShape& shape) : session_(session), shape_(shape) {}

  Status Add(int chunk, float gate) {
    std::vector<const std::byte*> groups;
    for (int g = 0; g < shape_.key_heads; ++g)
      groups.push_back(session_.groups()[static_cast<size_t>(chunk * shape_.key_heads + g)].data());
    ChunkView view;
    view.groups = groups.data();
    FoldPagesArgs args;
    args.shape = shape_;
    args.chunk = &view;
    args.gate = {&gate, 1};
    float* state = session_.state().data();
    args.state = {&state, 1};
    return cpu::FoldPages(args, session_.stream());
  }

 private:
  GdnSession& session_;
  LinearShape shape_;
};

TEST_P(FoldTest, MixedFoldedEqualsTheForwardRecurrence) {
  const LinearShape& shape = GetParam();
  const GdnTokens tokens = MakeTokens(shape, 256, /*seed=*/22, {0.01, 0.6});
  const std::vector<double> gates = {0.25, 1.0, 0.0, 0.625};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
    GdnSession session(tokens, {.dtype = dtype});
    session.Run({{.tokens = 256}}, Open);
    // A chunk whose gate is 0 is not read, whatever its pages hold.
    for (int g = 0; g < shape.key_heads; ++g) {
      std::vector<std::byte>& group =
          session.groups()[static_cast<size_t>(2 * shape.key_heads + g)];
      std::fill(group.begin(), group.end(), std::byte{0xff});
    }
    Folder folder(session, shape);
    for (int j = 0; j < 4; ++j)
      ASSERT_TRUE(folder.Add(j, static_cast<float>(gates[static_cast<size_t>(j)])));
    Doubles expected;
    for (int h = 0; h < shape.value_heads; ++h) {
      const Doubles state = HistoryOf(ChunksOf(tokens, h), gates);
      expected.insert(expected.end(), state.begin(), state.end());
    }
    ExpectNear(session.state(), expected, dtype == Dtype::kF32 ? kTolerance : kF16Tolerance);
  }
}

TEST_P(FoldTest, RefusesAGroupThatIsNoGroupAndChangesNothing) {
  const GdnTokens tokens = MakeTokens(GetParam(), 64, /*seed=*/23);
  GdnSession session(tokens);
  session.Run({{.tokens = 64}}, Open);
  session.groups().back()[0] = std::byte{0};
  const std::vector<float> before = session.state();
  const Status status = Folder(session, GetParam()).Add(0, 1.0f);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(session.state(), before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FoldTest,
                         ::testing::Values(Shape(1, 1, 1, 1), Shape(1, 2, 64, 32),
                                           Shape(2, 4, 18, 10), Shape(1, 4, 33, 17)));

// Published head sizes; HLA-1.3B has 256 x 256.
INSTANTIATE_TEST_SUITE_P(Published, FoldTest,
                         ::testing::Values(Shape(1, 1, 128, 128), Shape(1, 1, 256, 256),
                                           Shape(1, 1, 256, 64)));

}  // namespace
}  // namespace mneme::kernels
