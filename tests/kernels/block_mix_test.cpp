// Causal block mixing against its formula as a sum over pairs of tokens in double, which knows
// neither block sums nor prefixes: to 1e-10 in double, to 1e-4 in float, at every position, for
// tokens read in pieces and one by one, inside the matrix and beyond it. Then the whole op, with
// feature map, rotation, scale, norm and gate written out.
#include "kernels/block_mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>

#include "kernels/cpu/cpu_stream.h"
#include "tests/support/dense_reference.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::RandomFloats;

constexpr int kBlock = kMixBlockTokens;

// A stored matrix, some of it outside the range, and above the diagonal what must not count.
std::vector<float> StoredMatrixOf(int blocks, uint64_t seed) {
  std::vector<float> stored = RandomFloats(seed).Many(int64_t{blocks} * blocks, 1.25f);
  for (size_t i = 0; i < stored.size(); i += 2) stored[i] = std::abs(stored[i]);
  return stored;
}

// The weight by the rule's words.
double WeightOf(const std::vector<float>& stored, int blocks, int query, int key) {
  if (key > query) return 0;
  int row = query, column = key;
  if (query >= blocks) {
    row = blocks - 1;
    column = row - (query - key);
    if (column < 0) return 0;
  }
  const double weight = static_cast<double>(stored[static_cast<size_t>(row * blocks + column)]);
  return std::min(1.0, std::max(static_cast<double>(1e-5f), weight));
}

