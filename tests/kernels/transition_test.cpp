// The forms of A, and models whose token is more than one TokenRule step.
#include "kernels/transition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/affine_chunk.h"

namespace mneme::kernels {
namespace {

constexpr double kTolerance = 1e-10;

TEST(TransitionTest, AKindKeepsOnlyTheNumbersItNeeds) {
  EXPECT_EQ(TransitionNumbers(TransitionKind::kIdentity, 128), 0);
  EXPECT_EQ(TransitionNumbers(TransitionKind::kScalar, 128), 1);
  EXPECT_EQ(TransitionNumbers(TransitionKind::kDiagonal, 128), 128);
  EXPECT_EQ(TransitionNumbers(TransitionKind::kDense, 128), 128 * 128);
}

TEST(TransitionTest, TheRuleOfEachModelHasItsKind) {
  EXPECT_EQ(kLinearRule.kind(), TransitionKind::kIdentity);
  EXPECT_EQ(kRetNetRule.kind(), TransitionKind::kScalar);
  EXPECT_EQ(kMamba2Rule.kind(), TransitionKind::kScalar);
  EXPECT_EQ(kGlaRule.kind(), TransitionKind::kDiagonal);
  for (const TokenRule rule : {kDeltaNetRule, kGdnRule, kKdaRule})
    EXPECT_EQ(rule.kind(), TransitionKind::kDense);
  EXPECT_EQ(kDeltaNetRule.decay, TransitionKind::kIdentity);
  EXPECT_EQ(kGdnRule.decay, TransitionKind::kScalar);
  EXPECT_EQ(kKdaRule.decay, TransitionKind::kDiagonal);
}

// Steps of one head in rows of their own, run as pieces of 64 steps.
struct Steps {
  int key_dim, value_dim;
  std::vector<double> q, k, v, erase, write_strength, log_decay;

  void Add(const std::vector<double>& query, const std::vector<double>& key,
           const std::vector<double>& value, const std::vector<double>& erase_key, double beta,
           const std::vector<double>& decay) {
    q.insert(q.end(), query.begin(), query.end());
    k.insert(k.end(), key.begin(), key.end());
    v.insert(v.end(), value.begin(), value.end());
    erase.insert(erase.end(), erase_key.begin(), erase_key.end());
    write_strength.push_back(beta);
    log_decay.insert(log_decay.end(), decay.begin(), decay.end());
  }

  // [steps, V], from an empty chunk
  std::vector<double> Run(TokenRule rule) {
    const AffineShape shape{rule, key_dim, value_dim};
    AffineWorkspace<double> workspace(key_dim, value_dim);
    std::vector<double> a(static_cast<size_t>(shape.a_numbers()));
    std::vector<double> b(static_cast<size_t>(shape.b_numbers()));
    cpu::StartChunk<double>(shape, {a.data(), b.data()});
    const int count = static_cast<int>(write_strength.size());
    const int decays = static_cast<int>(log_decay.size()) / count;
    std::vector<double> y(static_cast<size_t>(count * value_dim));
    std::vector<double> carry(static_cast<size_t>(kPieceTokens * key_dim));
    for (int t = 0; t < count; t += kPieceTokens) {
      TokenRows<double> rows{q.data() + t * key_dim,    k.data() + t * key_dim,
                             v.data() + t * value_dim,  erase.data() + t * key_dim,
                             write_strength.data() + t, log_decay.data() + t * decays};
      EXPECT_TRUE(cpu::AppendPiece<double>({shape,
                                            std::min(kPieceTokens, count - t),
                                            rows,
                                            {a.data(), b.data()},
                                            carry.data(),
                                            y.data() + t * value_dim,
                                            &workspace}));
    }
    return y;
  }
};

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : random_(seed) {}
  std::vector<double> Many(int count, double from, double to) {
    std::uniform_real_distribution<double> uniform(from, to);
    std::vector<double> x(static_cast<size_t>(count));
    for (double& each : x) each = uniform(random_);
    return x;
  }

 private:
  std::mt19937 random_;
};

void ExpectRow(const std::vector<double>& y, int row, const std::vector<double>& expected) {
  for (size_t d = 0; d < expected.size(); ++d) {
    const double actual = y[static_cast<size_t>(row) * expected.size() + d];
    ASSERT_NEAR(actual, expected[d], kTolerance * std::max(1.0, std::abs(expected[d])));
  }
}

// S [K, V] and what the two models below do to it.
struct State {
  int K, V;
  std::vector<double> s = std::vector<double>(static_cast<size_t>(K * V), 0.0);

