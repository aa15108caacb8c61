// Attention against its definition in double (tests/support/attention_case.h), and against itself
// in other slices, beside other sessions and with other thread counts, bit for bit.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "kernels/cpu/cpu_stream.h"
#include "tests/support/attention_case.h"
#include "tests/support/near.h"

namespace mneme::kernels::cpu {
namespace {

using support::AttentionSession;
using support::AttentionSizes;
using support::ExpectNear;
using support::ExpectSameBits;
using support::RandomFloats;

constexpr double kTolerance = 2e-5;
constexpr float kEpsilon = 1e-6f;

class AttentionTest : public ::testing::TestWithParam<AttentionSizes> {
 protected:
  AttentionTest() {
    RandomFloats random(21);
    q_norm_ = random.Many(GetParam().head_dim, 0.5f);
    k_norm_ = random.Many(GetParam().head_dim, 0.5f);
  }

  AttentionArgs ArgsOf(const StepTable& step, const AttentionShape& shape,
                       const std::vector<float>& projected, std::vector<float>& out) {
    AttentionArgs args;
    args.step = &step;
    args.shape = shape;
    args.kv_dtype = GetParam().kv_dtype;
    args.projected = projected.data();
    args.q_norm = q_norm_.data();
    args.k_norm = k_norm_.data();
    args.epsilon = kEpsilon;
    args.out = out.data();
    return args;
  }

  // One decode step of several sessions; `projected` has a row for each.
  std::vector<float> Decode(const std::vector<AttentionSession*>& sessions,
                            const std::vector<float>& projected, CpuStream& stream) {
    std::vector<SessionView> views;
    std::vector<int32_t> position;
    std::vector<int32_t> index;
    for (AttentionSession* session : sessions) {
      index.push_back(static_cast<int32_t>(views.size()));
      views.push_back(session->view());
      position.push_back(session->position());
    }
    StepTable step;
    step.rows = step.session_count = static_cast<int32_t>(sessions.size());
    step.position = position.data();
    step.session = index.data();
    step.sessions = views.data();
    const AttentionShape& shape = sessions[0]->shape;
    std::vector<float> out(static_cast<size_t>(step.rows * shape.query_heads * shape.head_dim));
    EXPECT_TRUE(Attention(ArgsOf(step, shape, projected, out), stream));
    return out;
  }

  // Tokens [first, last) of `projected`, counted from the session's position, in one prefill slice.
  // Padding rows hold NaN.
  std::vector<float> Prefill(AttentionSession& session, const std::vector<float>& projected,
                             int first, int last, CpuStream& stream) {
    const int width = session.shape.projected_width();
    std::vector<Piece> pieces;
    for (int at = first; at < last;) {
      const int place = (session.position() + at) % session.shape.chunk_tokens;
      const int tokens = std::min(kPieceTokens - place % kPieceTokens, last - at);
      pieces.push_back(
          {static_cast<int32_t>(pieces.size()) * kPieceTokens, tokens, session.position() + at});
      at += tokens;
    }
    StepTable step;
    step.form = RowForm::kPrefill;
    step.pieces = pieces.data();
    step.piece_count = static_cast<int32_t>(pieces.size());
    step.rows = step.piece_count * kPieceTokens;
    const SessionView view = session.view();
    step.sessions = &view;
    step.session_count = 1;
    std::vector<float> padded(static_cast<size_t>(step.rows * width),
                              std::numeric_limits<float>::quiet_NaN());
    int token = first;
    for (const Piece& piece : pieces) {
      std::copy_n(projected.begin() + token * width, piece.tokens * width,
                  padded.begin() + piece.row * width);
      token += piece.tokens;
    }
    const int out_width = session.shape.query_heads * session.shape.head_dim;
    std::vector<float> out(static_cast<size_t>(step.rows * out_width));
    EXPECT_TRUE(Attention(ArgsOf(step, session.shape, padded, out), stream));
    std::vector<float> real;
    for (const Piece& piece : pieces) {
      const auto from = out.begin() + piece.row * out_width;
      real.insert(real.end(), from, from + piece.tokens * out_width);
    }
    return real;
  }

  std::vector<float> ProjectedRows(int rows, uint64_t seed) {
    const AttentionSession session(GetParam(), 1);
    return RandomFloats(seed).Many(int64_t{rows} * session.shape.projected_width(), 3.0f);
  }

  // Prompt tokens that fit into the open page, at most two pieces and a bit.
  int PromptTokens() { return std::min(150, GetParam().chunk_tokens - GetParam().open); }

  std::vector<float> q_norm_;
  std::vector<float> k_norm_;
  CpuStream one_{1};
  CpuStream two_{2};
};

TEST_P(AttentionTest, DecodeFormEqualsTheDefinition) {
  AttentionSession session(GetParam(), 5);
  const std::vector<float> projected = ProjectedRows(1, 6);
  const auto expected = session.Reference(projected, q_norm_, k_norm_, kEpsilon);
  ExpectNear(Decode({&session}, projected, two_), expected, kTolerance);
}

TEST_P(AttentionTest, PrefillFormEqualsTheDefinition) {
  AttentionSession session(GetParam(), 5);
  const std::vector<float> projected = ProjectedRows(PromptTokens(), 6);
  const auto expected = session.Reference(projected, q_norm_, k_norm_, kEpsilon);
  ExpectNear(Prefill(session, projected, 0, PromptTokens(), two_), expected, kTolerance);
}

TEST_P(AttentionTest, DecodeRowKeepsItsBitsInAnyCompany) {
  AttentionSession alone(GetParam(), 5);
  const std::vector<float> row = ProjectedRows(1, 6);
  const std::vector<float> expected = Decode({&alone}, row, one_);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{4}}) {
    AttentionSession same(GetParam(), 5);
    std::vector<std::unique_ptr<AttentionSession>> others;
    std::vector<AttentionSession*> sessions;
    for (size_t i = 0; i < 5; ++i) {
      AttentionSizes sizes = GetParam();
      sizes.open = static_cast<int>(i) % sizes.chunk_tokens;
      others.push_back(std::make_unique<AttentionSession>(sizes, 50 + i));
      sessions.push_back(i == at ? &same : others.back().get());
    }
    std::vector<float> projected = ProjectedRows(5, 60);
    std::copy(row.begin(), row.end(),
              projected.begin() + static_cast<std::ptrdiff_t>(at * row.size()));
    const std::vector<float> out = Decode(sessions, projected, at == 1 ? one_ : two_);
    const auto from = out.begin() + static_cast<std::ptrdiff_t>(at * expected.size());
    ExpectSameBits({from, from + static_cast<std::ptrdiff_t>(expected.size())}, expected);
    ExpectSameBits(same.key, alone.key);
    ExpectSameBits(same.value, alone.value);
  }
}

