// Affine chunks of every kind against the models' recurrences in double: to 1e-10 in double, to
// 1e-4 in float, for every way a chunk can be made and read.
#include "kernels/affine_chunk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/gdn_chunk.h"
#include "tests/support/affine_history.h"
#include "tests/support/recurrence.h"

namespace mneme::kernels {
namespace {

using support::AffineHistory;
using support::ChunkGate;
using support::Cut;
using support::Recurrence;
using support::RecurrenceState;
using support::RecurrenceTokens;

// docs/numerics.md: affine chunks
template <typename Real>
constexpr double kTolerance = sizeof(Real) == sizeof(double) ? 1e-10 : 1e-4;

// Relative to the largest magnitude expected.
template <typename Real>
void ExpectClose(const std::vector<Real>& actual, const std::vector<double>& expected,
                 double tolerance = kTolerance<Real>) {
  ASSERT_EQ(actual.size(), expected.size());
  double scale = 1e-3;
  for (const double each : expected) scale = std::max(scale, std::abs(each));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance * scale) << "at " << i;
}

template <typename Real>
std::vector<double> Doubles(const std::vector<Real>& x) {
  return {x.begin(), x.end()};
}

struct Case {
  Recurrence recurrence;
  int key_dim, value_dim, chunk_tokens, count;
};

std::string NameOfCase(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(NameOf(c.recurrence)) + "_" + std::to_string(c.key_dim) + "x" +
         std::to_string(c.value_dim) + "_Chunk" + std::to_string(c.chunk_tokens);
}

double Open(int, int) { return 1.0; }

// A gate for each query and chunk, as a router gives them; the open chunk's is 1.
ChunkGate Routed(int chunk_tokens) {
  return [=](int position, int chunk) {
    if (chunk == position / chunk_tokens) return 1.0;
    return std::vector<double>{0.0, 0.125, 1.0,
                               0.75}[static_cast<size_t>(position + 3 * chunk) % 4];
  };
}

// A static gate for each pair of chunks, the open chunk's too, as a mixing matrix gives them.
ChunkGate Mixed(int chunk_tokens) {
  return [=](int position, int chunk) {
    const int row = position / chunk_tokens;
    return chunk == row ? 0.625 : 1.0 / (1.0 + row + 0.5 * chunk);
  };
}

class AffineChunkTest : public ::testing::TestWithParam<Case> {
 protected:
  RecurrenceTokens Tokens(uint32_t seed) const {
    const Case& c = GetParam();
    return MakeRecurrenceTokens(c.recurrence, c.key_dim, c.value_dim, c.count, seed);
  }

