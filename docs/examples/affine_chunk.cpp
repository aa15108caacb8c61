// A recurrence and a shape of your own through affine chunks, beside the same written out longhand.
//
//   affine_chunk [DECAY ERASES K V T CHUNKS]      none | scalar | row, 0 | 1, sizes
//
//   affine_chunk row 1 96 160 128 5     KDA; without arguments, too
//   affine_chunk none 0 128 256 64 8    linear attention; with a gate for each pair of chunks: MHLA
//
// Tokens are random. Closed chunks have gates of their own, as a router (HLA) or a mixing matrix
// (MHLA) gives them. Prints the largest difference, relative to the largest output, and exits with
// 1 where it is above 1e-10.
#include "kernels/affine_chunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using mneme::Status;
using mneme::kernels::AffineChunk;
using mneme::kernels::AffineShape;
using mneme::kernels::AffineWorkspace;
using mneme::kernels::kPieceTokens;
using mneme::kernels::TokenRows;
using mneme::kernels::TransitionKind;
namespace cpu = mneme::kernels::cpu;

namespace {

using Numbers = std::vector<double>;

struct Tokens {
  AffineShape shape;
  int decays = 0;  // log decays of a token: 0, 1 or K
  int chunk_tokens = 0, count = 0;
  Numbers q, k, v, beta, g;  // [count, K], [count, K], [count, V], [count], [count, decays]

  TokenRows<double> From(int t) const {
    return {.q = q.data() + t * shape.key_dim,
            .k = k.data() + t * shape.key_dim,
            .v = v.data() + t * shape.value_dim,
            .write_strength = beta.data() + t,
            .log_decay = g.data() + t * decays};
  }
};

Tokens RandomTokens(const AffineShape& shape, int chunk_tokens, int chunks) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  const auto many = [&](int count, double from, double to) {
    Numbers x(static_cast<size_t>(count));
    for (double& each : x) each = from + (to - from) * uniform(random);
    return x;
  };
  Tokens x;
  x.shape = shape;
  x.chunk_tokens = chunk_tokens;
  x.count = chunk_tokens * chunks;
  x.decays = static_cast<int>(TransitionNumbers(shape.rule.decay, shape.key_dim));
  const double unit = std::sqrt(3.0 / shape.key_dim);  // rows of length about 1
  x.q = many(x.count * shape.key_dim, -unit, unit);
  x.k = many(x.count * shape.key_dim, -unit, unit);
  x.v = many(x.count * shape.value_dim, -1, 1);
  x.beta = many(x.count, 0, 1);
  x.g = many(x.count * x.decays, -0.05, 0);
  return x;
}

// w of chunk j for a query in chunk i; the open chunk's own where they are one.
double Gate(int i, int j) { return i == j ? 1.0 : (i + 2 * j) % 4 / 3.0; }

// y [count, V] through the library: pieces of up to 64 tokens, then closed chunks newest to oldest.
Status ByChunks(const Tokens& x, Numbers& y) {
  const int K = x.shape.key_dim, V = x.shape.value_dim;
  AffineWorkspace<double> workspace(K, V);
  std::vector<Numbers> a, b;  // of each chunk
  y.clear();
  for (int t = 0; t < x.count;) {
    if (t % x.chunk_tokens == 0) {
      a.emplace_back(x.shape.a_numbers());
      b.emplace_back(x.shape.b_numbers());
      cpu::StartChunk<double>(x.shape, {a.back().data(), b.back().data()});
    }
    const int n = std::min(kPieceTokens, x.chunk_tokens - t % x.chunk_tokens);
    Numbers carry(static_cast<size_t>(n * K)), output(static_cast<size_t>(n * V));
    MNEME_TRY(cpu::AppendPiece<double>({.shape = x.shape,
                                        .count = n,
                                        .tokens = x.From(t),
                                        .chunk = {a.back().data(), b.back().data()},
                                        .carry = carry.data(),
                                        .output = output.data(),
                                        .workspace = &workspace}));
    const int open = t / x.chunk_tokens;
    for (int j = open - 1; j >= 0; --j) {
      const Numbers gates(static_cast<size_t>(n), Gate(open, j));  // a row may have its own
      const auto at = static_cast<size_t>(j);
      MNEME_TRY(cpu::ReadChunk<double>({.shape = x.shape,
                                        .chunk = AffineChunk<double>{a[at].data(), b[at].data()},
                                        .count = n,
                                        .gate = gates.data(),
                                        .carry = carry.data(),
                                        .output = output.data(),
                                        .workspace = &workspace}));
    }
    y.insert(y.end(), output.begin(), output.end());
    t += n;
  }
  return {};
}