TEST_P(AttentionTest, PrefillRowsKeepTheirBitsInAnySlices) {
  const int tokens = PromptTokens();
  const std::vector<float> projected = ProjectedRows(tokens, 6);
  AttentionSession whole(GetParam(), 5);
  const std::vector<float> expected = Prefill(whole, projected, 0, tokens, one_);

  AttentionSession parts(GetParam(), 5);
  std::vector<float> actual;
  for (int at = 0; at < tokens;) {  // a slice for each piece
    const int end = std::min(tokens, at + kPieceTokens - (GetParam().open + at) % kPieceTokens);
    const std::vector<float> out = Prefill(parts, projected, at, end, two_);
    actual.insert(actual.end(), out.begin(), out.end());
    at = end;
  }
  ExpectSameBits(actual, expected);
  ExpectSameBits(parts.key, whole.key);
  ExpectSameBits(parts.value, whole.value);
}

TEST_P(AttentionTest, RunningARowAgainChangesNothing) {
  AttentionSession session(GetParam(), 5);
  const std::vector<float> projected = ProjectedRows(1, 6);
  const std::vector<float> first = Decode({&session}, projected, one_);
  const std::vector<float> key = session.key;
  ExpectSameBits(Decode({&session}, projected, one_), first);
  ExpectSameBits(session.key, key);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    ::testing::Values(AttentionSizes{},                           // the smallest
                      AttentionSizes{8, 2, 256, 64, 256, 1, 70},  // the real head
                      AttentionSizes{6, 3, 18, 6, 64, 2, 5},      // nothing divides
                      AttentionSizes{5, 1, 33, 2, 100, 1, 40, Dtype::kF32}));

class AttentionErrorTest : public ::testing::Test {
 protected:
  AttentionErrorTest() : session_({2, 1, 4, 2, 64, 1, 3}, 1), view_(session_.view()) {
    floats_.assign(64 * 64, 0.0f);
    step_.rows = step_.session_count = 1;
    step_.position = &position_;
    step_.session = &index_;
    step_.sessions = &view_;
    args_.step = &step_;
    args_.shape = session_.shape;
    args_.projected = args_.q_norm = args_.k_norm = floats_.data();
    args_.out = floats_.data() + 2048;
  }

  std::string Refusal() {
    CpuStream stream(1);
    const Status status = Attention(args_, stream);
    if (status) return "";
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    return status.error().message();
  }

  AttentionSession session_;
  SessionView view_;
  std::vector<float> floats_;
  int32_t position_ = 67;
  int32_t index_ = 0;
  StepTable step_;
  AttentionArgs args_;
};

TEST_F(AttentionErrorTest, AcceptsWholeArgs) { EXPECT_EQ(Refusal(), ""); }

TEST_F(AttentionErrorTest, NamesTheNullArray) {
  args_.out = nullptr;
  EXPECT_EQ(Refusal(), "attention: out is null");
  args_.step = nullptr;
  EXPECT_EQ(Refusal(), "attention: step is null");
}

TEST_F(AttentionErrorTest, NamesTheSizeThatDoesNotFit) {
  args_.shape.kv_heads = 3;
  EXPECT_EQ(Refusal(), "attention: 2 query heads on 3 kv heads");
  args_.shape.kv_heads = 0;
  EXPECT_EQ(Refusal(), "attention: kv_heads is 0");
  args_.shape = session_.shape;
  args_.shape.rotary_dim = 3;
  EXPECT_EQ(Refusal(), "attention: rotary_dim is 3 of 4");
  args_.shape = session_.shape;
  args_.kv_dtype = Dtype::kI8;
  EXPECT_EQ(Refusal(), "attention: kv_dtype is I8");
}

TEST_F(AttentionErrorTest, NamesTheRowOrChunk) {
  index_ = 1;
  EXPECT_EQ(Refusal(), "attention: row 0: session 1 of 1");
  index_ = 0;
  position_ = -2;
  EXPECT_EQ(Refusal(), "attention: row 0: position is -2");
  position_ = 67;
  ChunkView gone;
  const ChunkView* chunk = &gone;
  view_.chunks = &chunk;
  EXPECT_EQ(Refusal(), "attention: kv page of chunk 0 is null");
}

TEST_F(AttentionErrorTest, RefusesAPieceThatLeavesItsCell) {
  const Piece piece{0, 62, 67};
  step_.form = RowForm::kPrefill;
  step_.rows = kPieceTokens;
  step_.pieces = &piece;
  step_.piece_count = 1;
  EXPECT_EQ(Refusal(), "attention: piece 0 of 62 tokens at 3 leaves its cell of the page");
}

}  // namespace
}  // namespace mneme::kernels::cpu
