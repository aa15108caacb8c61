// The recurrences of the linear models written out in double, one state matrix and one token at a
// time, each as its authors define it. The definition that affine chunks are held to; slow and
// obvious, and it knows nothing of chunks' A and B.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/transition.h"

namespace mneme::support {

enum class Recurrence { kLinear, kRetNet, kGla, kMamba2, kDeltaNet, kGdn, kKda, kComba, kGdn2 };

inline std::string_view NameOf(Recurrence recurrence) {
  static constexpr std::string_view kNames[] = {"Linear", "RetNet", "Gla",   "Mamba2", "DeltaNet",
                                                "Gdn",    "Kda",    "Comba", "Gdn2"};
  return kNames[static_cast<size_t>(recurrence)];
}

inline kernels::TokenRule RuleOf(Recurrence recurrence) {
  switch (recurrence) {
    case Recurrence::kLinear:
      return kernels::kLinearRule;
    case Recurrence::kRetNet:
      return kernels::kRetNetRule;
    case Recurrence::kGla:
      return kernels::kGlaRule;
    case Recurrence::kMamba2:
      return kernels::kMamba2Rule;
    case Recurrence::kDeltaNet:
      return kernels::kDeltaNetRule;
    case Recurrence::kGdn:
    case Recurrence::kComba:
      return kernels::kGdnRule;
    case Recurrence::kKda:
    case Recurrence::kGdn2:
      return kernels::kKdaRule;
  }
  return {};
}

// The tokens of one head in the models' own letters; what a model does not have is empty. All
// numbers are f32, so that both precisions see the same.
struct RecurrenceTokens {
  Recurrence recurrence = Recurrence::kLinear;
  int key_dim = 0, value_dim = 0, count = 0;
  std::vector<float> q, k, v;  // [count, K], [count, K], [count, V]
  std::vector<float> beta;     // [count]     write strength; Mamba2: dt
  std::vector<float> g;        // [count] or [count, K]  log decay
  std::vector<float> p;        // [count, K]  Comba: erase key; Gdn2: b o k
  double at(const std::vector<float>& x, int row, int width, int d) const {
    return static_cast<double>(x[static_cast<size_t>(row * width + d)]);
  }
};

inline RecurrenceTokens MakeRecurrenceTokens(Recurrence recurrence, int key_dim, int value_dim,
                                             int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  RecurrenceTokens tokens;
  tokens.recurrence = recurrence;
  tokens.key_dim = key_dim;
  tokens.value_dim = value_dim;
  tokens.count = count;
  const kernels::TokenRule rule = RuleOf(recurrence);
  const float unit = 1.0f / std::sqrt(static_cast<float>(key_dim));
  // Channels that keep a thousand tokens beside channels that keep one: summed over a piece they
  // are far beyond what e^x can undo.
  std::vector<float> rate(static_cast<size_t>(key_dim));
  for (float& each : rate) each = std::exp(std::log(1e-3f) + uniform(random) * std::log(8e3f));
  for (int t = 0; t < count; ++t) {
    float square = 1e-6f;
    for (int d = 0; d < key_dim; ++d) {
      tokens.q.push_back(normal(random) * unit);
      tokens.k.push_back(normal(random));
      square += tokens.k.back() * tokens.k.back();
    }
    for (int d = 0; d < key_dim; ++d)
      tokens.k[static_cast<size_t>(t * key_dim + d)] /= std::sqrt(square);
    for (int d = 0; d < value_dim; ++d) tokens.v.push_back(normal(random));
    const float strength = uniform(random);
    if (rule.erases || recurrence == Recurrence::kMamba2) {
      if (recurrence != Recurrence::kGdn2) tokens.beta.push_back(strength);
    }
    if (rule.decay == kernels::TransitionKind::kScalar) {
      tokens.g.push_back(recurrence == Recurrence::kRetNet   ? std::log(1.0f - 0x1p-5f)
                         : recurrence == Recurrence::kMamba2 ? -0.1f * strength
                                                             : -0.05f * uniform(random));
    }
    for (int d = 0; rule.decay == kernels::TransitionKind::kDiagonal && d < key_dim; ++d)
      tokens.g.push_back(-rate[static_cast<size_t>(d)] * uniform(random));
    for (int d = 0; d < key_dim; ++d) {
      const float k = tokens.k[static_cast<size_t>(t * key_dim + d)];
      if (recurrence == Recurrence::kComba) tokens.p.push_back(0.8f * k);
      if (recurrence == Recurrence::kGdn2) tokens.p.push_back(uniform(random) * k);
    }
  }
  return tokens;
}

// S [K, V] in double.
class RecurrenceState {
 public:
  explicit RecurrenceState(const RecurrenceTokens& tokens)
      : tokens_(&tokens),
        s_(static_cast<size_t>(tokens.key_dim) * static_cast<size_t>(tokens.value_dim), 0.0) {}

  std::vector<double>& numbers() { return s_; }

  void Run(int begin, int end) {
    for (int t = begin; t < end; ++t) Advance(t);
  }