struct Case {
  std::string name;
  int key_dim, value_dim, tokens, blocks;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Tokens {
  std::vector<float> q, k, v, stored;
};

Tokens TokensOf(const Case& c, uint64_t seed) {
  RandomFloats random(seed);
  return {random.Many(int64_t{c.tokens} * c.key_dim), random.Many(int64_t{c.tokens} * c.key_dim),
          random.Many(int64_t{c.tokens} * c.value_dim), StoredMatrixOf(c.blocks, seed + 100)};
}

// Row t of the formula; `weight` is that of a pair of blocks.
template <typename Weight>
std::vector<double> RowOf(const Case& c, const Tokens& tokens, int t, Weight weight) {
  std::vector<double> out(static_cast<size_t>(c.value_dim));
  for (int u = 0; u <= t; ++u) {
    double score = 0;
    for (int i = 0; i < c.key_dim; ++i)
      score += static_cast<double>(tokens.q[static_cast<size_t>(t * c.key_dim + i)]) *
               static_cast<double>(tokens.k[static_cast<size_t>(u * c.key_dim + i)]);
    for (int d = 0; d < c.value_dim; ++d)
      out[static_cast<size_t>(d)] +=
          weight(t / kBlock, u / kBlock) * score *
          static_cast<double>(tokens.v[static_cast<size_t>(u * c.value_dim + d)]);
  }
  return out;
}

template <typename Real>
std::vector<Real> Cast(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

// All outputs [T, V], tokens taken `piece` at a time, cut at the ends of blocks.
template <typename Real>
std::vector<Real> OutputsOf(const Case& c, const Tokens& tokens, int piece) {
  const auto q = Cast<Real>(tokens.q), k = Cast<Real>(tokens.k), v = Cast<Real>(tokens.v);
  const auto mixing = CausalMixing::Make(tokens.stored, c.blocks);
  EXPECT_TRUE(mixing);
  const int64_t numbers = int64_t{c.key_dim} * c.value_dim;
  std::vector<std::vector<Real>> sums;
  std::vector<Real> prefix, scratch(static_cast<size_t>(kBlock * kBlock));
  std::vector<Real> out(v.size(), std::numeric_limits<Real>::quiet_NaN());
  for (int t = 0; t < c.tokens;) {
    const int64_t block = t / kBlock;
    if (t % kBlock == 0) {
      sums.emplace_back(static_cast<size_t>(numbers));
      std::vector<const Real*> closed;
      std::vector<Real> weights;
      for (int64_t j = mixing->FirstRead(block); j < block; ++j) {
        closed.push_back(sums[static_cast<size_t>(j)].data());
        weights.push_back(static_cast<Real>(mixing->Weight(block, j)));
      }
      prefix.assign(static_cast<size_t>(numbers), std::numeric_limits<Real>::quiet_NaN());
      cpu::MixSums<Real>(closed, weights, 0, numbers, prefix.data());
    }
    const int n = std::min({piece, kBlock - t % kBlock, c.tokens - t});
    MixPieceArgs<Real> args;
    args.count = n;
    args.key_dim = c.key_dim;
    args.value_dim = c.value_dim;
    args.q = q.data() + int64_t{t} * c.key_dim;
    args.k = k.data() + int64_t{t} * c.key_dim;
    args.v = v.data() + int64_t{t} * c.value_dim;
    args.key_stride = c.key_dim;
    args.value_stride = c.value_dim;
    args.prefix = block == 0 ? nullptr : prefix.data();
    args.own_weight = static_cast<Real>(mixing->Weight(block, block));
    args.open = sums.back().data();
    args.out = out.data() + int64_t{t} * c.value_dim;
    args.out_stride = c.value_dim;
    args.scratch = scratch.data();
    cpu::MixPiece(args);
    t += n;
  }
  return out;
}

template <typename Real>
void ExpectRow(const std::vector<Real>& out, int t, const std::vector<double>& expected,
               double tolerance) {
  double scale = 1;
  for (const double each : expected) scale = std::max(scale, std::abs(each));
  for (size_t d = 0; d < expected.size(); ++d)
    ASSERT_NEAR(static_cast<double>(out[static_cast<size_t>(t) * expected.size() + d]), expected[d],
                tolerance * scale)
        << "position " << t << ", number " << d;
}

class BlockMixTest : public ::testing::TestWithParam<Case> {};

TEST_P(BlockMixTest, EqualsTheFormulaAtEveryPosition) {
  const Case& c = GetParam();
  const Tokens tokens = TokensOf(c, 1);
  const auto weight = [&](int i, int j) { return WeightOf(tokens.stored, c.blocks, i, j); };
  for (const int piece : {kBlock, 1, 23}) {
    SCOPED_TRACE(piece);
    const auto exact = OutputsOf<double>(c, tokens, piece);
    const auto rounded = OutputsOf<float>(c, tokens, piece);
    for (int t = 0; t < c.tokens; ++t) {
      const std::vector<double> expected = RowOf(c, tokens, t, weight);
      ASSERT_NO_FATAL_FAILURE(ExpectRow(exact, t, expected, 1e-10));
      ASSERT_NO_FATAL_FAILURE(ExpectRow(rounded, t, expected, 1e-4));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, BlockMixTest,
                         ::testing::Values(Case{"Smallest", 1, 1, 1, 1},
                                           Case{"OddHead", 17, 33, 200, 32},
                                           Case{"ReleasedHead", 128, 256, 130, 32},
                                           Case{"WholeMatrix", 6, 5, 4 * kBlock, 4},
                                           Case{"BeyondTheMatrix", 7, 9, 9 * kBlock + 13, 4},
                                           Case{"OneBlockOfMemory", 3, 2, 3 * kBlock + 1, 1}),
                         [](const auto& test) { return test.param.name; });

// With one block of weight 1, and with every weight 1, there are no blocks to be seen.
TEST(BlockMixIdentityTest, WithWeightsOneItIsPlainLinearAttention) {
  for (const int tokens : {kBlock, 5 * kBlock + 3}) {
    const Case c = {"", 9, 7, tokens, 8};
    Tokens all = TokensOf(c, 2);
    std::fill(all.stored.begin(), all.stored.end(), 1.0f);
    const auto out = OutputsOf<double>(c, all, 10);
    for (int t = 0; t < tokens; ++t)
      ASSERT_NO_FATAL_FAILURE(
          ExpectRow(out, t, RowOf(c, all, t, [](int, int) { return 1.0; }), 1e-10));
  }
}

TEST(CausalMixingTest, HoldsWeightsInTheirRangeAndUnderTheDiagonal) {
  const auto mixing = CausalMixing::Make(
      std::vector<float>{0.5f, 7.0f, 7.0f, -3.0f, 2.0f, 7.0f, 0.25f, 0.0f, 1.0f}, 3);
  ASSERT_TRUE(mixing);
  EXPECT_EQ(mixing->Weight(0, 0), 0.5f);
  EXPECT_EQ(mixing->Weight(1, 0), 1e-5f);
  EXPECT_EQ(mixing->Weight(1, 1), 1.0f);
  EXPECT_EQ(mixing->Weight(2, 0), 0.25f);
  EXPECT_EQ(mixing->Weight(2, 1), 1e-5f);
  EXPECT_EQ(mixing->FirstRead(2), 0);
}

TEST(CausalMixingTest, BeyondTheMatrixTheLastRowServesByDistance) {
  const auto mixing = CausalMixing::Make(std::vector<float>{1.0f, 0.0f, 0.25f, 0.75f}, 2);
  ASSERT_TRUE(mixing);
  for (const int64_t query : {int64_t{2}, int64_t{3}, int64_t{1'000'000'000'000}}) {
    EXPECT_EQ(mixing->Weight(query, query), 0.75f);
    EXPECT_EQ(mixing->Weight(query, query - 1), 0.25f);
    EXPECT_EQ(mixing->Weight(query, query - 2), 0.0f);
    EXPECT_EQ(mixing->Weight(query, 0), 0.0f);
    EXPECT_EQ(mixing->FirstRead(query), query - 1);
  }
}

TEST(CausalMixingTest, RefusesWhatIsNoMatrix) {
  const auto refusal = [](const std::vector<float>& stored, int blocks) {
    const auto made = CausalMixing::Make(stored, blocks);
    EXPECT_FALSE(made);
    return made ? "" : made.error().message();
  };
  EXPECT_EQ(refusal({}, 0), "mixing matrix: 0 numbers for 0 x 0 blocks");
  EXPECT_EQ(refusal({1.0f, 1.0f, 1.0f}, 2), "mixing matrix: 3 numbers for 2 x 2 blocks");
  EXPECT_EQ(refusal({1, 0, std::numeric_limits<float>::quiet_NaN(), 1}, 2),
            "mixing matrix: [1, 0] is nan");
}

// The op: some sessions with projected rows of their own, in one layer.
class BlockReadTest : public ::testing::Test {
 protected:
  static constexpr int kTokens = 3 * kBlock + 5;
  static constexpr float kEpsilon = 1e-6f;

  struct Session {
    std::vector<float> projected;  // [T, projected width]
    std::vector<std::vector<float>> sums;
    std::vector<float> prefix;
    std::vector<float> out;  // [T, H V]
    int position = 0;
  };

  BlockReadTest() : norm_(RandomFloats(3).Many(shape_.value_dim, 2.0f)) {
    mixing_ = *CausalMixing::Make(stored_, kBlocks);
  }

  Session SessionOf(uint64_t seed) const {
    Session session;
    session.projected = RandomFloats(seed).Many(int64_t{kTokens} * shape_.projected_width(), 3.0f);
    session.out.resize(static_cast<size_t>(kTokens * shape_.value_width()));
    return session;
  }

  BlockState StateOf(Session& session) {
    const int64_t block = session.position / kBlock;
    const auto numbers = static_cast<size_t>(shape_.sum_numbers());
    if (session.position % kBlock == 0) {
      session.sums.emplace_back(numbers);
      session.prefix.assign(numbers, std::numeric_limits<float>::quiet_NaN());
      std::vector<const float*> sums;
      std::vector<float> weights;
      for (int64_t j = mixing_.FirstRead(block); j < block; ++j) {
        sums.push_back(session.sums[static_cast<size_t>(j)].data());
        weights.push_back(mixing_.Weight(block, j));
      }
      const Status status =
          cpu::BlockPrefix({shape_, sums, weights, session.prefix.data()}, stream_);
      EXPECT_TRUE(status) << status.error().message();
    }
    return {session.sums.back().data(), block == 0 ? nullptr : session.prefix.data(),
            mixing_.Weight(block, block)};
  }

  void Read(const StepTable& step, const std::vector<BlockState>& states,
            const std::vector<float>& projected, std::vector<float>& out) {
    const Status status = cpu::BlockRead(
        {&step, shape_, projected.data(), states.data(), norm_.data(), kEpsilon, out.data()},
        stream_);
    ASSERT_TRUE(status) << status.error().message();
  }

  void Prefill(Session& session, int tokens) {
    const auto width = static_cast<size_t>(shape_.projected_width());
    const auto out_width = static_cast<size_t>(shape_.value_width());
    while (tokens > 0) {
      const std::vector<BlockState> states = {StateOf(session)};
      const Piece piece = {0, std::min(tokens, kBlock - session.position % kBlock),
                           session.position};
      StepTable step;
      step.form = RowForm::kPrefill;
      step.rows = kPieceTokens;
      step.pieces = &piece;
      step.piece_count = 1;
      step.session_count = 1;
      const auto first = static_cast<size_t>(session.position);
      const auto count = static_cast<size_t>(piece.tokens);
      std::vector<float> projected(kPieceTokens * width, std::numeric_limits<float>::quiet_NaN());
      std::copy_n(session.projected.data() + first * width, count * width, projected.data());
      std::vector<float> out(kPieceTokens * out_width, 1.0f);
      Read(step, states, projected, out);
      std::copy_n(out.data(), count * out_width, session.out.data() + first * out_width);
      for (size_t i = count * out_width; i < out.size(); ++i) ASSERT_EQ(out[i], 0) << "padding";
      session.position += piece.tokens;
      tokens -= piece.tokens;
    }
  }

  // One token of each session, in the order of a step's rows.
  void Decode(std::vector<Session*> sessions) {
    const auto width = static_cast<size_t>(shape_.projected_width());
    const auto out_width = static_cast<size_t>(shape_.value_width());
    std::vector<BlockState> states;
    std::vector<int32_t> position, index;
    std::vector<float> projected;
    for (Session* session : sessions) {
      states.push_back(StateOf(*session));
      position.push_back(session->position);
      index.push_back(static_cast<int32_t>(index.size()));
      const auto from = session->projected.begin() +
                        static_cast<ptrdiff_t>(static_cast<size_t>(session->position) * width);
      projected.insert(projected.end(), from, from + static_cast<ptrdiff_t>(width));
    }
    StepTable step;
    step.rows = static_cast<int32_t>(sessions.size());
    step.position = position.data();
    step.session = index.data();
    step.session_count = step.rows;
    std::vector<float> out(sessions.size() * out_width);
    Read(step, states, projected, out);
    for (size_t i = 0; i < sessions.size(); ++i) {
      std::copy_n(out.data() + i * out_width, out_width,
                  sessions[i]->out.data() + static_cast<size_t>(sessions[i]->position) * out_width);
      ++sessions[i]->position;
    }
  }

  // q (or k with `part` 1) of a token and head: relu, rotation by halves, and the scale of q.
  std::vector<double> FeaturesOf(const Session& session, int t, int head, int part) const {
    const int K = shape_.key_dim, half = K / 2;
    const float* row = session.projected.data() +
                       static_cast<ptrdiff_t>(t) * shape_.projected_width() +
                       part * shape_.key_width() + head * K;
    std::vector<double> x(static_cast<size_t>(K)), turned(static_cast<size_t>(K));
    for (int d = 0; d < K; ++d)
      x[static_cast<size_t>(d)] = std::max(0.0, static_cast<double>(row[d]));
    for (int d = 0; d < half; ++d) {
      const double angle = t * std::pow(shape_.rope_theta, -2.0 * d / K);
      const double a = x[static_cast<size_t>(d)], b = x[static_cast<size_t>(half + d)];
      turned[static_cast<size_t>(d)] = a * std::cos(angle) - b * std::sin(angle);
      turned[static_cast<size_t>(half + d)] = a * std::sin(angle) + b * std::cos(angle);
    }
    if (part == 0) {
      for (double& each : turned) each /= std::sqrt(static_cast<double>(K));
    }
    return turned;
  }

  std::vector<double> RowOf(const Session& session, int t) const {
    const int V = shape_.value_dim;
    std::vector<double> out;
    for (int head = 0; head < shape_.heads; ++head) {
      const std::vector<double> q = FeaturesOf(session, t, head, 0);
      std::vector<double> o(static_cast<size_t>(V));
      for (int u = 0; u <= t; ++u) {
        const std::vector<double> k = FeaturesOf(session, u, head, 1);
        double score = 0;
        for (size_t d = 0; d < k.size(); ++d) score += q[d] * k[d];
        score *= WeightOf(stored_, kBlocks, t / kBlock, u / kBlock);
        for (int d = 0; d < V; ++d)
          o[static_cast<size_t>(d)] += score * ValueAt(session, u, 2 * shape_.key_width(), head, d);
      }
      const support::Doubles normed = support::PlainNormOf(o, norm_, static_cast<double>(kEpsilon));
      for (int d = 0; d < V; ++d)
        out.push_back(normed[static_cast<size_t>(d)] *
                      support::SiluOf(ValueAt(
                          session, t, 2 * shape_.key_width() + shape_.value_width(), head, d)));
    }
    return out;
  }
  double ValueAt(const Session& session, int t, int column, int head, int d) const {
    return static_cast<double>(session.projected[static_cast<size_t>(
        t * shape_.projected_width() + column + head * shape_.value_dim + d)]);
  }

  void ExpectFormula(const Session& session) {
    const auto width = static_cast<ptrdiff_t>(shape_.value_width());
    for (int t = 0; t < session.position; ++t) {
      SCOPED_TRACE(t);
      const auto row = session.out.begin() + t * width;
      ASSERT_NO_FATAL_FAILURE(
          support::ExpectNear(std::vector<float>(row, row + width), RowOf(session, t), 1e-4));
    }
  }

  static constexpr int kBlocks = 2;  // the tokens go beyond it
  BlockShape shape_ = {3, 10, 7, 10'000};
  std::vector<float> stored_ = StoredMatrixOf(kBlocks, 4);
  std::vector<float> norm_;
  CausalMixing mixing_;
  cpu::CpuStream stream_{2};
};

TEST_F(BlockReadTest, PiecesGiveTheFormula) {
  Session session = SessionOf(5);
  Prefill(session, kTokens);
  ExpectFormula(session);
}

TEST_F(BlockReadTest, TokensOneByOneGiveTheFormulaInAnyCompany) {
  Session one = SessionOf(6), other = SessionOf(7), alone = SessionOf(6);
  Prefill(other, 17);
  while (other.position < kTokens) Decode({&one, &other});
  while (one.position < kTokens) Decode({&one});
  ExpectFormula(one);
  ExpectFormula(other);
  while (alone.position < kTokens) Decode({&alone});
  support::ExpectSameBits(alone.out, one.out);
}

TEST_F(BlockReadTest, NamesWhatIsWrong) {
  Session session = SessionOf(8);
  const std::vector<BlockState> states = {StateOf(session)};
  std::vector<float> out(kPieceTokens * static_cast<size_t>(shape_.value_width()));
  Piece piece = {0, 10, 60};
  StepTable step;
  step.form = RowForm::kPrefill;
  step.rows = kPieceTokens;
  step.pieces = &piece;
  step.piece_count = 1;
  step.session_count = 1;
  BlockReadArgs args = {&step,    shape_,    session.projected.data(), states.data(), norm_.data(),
                        kEpsilon, out.data()};
  const auto words = [&] {
    const Status status = cpu::BlockRead(args, stream_);
    return status ? std::string() : status.error().message();
  };
  EXPECT_EQ(words(),
            "block read: a piece of 10 tokens from position 60, expected tokens of one block of "
            "64");
  piece.position = 54;
  EXPECT_EQ(words(), "");
  step.piece_count = 2;
  EXPECT_EQ(words(), "block read: 2 pieces of 1 sessions, expected one of one");
  args.shape.key_dim = 9;
  EXPECT_EQ(words(), "block read: a head of 9 x 7, expected at most 512 and an even key dim");
  args.shape = shape_;
  step.piece_count = 1;
  args.norm_weight = nullptr;
  EXPECT_EQ(words(), "block read: norm_weight is null");
  const float* sum = nullptr;
  const float weight = 1;
  const Status status = cpu::BlockPrefix({shape_, {&sum, 1}, {&weight, 1}, out.data()}, stream_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "block prefix: a sum is null");
}

}  // namespace
}  // namespace mneme::kernels
