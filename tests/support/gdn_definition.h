// The gated delta rule written out in double precision, token by token, with the states as
// matrices: the definition that the kernels of the linear layers are held to. Slow and obvious.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kernels/shape.h"

namespace mneme::support {

using Doubles = std::vector<double>;

// What gdn_prepare would hand to gdn_read for a run of tokens from position 0, and z.
struct GdnTokens {
  kernels::LinearShape shape;
  int count = 0;
  std::vector<float> q, k;                       // [count, G, K]
  std::vector<float> v, z;                       // [count, H, V]
  std::vector<float> write_strength, log_decay;  // [count, H]
};

// Keys of length one, queries of length K^-1/2; head h's mean log decay is -half_life[h mod size].
inline GdnTokens MakeTokens(const kernels::LinearShape& shape, int count, uint32_t seed,
                            const std::vector<double>& decay = {0.3, 0.002, 0.02}) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  GdnTokens tokens;
  tokens.shape = shape;
  tokens.count = count;
  const auto heads = [&](int rows, double length) {
    std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(shape.key_dim));
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(shape.key_dim)) {
      double square = 1e-6;
      for (int d = 0; d < shape.key_dim; ++d) {
        float& value = x[row + static_cast<size_t>(d)];
        value = normal(random);
        square += static_cast<double>(value) * static_cast<double>(value);
      }
      for (int d = 0; d < shape.key_dim; ++d)
        x[row + static_cast<size_t>(d)] *= static_cast<float>(length / std::sqrt(square));
    }
    return x;
  };
  tokens.q = heads(count * shape.key_heads, 1.0 / std::sqrt(shape.key_dim));
  tokens.k = heads(count * shape.key_heads, 1.0);
  for (int i = 0; i < count * shape.value_width(); ++i) {
    tokens.v.push_back(normal(random));
    tokens.z.push_back(normal(random));
  }
  for (int i = 0; i < count * shape.value_heads; ++i) {
    const size_t head = static_cast<size_t>(i % shape.value_heads);
    tokens.write_strength.push_back(uniform(random));
    tokens.log_decay.push_back(static_cast<float>(-2.0 * decay[head % decay.size()]) *
                               uniform(random));
  }
  return tokens;
}

// S <- A S + B with A [K, K] and B [K, V], beginning at [I | 0].
struct Transition {
  int key_dim = 0, value_dim = 0;
  Doubles a, b;

  Transition(int key, int value) : key_dim(key), value_dim(value) {
    a.assign(static_cast<size_t>(key) * static_cast<size_t>(key), 0.0);
    b.assign(static_cast<size_t>(key) * static_cast<size_t>(value), 0.0);
    for (int i = 0; i < key; ++i) a[static_cast<size_t>(i * key + i)] = 1.0;
  }

  // X <- e^g X;  d = beta (v - k X);  X <- X + k^T d, for X = B with v and X = A with v = 0.
  void Token(const float* k, const float* v, double beta, double g) {
    Advance(a, key_dim, k, nullptr, beta, g);
    Advance(b, value_dim, k, v, beta, g);
  }

  // A S + B
  Doubles Apply(const Doubles& state) const {
    Doubles out = b;
    for (int i = 0; i < key_dim; ++i) {
      double* row = &out[static_cast<size_t>(i * value_dim)];
      for (int j = 0; j < key_dim; ++j) {
        const double each = a[static_cast<size_t>(i * key_dim + j)];
        const double* from = &state[static_cast<size_t>(j * value_dim)];
        for (int d = 0; d < value_dim; ++d) row[d] += each * from[d];
      }
    }
    return out;
  }

 private:
  void Advance(Doubles& x, int width, const float* k, const float* v, double beta, double g) const {
    const double decay = std::exp(g);
    for (double& each : x) each *= decay;
    Doubles write(static_cast<size_t>(width), 0.0);  // k X, then d
    for (int i = 0; i < key_dim; ++i) {
      const double* row = &x[static_cast<size_t>(i * width)];
      for (int d = 0; d < width; ++d)
        write[static_cast<size_t>(d)] += static_cast<double>(k[i]) * row[d];
    }
    for (int d = 0; d < width; ++d) {
      double& each = write[static_cast<size_t>(d)];
      each = beta * ((v == nullptr ? 0.0 : static_cast<double>(v[d])) - each);
    }
    for (int i = 0; i < key_dim; ++i) {
      double* row = &x[static_cast<size_t>(i * width)];
      for (int d = 0; d < width; ++d)
        row[d] += static_cast<double>(k[i]) * write[static_cast<size_t>(d)];
    }
  }
};

// The gate of closed chunk `chunk` for the token at `position`, in key head `key_head`.
using GateOf = std::function<float(int position, int key_head, int chunk)>;