  // S <- A_t S + B_t
  void Advance(int t) {
    const RecurrenceTokens& x = *tokens_;
    const int K = x.key_dim;
    const auto k = [&](int i) { return x.at(x.k, t, K, i); };
    const auto p = [&](int i) { return x.at(x.p, t, K, i); };
    const auto decay = [&](int i) { return std::exp(x.at(x.g, t, K, i)); };
    const auto one = [](int) { return 1.0; };
    const double beta = x.beta.empty() ? 1.0 : x.at(x.beta, t, 1, 0);
    switch (x.recurrence) {
      case Recurrence::kLinear:  // S + k^T v
        return Set(t, one, one, nullptr, k);
      case Recurrence::kRetNet: {  // e^g S + k^T v
        const double gamma = std::exp(x.at(x.g, t, 1, 0));
        return Set(
            t, [&](int) { return gamma; }, one, nullptr, k);
      }
      case Recurrence::kMamba2: {  // e^{dt A} S + (dt k)^T v
        const double gamma = std::exp(x.at(x.g, t, 1, 0));
        return Set(
            t, [&](int) { return gamma; }, one, nullptr, [&](int i) { return beta * k(i); });
      }
      case Recurrence::kGla:  // Diag(e^g) S + k^T v
        return Set(t, decay, one, nullptr, k);
      case Recurrence::kDeltaNet:  // (I - beta k^T k) S + beta k^T v
        return Set(
            t, one, k, [&](int i) { return beta * k(i); }, [&](int i) { return beta * k(i); });
      case Recurrence::kGdn: {  // e^g (I - beta k^T k) S + beta k^T v
        const double gamma = std::exp(x.at(x.g, t, 1, 0));
        return Set(
            t, [&](int) { return gamma; }, k, [&](int i) { return gamma * beta * k(i); },
            [&](int i) { return beta * k(i); });
      }
      case Recurrence::kComba: {  // e^g (I - beta k^T p) S + beta k^T v
        const double gamma = std::exp(x.at(x.g, t, 1, 0));
        return Set(
            t, [&](int) { return gamma; }, p, [&](int i) { return gamma * beta * k(i); },
            [&](int i) { return beta * k(i); });
      }
      case Recurrence::kKda:  // (Diag(e^g) - beta k^T (k o e^g)) S + beta k^T v
        return Set(
            t, decay, [&](int i) { return k(i) * decay(i); }, [&](int i) { return beta * k(i); },
            [&](int i) { return beta * k(i); });
      case Recurrence::kGdn2:  // (Diag(e^g) - k^T (b o k o e^g)) S + k^T v, v with its write gate
        return Set(
            t, decay, [&](int i) { return p(i) * decay(i); }, k, k);
    }
  }

  // y [V] = q_t S
  std::vector<double> Read(int t) const {
    const RecurrenceTokens& x = *tokens_;
    std::vector<double> y(static_cast<size_t>(x.value_dim), 0.0);
    for (int i = 0; i < x.key_dim; ++i) {
      const double q = x.at(x.q, t, x.key_dim, i);
      const double* row = &s_[static_cast<size_t>(i * x.value_dim)];
      for (int d = 0; d < x.value_dim; ++d) y[static_cast<size_t>(d)] += q * row[d];
    }
    return y;
  }

 private:
  using OfChannel = std::function<double(int)>;

  // S <- (Diag(diagonal) - column^T row) S + write^T v_t
  void Set(int t, const OfChannel& diagonal, const OfChannel& row, const OfChannel& column,
           const OfChannel& write) {
    const RecurrenceTokens& x = *tokens_;
    const int K = x.key_dim, V = x.value_dim;
    const auto v = x.v.begin() + t * V;
    const std::vector<double> value(v, v + V);
    std::vector<double> erased(static_cast<size_t>(V), 0.0);
    for (int i = 0; column != nullptr && i < K; ++i) {
      const double factor = row(i);
      const double* s = &s_[static_cast<size_t>(i * V)];
      for (int d = 0; d < V; ++d) erased[static_cast<size_t>(d)] += factor * s[d];
    }
    for (int i = 0; i < K; ++i) {
      const double keep = diagonal(i), out = column == nullptr ? 0.0 : column(i), in = write(i);
      double* s = &s_[static_cast<size_t>(i * V)];
      for (int d = 0; d < V; ++d) {
        const size_t at = static_cast<size_t>(d);
        s[d] = keep * s[d] - out * erased[at] + in * value[at];
      }
    }
  }

  const RecurrenceTokens* tokens_;
  std::vector<double> s_;
};

// The gate of closed chunk `chunk` for the token at `position`; the open chunk's where they meet.
using ChunkGate = std::function<double(int position, int chunk)>;

// y [V] of the token at `position`, forward from the first token: a chunk with gate w makes of S
// the mixture (1 - w) S + w (the chunk's tokens from S).
inline std::vector<double> GatedReadOf(const RecurrenceTokens& tokens, int chunk_tokens,
                                       int position, const ChunkGate& gate) {
  RecurrenceState state(tokens);
  for (int begin = 0, chunk = 0; begin <= position; begin += chunk_tokens, ++chunk) {
    const double w = gate(position, chunk);
    if (w == 0.0) continue;
    const std::vector<double> before = state.numbers();
    state.Run(begin, std::min(begin + chunk_tokens, position + 1));
    for (size_t i = 0; i < before.size(); ++i)
      state.numbers()[i] = (1.0 - w) * before[i] + w * state.numbers()[i];
  }
  return state.Read(position);
}

}  // namespace mneme::support