  // The whole run against the forward form, at each border of a chunk and some places between.
  template <typename Real>
  void ExpectReads(const RecurrenceTokens& tokens, const std::vector<Real>& y,
                   const ChunkGate& gate) {
    const int chunk = GetParam().chunk_tokens, V = tokens.value_dim;
    ASSERT_EQ(y.size(), static_cast<size_t>(tokens.count * V));
    for (const int t : {0, 1, 63, 64, chunk - 1, chunk, chunk + 65, tokens.count - 1}) {
      if (t >= tokens.count) continue;
      SCOPED_TRACE(t);
      const auto row = y.begin() + t * V;
      ExpectClose(std::vector<Real>(row, row + V), GatedReadOf(tokens, chunk, t, gate));
    }
  }
};

template <typename Real>
std::vector<Real> StepPlainState(const RecurrenceTokens& tokens) {
  AffineHistory<Real> history(tokens, tokens.count);
  std::vector<Real> state(static_cast<size_t>(history.shape().b_numbers()), Real{0});
  for (int t = 0; t < tokens.count; ++t) {
    EXPECT_TRUE(cpu::StepToken<Real>(
        {history.shape(), history.TokensFrom(t), {nullptr, state.data()}, &history.workspace()}));
  }
  return state;
}

TEST_P(AffineChunkTest, StepsOfAPlainStateEqualTheRecurrence) {
  const RecurrenceTokens tokens = Tokens(1);
  RecurrenceState state(tokens);
  state.Run(0, tokens.count);
  ExpectClose(StepPlainState<double>(tokens), state.numbers());
  ExpectClose(StepPlainState<float>(tokens), state.numbers());
}

TEST_P(AffineChunkTest, WithAllGatesOneEqualsTheRecurrence) {
  const RecurrenceTokens tokens = Tokens(2);
  for (const Cut cut : {Cut::kPieces, Cut::kTokens}) {
    AffineHistory<double> exact(tokens, GetParam().chunk_tokens);
    AffineHistory<float> rounded(tokens, GetParam().chunk_tokens);
    const std::vector<double> y = exact.Run(cut, Open);
    ExpectReads(tokens, y, Open);
    ExpectClose(rounded.Run(cut, Open), y);
  }
}

TEST_P(AffineChunkTest, PiecesMakeTheSameChunksAsTokens) {
  const RecurrenceTokens tokens = Tokens(3);
  AffineHistory<double> pieces(tokens, GetParam().chunk_tokens);
  AffineHistory<double> steps(tokens, GetParam().chunk_tokens);
  AffineHistory<float> rounded(tokens, GetParam().chunk_tokens);
  pieces.Run(Cut::kPieces, Open);
  steps.Run(Cut::kTokens, Open);
  rounded.Run(Cut::kPieces, Open);
  for (size_t j = 0; j < steps.chunks().size(); ++j) {
    ExpectClose(pieces.chunks()[j].a, steps.chunks()[j].a);
    ExpectClose(pieces.chunks()[j].b, steps.chunks()[j].b);
    ExpectClose(rounded.chunks()[j].a, steps.chunks()[j].a);
    ExpectClose(rounded.chunks()[j].b, steps.chunks()[j].b);
  }
}

TEST_P(AffineChunkTest, RoutedReadsEqualTheForwardForm) {
  const RecurrenceTokens tokens = Tokens(4);
  const ChunkGate gate = Routed(GetParam().chunk_tokens);
  for (const Cut cut : {Cut::kPieces, Cut::kTokens}) {
    AffineHistory<double> exact(tokens, GetParam().chunk_tokens);
    AffineHistory<float> rounded(tokens, GetParam().chunk_tokens);
    const std::vector<double> y = exact.Run(cut, gate);
    ExpectReads(tokens, y, gate);
    ExpectClose(rounded.Run(cut, gate), y);
  }
}

TEST_P(AffineChunkTest, BlockMixedReadsEqualTheForwardForm) {
  const RecurrenceTokens tokens = Tokens(5);
  const ChunkGate gate = Mixed(GetParam().chunk_tokens);
  for (const Cut cut : {Cut::kPieces, Cut::kTokens}) {
    AffineHistory<double> exact(tokens, GetParam().chunk_tokens);
    AffineHistory<float> rounded(tokens, GetParam().chunk_tokens);
    const std::vector<double> y = exact.Run(cut, gate);
    ExpectReads(tokens, y, gate);
    ExpectClose(rounded.Run(cut, gate), y);
  }
}

TEST_P(AffineChunkTest, AClosedGateNeverTouchesItsChunk) {
  const RecurrenceTokens tokens = Tokens(6);
  const auto gate = [&](int, int chunk) { return chunk == 0 ? 0.0 : 1.0; };
  AffineHistory<double> history(tokens, GetParam().chunk_tokens);
  const std::vector<double> y = history.Run(
      Cut::kPieces,
      [&](int position, int chunk) {
        return chunk == position / GetParam().chunk_tokens ? 1.0 : gate(position, chunk);
      },
      [](int chunk, auto& closed) {
        if (chunk != 0) return;
        std::fill(closed.a.begin(), closed.a.end(), std::numeric_limits<double>::quiet_NaN());
        std::fill(closed.b.begin(), closed.b.end(), std::numeric_limits<double>::quiet_NaN());
      });
  const int last = tokens.count - 1, V = tokens.value_dim;
  const auto row = y.end() - V;
  ExpectClose(std::vector<double>(row, y.end()),
              GatedReadOf(tokens, GetParam().chunk_tokens, last, gate));
  // A fold with gate 0 is the state it was.
  std::vector<double> state(static_cast<size_t>(history.shape().b_numbers()), 0.5);
  const std::vector<double> before = state;
  ASSERT_TRUE(cpu::FoldChunk<double>(
      {history.shape(), history.chunks()[0].view(), 0.0, state.data(), &history.workspace()}));
  EXPECT_EQ(state, before);
}

// The prefix that a mixing matrix's reader keeps: one state instead of all chunks.
TEST_P(AffineChunkTest, FoldedChunksReadAsTheChunksDo) {
  const RecurrenceTokens tokens = Tokens(7);
  const int chunk = GetParam().chunk_tokens, last = tokens.count - 1;
  const ChunkGate gate = Mixed(chunk);
  const auto run = [&]<typename Real>(Real) {
    AffineHistory<Real> history(tokens, chunk);
    history.Run(Cut::kPieces, gate);
    const AffineShape& shape = history.shape();
    std::vector<Real> state(static_cast<size_t>(shape.b_numbers()), Real{0});
    for (size_t j = 0; j < history.chunks().size(); ++j) {
      EXPECT_TRUE(cpu::FoldChunk<Real>({shape, history.chunks()[j].view(),
                                        static_cast<Real>(gate(last, static_cast<int>(j))),
                                        state.data(), &history.workspace()}));
    }
    // q S as a read of the identity chunk with B = S.
    const AffineShape identity{kLinearRule, shape.key_dim, shape.value_dim};
    std::vector<Real> carry(tokens.q.end() - shape.key_dim, tokens.q.end());
    std::vector<Real> y(static_cast<size_t>(shape.value_dim), Real{0});
    EXPECT_TRUE(cpu::ReadChunk<Real>({identity,
                                      {nullptr, state.data()},
                                      1,
                                      nullptr,
                                      carry.data(),
                                      y.data(),
                                      &history.workspace()}));
    ExpectClose(y, GatedReadOf(tokens, chunk, last, gate));
  };
  run(double{});
  run(float{});
}

// Pieces of 64 merged two by two, and one after the other onto one of them, make the same chunk.
TEST_P(AffineChunkTest, SixteenMergedPiecesEqualTheirTokens) {
  const Case& c = GetParam();
  const int pieces = 16;
  const RecurrenceTokens tokens =
      MakeRecurrenceTokens(c.recurrence, c.key_dim, c.value_dim, pieces * kPieceTokens, /*seed=*/8);
  AffineHistory<double> steps(tokens, tokens.count);
  steps.Run(Cut::kTokens, Open);
  const auto run = [&]<typename Real>(Real) {
    AffineHistory<Real> history(tokens, kPieceTokens);
    history.Run(Cut::kPieces, Open);
    auto level = history.chunks();
    auto row = history.NewChunk();
    for (auto& each : level) {
      EXPECT_TRUE(cpu::MergeChunks<Real>(
          {history.shape(), row.view(), each.view(), row.view(), &history.workspace()}));
    }
    while (level.size() > 1) {
      for (size_t j = 0; j < level.size(); j += 2) {
        EXPECT_TRUE(cpu::MergeChunks<Real>({history.shape(), level[j].view(), level[j + 1].view(),
                                            level[j + 1].view(), &history.workspace()}));
        std::swap(level[j / 2], level[j + 1]);
      }
      level.resize(level.size() / 2);
    }
    for (auto* merged : {&row, &level[0]}) {
      ExpectClose(merged->a, steps.chunks()[0].a);
      ExpectClose(merged->b, steps.chunks()[0].b);
    }
  };
  run(double{});
  run(float{});
}

TEST_P(AffineChunkTest, StridesReadTheSameTokens) {
  const Case& c = GetParam();
  const int n = 40, K = c.key_dim, V = c.value_dim;
  const RecurrenceTokens packed = MakeRecurrenceTokens(c.recurrence, K, V, n, /*seed=*/9);
  AffineHistory<float> history(packed, kPieceTokens);
  const std::vector<float> expected = history.Run(Cut::kPieces, Open);
  const auto spread = [&](const std::vector<float>& x, int stride) {
    std::vector<float> wide(static_cast<size_t>(n * stride), std::nanf(""));
    const int width = static_cast<int>(x.size()) / n;
    for (int t = 0; t < n; ++t)
      std::copy_n(x.begin() + t * width, width, wide.begin() + t * stride);
    return wide;
  };
  const auto q = spread(packed.q, K + 3), k = spread(packed.k, K + 3), v = spread(packed.v, V + 2);
  const auto p = spread(packed.p, K + 3), beta = spread(packed.beta, 4);
  const auto g = spread(packed.g, K + 5);
  TokenRows<float> rows{q.data(),    k.data(), v.data(), packed.p.empty() ? nullptr : p.data(),
                        beta.data(), g.data(), K + 3,    V + 2,
                        4,           K + 5};
  if (packed.beta.empty()) rows.write_strength = nullptr;
  auto chunk = history.NewChunk();
  std::vector<float> carry(static_cast<size_t>(n * K)), output(static_cast<size_t>(n * V));
  ASSERT_TRUE(cpu::AppendPiece<float>(
      {history.shape(), n, rows, chunk.view(), carry.data(), output.data(), &history.workspace()}));
  EXPECT_EQ(output, expected);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Recurrence each : {Recurrence::kLinear, Recurrence::kRetNet, Recurrence::kGla,
                                Recurrence::kMamba2, Recurrence::kDeltaNet, Recurrence::kGdn,
                                Recurrence::kKda, Recurrence::kComba, Recurrence::kGdn2}) {
    cases.push_back({each, 1, 1, 64, 70});
    cases.push_back({each, 33, 17, 100, 333});  // nothing divides
    cases.push_back({each, 64, 128, 64, 200});
    cases.push_back({each, 128, 64, 256, 600});
    cases.push_back({each, 256, 256, 128, 150});
    cases.push_back({each, 20, 40, 512, 700});
    cases.push_back({each, 18, 10, 1024, 1100});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Of, AffineChunkTest, ::testing::ValuesIn(Cases()), NameOfCase);

// Linear attention with a mixing matrix against the block sums of the MHLA paper:
// o = q (sum_{j<i} m_ij S_j + m_ii sum of the open block up to the token).
TEST(AffineChunkMhlaTest, LinearChunksWithAMixingMatrixAreItsFormula) {
  const int block = kPieceTokens, K = 24, V = 40;
  const RecurrenceTokens tokens =
      MakeRecurrenceTokens(Recurrence::kLinear, K, V, 5 * block + 7, /*seed=*/10);
  const ChunkGate mix = Mixed(block);
  AffineHistory<double> history(tokens, block);
  const std::vector<double> y = history.Run(Cut::kPieces, mix);
  std::vector<double> expected;
  for (int t = 0; t < tokens.count; ++t) {
    for (int d = 0; d < V; ++d) {
      double sum = 0.0;
      for (int u = 0; u <= t; ++u) {
        double score = 0.0;
        for (int i = 0; i < K; ++i)
          score += tokens.at(tokens.q, t, K, i) * tokens.at(tokens.k, u, K, i);
        sum += mix(t, u / block) * score * tokens.at(tokens.v, u, V, d);
      }
      expected.push_back(sum);
    }
  }
  ExpectClose(y, expected);
}

// Gates that forget everything at once, by ordinary numbers, beyond f32, and by infinity.
TEST(AffineChunkDecayTest, KdaAndGlaForgetEverythingWithoutOverflow) {
  for (const Recurrence recurrence : {Recurrence::kGla, Recurrence::kKda, Recurrence::kGdn}) {
    for (const float decay : {-30.0f, -1e4f, -std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(decay);
      RecurrenceTokens tokens = MakeRecurrenceTokens(recurrence, 12, 9, 200, /*seed=*/11);
      for (size_t i = 0; i < tokens.g.size(); ++i) {
        if (i % 3 != 1) tokens.g[i] = i % 3 == 0 ? decay : -1e-9f;
      }
      AffineHistory<double> exact(tokens, 128);
      AffineHistory<float> rounded(tokens, 128);
      const std::vector<double> y = exact.Run(Cut::kPieces, Open);
      for (const int t : {1, 63, 64, 130, 199}) {
        ExpectClose(std::vector<double>(y.begin() + t * 9, y.begin() + (t + 1) * 9),
                    GatedReadOf(tokens, 128, t, Open));
      }
      ExpectClose(rounded.Run(Cut::kPieces, Open), y);
      ExpectClose(rounded.Run(Cut::kTokens, Open), y);
    }
  }
}

// The path that serves Gated DeltaNet makes the same chunk and the same rows.
TEST(AffineChunkGdnTest, TheOpenRowsOfTheServerAgree) {
  const int K = 48, V = 80, T = 192;
  const RecurrenceTokens tokens = MakeRecurrenceTokens(Recurrence::kGdn, K, V, T, /*seed=*/12);
  AffineHistory<float> history(tokens, T);
  auto chunk = history.NewChunk();
  std::vector<float> open_k(static_cast<size_t>(T * K)), open_u(static_cast<size_t>(T * (K + V)));
  std::vector<float> open_c(static_cast<size_t>(T)), scratch(GdnPieceScratch(T, K, V));
  const auto floats = [](int n) { return std::vector<float>(static_cast<size_t>(n)); };
  for (int t = 0; t < T; t += kPieceTokens) {
    std::vector<float> carry = floats(kPieceTokens * K), output = floats(kPieceTokens * V);
    std::vector<float> served_carry = carry, served_output = output;
    ASSERT_TRUE(
        cpu::AppendPiece<float>({history.shape(), kPieceTokens, history.TokensFrom(t), chunk.view(),
                                 carry.data(), output.data(), &history.workspace()}));
    cpu::GdnPiece({.key_dim = K,
                   .value_dim = V,
                   .heads = 1,
                   .chunk_tokens = T,
                   .at = t,
                   .tokens = kPieceTokens,
                   .transition = true,
                   .key_stride = K,
                   .value_stride = V,
                   .head_stride = 1,
                   .q = &tokens.q[static_cast<size_t>(t * K)],
                   .k = &tokens.k[static_cast<size_t>(t * K)],
                   .v = &tokens.v[static_cast<size_t>(t * V)],
                   .write_strength = &tokens.beta[static_cast<size_t>(t)],
                   .log_decay = &tokens.g[static_cast<size_t>(t)],
                   .open_k = open_k.data(),
                   .open_u = open_u.data(),
                   .open_c = open_c.data(),
                   .carry = served_carry.data(),
                   .output = served_output.data(),
                   .scratch = scratch.data()});
    ExpectClose(served_carry, Doubles(carry));
    ExpectClose(served_output, Doubles(output));
  }
  std::vector<float> sealed = floats(K * (K + V)), decayed = floats(T * K);
  cpu::ChunkTransition({.key_dim = K,
                        .value_dim = V,
                        .tokens = T,
                        .k = open_k.data(),
                        .u = open_u.data(),
                        .c = open_c.data(),
                        .out = sealed.data(),
                        .scratch = decayed.data()});
  std::vector<float> a, b;
  for (auto row = sealed.begin(); row != sealed.end(); row += K + V) {
    a.insert(a.end(), row, row + K);
    b.insert(b.end(), row + K, row + K + V);
  }
  ExpectClose(a, Doubles(chunk.a));
  ExpectClose(b, Doubles(chunk.b));
}

class AffineChunkRefusalTest : public ::testing::Test {
 protected:
  static std::string MessageOf(const Status& status) {
    EXPECT_FALSE(status);
    if (status) return "";
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    return status.error().message();
  }

  AffineShape shape_{kGlaRule, 4, 3};
  AffineWorkspace<float> workspace_{4, 3};
  std::vector<float> a_ = std::vector<float>(4), b_ = std::vector<float>(12);
  std::vector<float> x_ = std::vector<float>(4 * kPieceTokens);
  TokenRows<float> tokens_{x_.data(), x_.data(), x_.data(), nullptr, nullptr, x_.data()};
  AffineChunk<float> chunk_{a_.data(), b_.data()};
};

TEST_F(AffineChunkRefusalTest, NamesWhatIsWrong) {
  AppendPieceArgs<float> append{shape_, 1, tokens_, chunk_, x_.data(), x_.data(), &workspace_};
  append.count = kPieceTokens + 1;
  EXPECT_EQ(MessageOf(cpu::AppendPiece(append)), "append piece: 65 tokens, at most 64");
  append.count = 0;
  EXPECT_EQ(MessageOf(cpu::AppendPiece(append)), "append piece: count is 0");
  append.count = 1;
  append.tokens.log_decay = nullptr;
  EXPECT_EQ(MessageOf(cpu::AppendPiece(append)), "append piece: log_decay is null");
  append.chunk.a = nullptr;
  append.tokens = tokens_;
  EXPECT_EQ(MessageOf(cpu::AppendPiece(append)), "append piece: a is null");
  append.shape.rule = kLinearRule;
  EXPECT_TRUE(cpu::AppendPiece(append)) << "an identity chunk has no a";

  StepTokenArgs<float> step{shape_, tokens_, chunk_, nullptr};
  EXPECT_EQ(MessageOf(cpu::StepToken(step)), "step token: workspace is null");
  step.workspace = &workspace_;
  step.shape.rule.decay = TransitionKind::kDense;
  EXPECT_EQ(MessageOf(cpu::StepToken(step)), "step token: the decay of a token is dense");
  step.shape = {kGlaRule, 8, 3};
  EXPECT_EQ(MessageOf(cpu::StepToken(step)),
            "step token: a head of 8 x 3, the workspace is for 4 x 3");
  step.shape = {kGlaRule, 4, 600};
  EXPECT_EQ(MessageOf(cpu::StepToken(step)), "step token: a head of 4 x 600, at most 512");

  const float gates[] = {0.5f, 1.5f};
  ReadChunkArgs<float> read{shape_, chunk_, 2, gates, x_.data(), x_.data(), &workspace_};
  EXPECT_EQ(MessageOf(cpu::ReadChunk(read)), "read chunk: a gate is 1.5");
  FoldChunkArgs<float> fold{shape_, chunk_, std::nanf(""), x_.data(), &workspace_};
  EXPECT_EQ(MessageOf(cpu::FoldChunk(fold)), "fold chunk: a gate is nan");
  MergeChunksArgs<float> merge{shape_, chunk_, chunk_, {a_.data(), nullptr}, &workspace_};
  EXPECT_EQ(MessageOf(cpu::MergeChunks(merge)), "merge chunks: b is null");
}

}  // namespace
}  // namespace mneme::kernels