// Token t as head `head` sees it.
inline void Advance(const GdnTokens& tokens, int head, int t, Transition& chunk) {
  const kernels::LinearShape& s = tokens.shape;
  const size_t row = static_cast<size_t>(t * s.value_heads + head);
  chunk.Token(
      &tokens.k[static_cast<size_t>((t * s.key_heads + head / s.heads_per_group()) * s.key_dim)],
      &tokens.v[row * static_cast<size_t>(s.value_dim)],
      static_cast<double>(tokens.write_strength[row]), static_cast<double>(tokens.log_decay[row]));
}

// Head h's chunks, each from [I | 0]; the last may be open.
inline std::vector<Transition> ChunksOf(const GdnTokens& tokens, int head) {
  const kernels::LinearShape& s = tokens.shape;
  std::vector<Transition> chunks;
  for (int t = 0; t < tokens.count; ++t) {
    if (t % s.chunk_tokens == 0) chunks.emplace_back(s.key_dim, s.value_dim);
    Advance(tokens, head, t, chunks.back());
  }
  return chunks;
}

// S_j = (1 - w_j) S_{j-1} + w_j (A_j S_{j-1} + B_j) over the chunks in order, from zero.
inline Doubles HistoryOf(const std::vector<Transition>& chunks, const std::vector<double>& gates) {
  const size_t size = chunks[0].b.size();
  Doubles state(size, 0.0);
  bool zero = true;
  for (size_t j = 0; j < gates.size(); ++j) {
    if (gates[j] == 0.0) continue;
    const Doubles next = zero ? chunks[j].b : chunks[j].Apply(state);
    zero = false;
    for (size_t i = 0; i < size; ++i) state[i] = (1.0 - gates[j]) * state[i] + gates[j] * next[i];
  }
  return state;
}

// y [count, H, V]: the history's state, then the open chunk's tokens with gate 1, then y = q S.
inline Doubles ReadsOf(const GdnTokens& tokens, const GateOf& gate) {
  const kernels::LinearShape& s = tokens.shape;
  const int K = s.key_dim, V = s.value_dim;
  Doubles y(static_cast<size_t>(tokens.count * s.value_width()));
  for (int h = 0; h < s.value_heads; ++h) {
    const int g = h / s.heads_per_group();
    std::vector<Transition> chunks;  // the last is the open one
    std::vector<double> gates;
    Doubles history(static_cast<size_t>(K * V), 0.0);
    for (int t = 0; t < tokens.count; ++t) {
      if (t % s.chunk_tokens == 0) chunks.emplace_back(K, V);
      Transition& open = chunks.back();
      Advance(tokens, h, t, open);
      const size_t row = static_cast<size_t>(t * s.value_heads + h);
      std::vector<double> wanted;
      for (int j = 0; j < t / s.chunk_tokens; ++j)
        wanted.push_back(static_cast<double>(gate(t, g, j)));
      if (wanted != gates) history = HistoryOf(chunks, gates = wanted);
      // q (A S + B), as (q A) S + q B to save work.
      Doubles carry(static_cast<size_t>(K), 0.0);
      double* out = &y[row * static_cast<size_t>(V)];
      for (int i = 0; i < K; ++i) {
        const double q =
            static_cast<double>(tokens.q[static_cast<size_t>((t * s.key_heads + g) * K + i)]);
        for (int j = 0; j < K; ++j)
          carry[static_cast<size_t>(j)] += q * open.a[static_cast<size_t>(i * K + j)];
        for (int d = 0; d < V; ++d) out[d] += q * open.b[static_cast<size_t>(i * V + d)];
      }
      for (int i = 0; i < K; ++i) {
        for (int d = 0; d < V; ++d)
          out[d] += carry[static_cast<size_t>(i)] * history[static_cast<size_t>(i * V + d)];
      }
    }
  }
  return y;
}

// The plain recurrence without chunks: S <- e^g S;  d = beta (v - k S);  S <- S + k^T d;  y = q S.
inline Doubles RecurrenceOf(const GdnTokens& tokens) {
  GdnTokens whole = tokens;
  whole.shape.chunk_tokens = tokens.count + 1;
  return ReadsOf(whole, nullptr);
}

// RMSNorm(y; weight) SiLU(z), head by head.
inline Doubles GatedNormOf(const Doubles& y, const std::vector<float>& weight,
                           const std::vector<float>& z, double epsilon) {
  Doubles out(y.size());
  for (size_t row = 0; row < y.size(); row += weight.size()) {
    double square = 0.0;
    for (size_t d = 0; d < weight.size(); ++d) square += y[row + d] * y[row + d];
    const double scale = 1.0 / std::sqrt(square / static_cast<double>(weight.size()) + epsilon);
    for (size_t d = 0; d < weight.size(); ++d) {
      const double x = static_cast<double>(z[row + d]);
      out[row + d] = y[row + d] * scale * static_cast<double>(weight[d]) * x / (1.0 + std::exp(-x));
    }
  }
  return out;
}

}  // namespace mneme::support