// S <- Diag(e^g) S;  S <- S + k^T beta (v - k S), without the last product where nothing is erased.
void StepLonghand(const Tokens& x, int t, Numbers& s) {
  const int K = x.shape.key_dim, V = x.shape.value_dim;
  const double* k = x.k.data() + t * K;
  const double* g = x.g.data() + t * x.decays;
  Numbers write(x.v.begin() + t * V, x.v.begin() + (t + 1) * V);
  for (int i = 0; i < K; ++i) {
    double* row = s.data() + i * V;
    for (int d = 0; d < V; ++d) {
      if (x.decays != 0) row[d] *= std::exp(g[x.decays == 1 ? 0 : i]);
      if (x.shape.rule.erases) write[static_cast<size_t>(d)] -= k[i] * row[d];
    }
  }
  for (int i = 0; i < K; ++i) {
    double* row = s.data() + i * V;
    for (int d = 0; d < V; ++d)
      row[d] += k[i] * x.beta[static_cast<size_t>(t)] * write[static_cast<size_t>(d)];
  }
}

// y [V] of token t, forward: a chunk with gate w leaves (1 - w) S + w (its tokens from S).
Numbers Longhand(const Tokens& x, int t) {
  const int K = x.shape.key_dim, V = x.shape.value_dim, open = t / x.chunk_tokens;
  Numbers s(static_cast<size_t>(K * V)), y(static_cast<size_t>(V));
  for (int j = 0; j <= open; ++j) {
    const Numbers before = s;
    const int end = std::min((j + 1) * x.chunk_tokens, t + 1);
    for (int u = j * x.chunk_tokens; u < end; ++u) StepLonghand(x, u, s);
    const double w = Gate(open, j);
    for (size_t i = 0; i < s.size(); ++i) s[i] = (1 - w) * before[i] + w * s[i];
  }
  const double* q = x.q.data() + t * K;
  for (int i = 0; i < K; ++i) {
    const double* row = s.data() + i * V;
    for (int d = 0; d < V; ++d) y[static_cast<size_t>(d)] += q[i] * row[d];
  }
  return y;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> given(argv + 1, argv + argc);
  if (given.empty()) given = {"row", "1", "96", "160", "128", "5"};
  if (given.size() != 6) {
    fmt::print(stderr, "affine_chunk: 6 arguments, DECAY ERASES K V T CHUNKS, or none\n");
    return 2;
  }
  AffineShape shape;
  shape.rule = {.decay = given[0] == "row"      ? TransitionKind::kDiagonal
                         : given[0] == "scalar" ? TransitionKind::kScalar
                                                : TransitionKind::kIdentity,
                .erases = given[1] == "1"};
  shape.key_dim = std::atoi(given[2].c_str());
  shape.value_dim = std::atoi(given[3].c_str());
  const Tokens x = RandomTokens(shape, std::atoi(given[4].c_str()), std::atoi(given[5].c_str()));
  Numbers y;
  if (const Status status = ByChunks(x, y); !status) {
    fmt::print(stderr, "affine_chunk: {}\n", status.error().message());
    return 1;
  }
  double largest = 0, difference = 0;
  for (int t = x.chunk_tokens / 2; t < x.count; t += x.chunk_tokens) {
    const Numbers expected = Longhand(x, t);
    for (size_t d = 0; d < expected.size(); ++d) {
      const double actual = y[static_cast<size_t>(t) * expected.size() + d];
      largest = std::max(largest, std::abs(expected[d]));
      difference = std::max(difference, std::abs(actual - expected[d]));
    }
  }
  fmt::print("{} chunks of {} tokens, K {}, V {}, A {}: {} numbers a chunk, difference {:.1e}\n",
             x.count / x.chunk_tokens, x.chunk_tokens, shape.key_dim, shape.value_dim,
             NameOf(shape.kind()), shape.a_numbers() + shape.b_numbers(), difference / largest);
  return difference <= 1e-10 * largest ? 0 : 1;
}