  double& at(int i, int d) { return s[static_cast<size_t>(i * V + d)]; }
  std::vector<double> Times(const std::vector<double>& x) {
    std::vector<double> y(static_cast<size_t>(V), 0.0);
    for (int i = 0; i < K; ++i) {
      for (int d = 0; d < V; ++d) y[static_cast<size_t>(d)] += x[static_cast<size_t>(i)] * at(i, d);
    }
    return y;
  }
  void Add(const std::vector<double>& column, const std::vector<double>& row, double factor) {
    for (int i = 0; i < K; ++i) {
      for (int d = 0; d < V; ++d)
        at(i, d) += factor * column[static_cast<size_t>(i)] * row[static_cast<size_t>(d)];
    }
  }
};

// S <- (Diag(e^g) + b^T alpha) S + k^T v, alpha = -kappa, b = eta kappa: one step that decays and
// erases, and one that only writes.
TEST(TransitionTest, Rwkv7IsTwoStepsAToken) {
  const int K = 11, V = 6, count = 90;
  Numbers numbers(1);
  Steps steps{K, V, {}, {}, {}, {}, {}, {}};
  State state{K, V};
  std::vector<std::vector<double>> expected;
  for (int t = 0; t < count; ++t) {
    const auto q = numbers.Many(K, -1, 1), k = numbers.Many(K, -0.3, 0.3),
               v = numbers.Many(V, -1, 1);
    const auto kappa = numbers.Many(K, -0.3, 0.3), eta = numbers.Many(K, 0, 1);
    const auto g = numbers.Many(K, -0.6, 0);
    std::vector<double> write, erase;
    for (size_t i = 0; i < kappa.size(); ++i) {
      write.push_back(eta[i] * kappa[i]);
      erase.push_back(kappa[i] * std::exp(-g[i]));  // p of the decayed state is alpha of the state
    }
    const std::vector<double> none(static_cast<size_t>(K), 0.0);
    steps.Add(q, write, std::vector<double>(static_cast<size_t>(V), 0.0), erase, 1.0, g);
    steps.Add(q, k, v, none, 1.0, none);

    const std::vector<double> read = state.Times(kappa);
    for (int i = 0; i < K; ++i) {
      for (int d = 0; d < V; ++d) state.at(i, d) *= std::exp(g[static_cast<size_t>(i)]);
    }
    state.Add(write, read, -1.0);
    state.Add(k, v, 1.0);
    expected.push_back(state.Times(q));
  }
  const std::vector<double> y = steps.Run(kKdaRule);
  for (int t = 0; t < count; ++t) ExpectRow(y, 2 * t + 1, expected[static_cast<size_t>(t)]);
}

// A = e^g prod_j (I - beta_j k_j^T k_j): n steps, of which the first decays.
TEST(TransitionTest, GatedDeltaProductIsSeveralStepsAToken) {
  const int K = 9, V = 7, count = 50, parts = 3;
  Numbers numbers(2);
  Steps steps{K, V, {}, {}, {}, {}, {}, {}};
  State state{K, V};
  std::vector<std::vector<double>> expected;
  for (int t = 0; t < count; ++t) {
    const auto q = numbers.Many(K, -1, 1);
    const double g = numbers.Many(1, -0.2, 0)[0];
    for (double& each : state.s) each *= std::exp(g);
    for (int j = 0; j < parts; ++j) {
      const auto k = numbers.Many(K, -0.5, 0.5), v = numbers.Many(V, -1, 1);
      const double beta = numbers.Many(1, 0, 1)[0];
      steps.Add(q, k, v, k, beta, {j == 0 ? g : 0.0});
      const std::vector<double> read = state.Times(k);
      state.Add(k, v, beta);
      state.Add(k, read, -beta);
    }
    expected.push_back(state.Times(q));
  }
  const std::vector<double> y = steps.Run(kGdnRule);
  for (int t = 0; t < count; ++t)
    ExpectRow(y, parts * t + parts - 1, expected[static_cast<size_t>(t)]);
}

}  // namespace
}  // namespace mneme::kernels
