#include "kernels/gdn_chunk.h"

#include <algorithm>

#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/gdn_step.h"

namespace mneme::kernels::cpu {
namespace {

// Where the parts of the scratch lie. Rows [0, kPieceTokens) are the keys', the next the queries'.
struct PieceScratch {
  float* x;       // [2 kPieceTokens, K]    keys, queries, zero beyond the piece
  float* score;   // [2 kPieceTokens, T]    x . k_j
  float* weight;  // [2 kPieceTokens, T]    decayed scores of the rows before the piece
  float* before;  // [2 kPieceTokens, K+V]  what those rows give
  float* decay;   // [T]
  float* of_row;  // [kPieceTokens]
  float* ones;    // [T], reuses `weight` before that is filled
};

PieceScratch Divide(const GdnPieceArgs& args) {
  const ptrdiff_t rows = 2 * kPieceTokens;
  PieceScratch parts{};
  parts.x = args.scratch;
  parts.score = parts.x + rows * args.key_dim;
  parts.weight = parts.score + rows * args.chunk_tokens;
  parts.before = parts.weight + rows * args.chunk_tokens;
  parts.decay = parts.before + rows * (args.key_dim + args.value_dim);
  parts.of_row = parts.decay + args.chunk_tokens;
  parts.ones = parts.weight;
  return parts;
}

// Appends the keys to the open chunk and takes all products of keys and queries with its rows.
void Score(const GdnPieceArgs& args, const PieceScratch& parts) {
  const int K = args.key_dim, T = args.chunk_tokens;
  std::fill_n(parts.x, 2 * kPieceTokens * K, 0.0f);
  for (int i = 0; i < args.tokens; ++i) {
    const float* k = args.k + i * args.key_stride;
    std::copy_n(k, K, parts.x + static_cast<ptrdiff_t>(i) * K);
    std::copy_n(args.q + i * args.key_stride, K,
                parts.x + static_cast<ptrdiff_t>(kPieceTokens + i) * K);
    std::copy_n(k, K, args.open_k + static_cast<ptrdiff_t>(args.at + i) * K);
  }
  // Up to the end of the piece's cell, so that the product has one of T / kPieceTokens shapes.
  const int columns = (args.at / kPieceTokens + 1) * kPieceTokens;
  MultiplyByTransposed(2 * kPieceTokens, columns, K, {parts.x, K}, {args.open_k, K}, parts.score,
                       T);
}

// before[i] <- sum_{j < i0} e^{c_i - c_j} score_ij u_j for keys and queries. The decay is taken in
// two factors that are both at most 1: from j to the last row before the piece, and from there on.
void ReadRowsBefore(const GdnPieceArgs& args, const PieceScratch& parts, const float* c,
                    const float* u, int first) {
  const int T = args.chunk_tokens, width = args.key_dim + args.value_dim, at = args.at;
  std::fill_n(parts.ones, at, 1.0f);
  DecayWeights(c, at, c[at - 1], parts.ones, parts.decay);
  for (int row = 0; row < 2 * kPieceTokens; ++row) {
    const float* score = parts.score + static_cast<ptrdiff_t>(row) * T;
    float* weight = parts.weight + static_cast<ptrdiff_t>(row) * T;
    for (int j = 0; j < at; ++j) weight[j] = parts.decay[j] * score[j];
  }
  Multiply(2 * kPieceTokens, width - first, at, {parts.weight, T}, {u + first, width},
           parts.before + first, width);
  for (int i = 0; i < args.tokens; ++i) {
    const float decay = DecayOf(c[at + i] - c[at - 1]);
    for (const int row : {i, kPieceTokens + i}) {
      float* sum = parts.before + static_cast<ptrdiff_t>(row) * width + first;
      ScaleRow(sum, decay, width - first, sum);
    }
  }
}

// Row i of the open chunk from `sum` = e^{c_i} [k | 0] + what all earlier rows give.
void WriteRow(const GdnPieceArgs& args, bool transition, const float* sum, float beta,
              const float* v, float* row) {
  const int K = args.key_dim;
  for (int d = 0; d < K; ++d) row[d] = transition ? -beta * sum[d] : 0.0f;
  for (int d = 0; d < args.value_dim; ++d) row[K + d] = beta * (v[d] - sum[K + d]);
}

void RunHead(const GdnPieceArgs& args, const PieceScratch& parts, int head) {
  const int K = args.key_dim, V = args.value_dim, T = args.chunk_tokens, at = args.at;
  const int width = K + V;
  const int first = args.transition ? 0 : K;
  float* c = args.open_c + static_cast<ptrdiff_t>(head) * T;
  float* u = args.open_u + static_cast<ptrdiff_t>(head) * T * width;
  float* u_piece = u + static_cast<ptrdiff_t>(at) * width;
  for (int i = 0; i < args.tokens; ++i) {
    c[at + i] = (at + i == 0 ? 0.0f : c[at + i - 1]) + args.log_decay[i * args.head_stride + head];
  }
  if (at == 0) {
    std::fill_n(parts.before, 2 * kPieceTokens * width, 0.0f);
  } else {
    ReadRowsBefore(args, parts, c, u, first);
  }

  for (int i = 0; i < args.tokens; ++i) {
    const float decay = DecayOf(c[at + i]);
    const bool transition = args.transition && c[at + i] >= kDecayDrop;
    const auto read = [&](int row, int rows) {
      float* sum = parts.before + static_cast<ptrdiff_t>(row) * width;
      if (args.transition) {
        const float* x = parts.x + static_cast<ptrdiff_t>(row) * K;
        for (int d = 0; d < K; ++d) sum[d] += decay * x[d];
      }
      DecayWeights(c + at, rows, c[at + i], parts.score + static_cast<ptrdiff_t>(row) * T + at,
                   parts.of_row);
      AddRows(u_piece + first, width, rows, width - first, parts.of_row, sum + first);
      return sum;
    };
    WriteRow(args, transition, read(i, i), args.write_strength[i * args.head_stride + head],
             args.v + i * args.value_stride + static_cast<ptrdiff_t>(head) * V,
             u_piece + static_cast<ptrdiff_t>(i) * width);
    const float* sum = read(kPieceTokens + i, i + 1);
    const ptrdiff_t out = static_cast<ptrdiff_t>(head) * kPieceTokens + i;
    for (int d = 0; d < K; ++d) args.carry[out * K + d] = transition ? sum[d] : 0.0f;
    std::copy_n(sum + K, V, args.output + out * V);
  }
}

}  // namespace

void GdnPiece(const GdnPieceArgs& args) {
  const PieceScratch parts = Divide(args);
  Score(args, parts);
  for (int head = 0; head < args.heads; ++head) RunHead(args, parts, head);
}

void ChunkTransition(const TransitionArgs& args) {
  const int K = args.key_dim, T = args.tokens, width = args.key_dim + args.value_dim;
  const float last = args.c[T - 1];
  for (int t = 0; t < T; ++t) {
    const ptrdiff_t row = static_cast<ptrdiff_t>(t) * K;
    ScaleRow(args.k + row, DecayOf(last - args.c[t]), K, args.scratch + row);
  }
  AddTransposedTimes(K, width, T, {args.scratch, K}, {args.u, width}, 0.0f, args.out, width);
  const float decay = DecayOf(last);
  for (int d = 0; d < K; ++d) args.out[static_cast<ptrdiff_t>(d) * width + d] += decay;
}

}  // namespace mneme::kernels::cpu
