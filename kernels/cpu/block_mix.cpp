#include "kernels/block_mix.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace mneme::kernels::cpu {
namespace {

// Numbers of the sums that one task weighs.
constexpr int64_t kSumNumbers = 4096;

// One token: the state is read and written in one pass.
template <typename Real>
void MixToken(const MixPieceArgs<Real>& args) {
  const int V = args.value_dim;
  std::fill_n(args.out, V, Real{0});
  for (int i = 0; i < args.key_dim; ++i) {
    const Real key = args.k[i], query = args.q[i], own = query * args.own_weight;
    Real* open = args.open + ptrdiff_t{i} * V;
    for (int d = 0; d < V; ++d) {
      open[d] += key * args.v[d];
      args.out[d] += own * open[d];
    }
    if (args.prefix == nullptr) continue;
    const Real* prefix = args.prefix + ptrdiff_t{i} * V;
    for (int d = 0; d < V; ++d) args.out[d] += query * prefix[d];
  }
}

// A step's rows on their way through the op.
class BlockReading {
 public:
  BlockReading(const BlockReadArgs& args, CpuStream& stream)
      : args_(args), step_(*args.step), shape_(args.shape), stream_(stream) {
    features_ = stream.shared(static_cast<size_t>(step_.rows) * 2 * Keys());
    frequency_.resize(static_cast<size_t>(shape_.key_dim / 2));
    RotaryFrequencies(shape_.key_dim, shape_.rope_theta, frequency_.data());
  }

  void Run() {
    stream_.pool().Run(step_.rows, [this](int64_t row, int thread) { Prepare(row, thread); });
    const bool decode = step_.form == RowForm::kDecode;
    const int64_t pieces = decode ? step_.rows : 1;
    stream_.pool().Run(pieces * shape_.heads, [&](int64_t task, int thread) {
      Mix(task / shape_.heads, decode ? 1 : step_.pieces[0].tokens,
          static_cast<int>(task % shape_.heads), thread);
    });
    stream_.pool().Run(step_.rows, [this](int64_t row, int) { Finish(row); });
  }

 private:
  size_t Keys() const { return static_cast<size_t>(shape_.key_width()); }
  bool IsPadding(int64_t row) const {
    return step_.form == RowForm::kPrefill && row >= step_.pieces[0].tokens;
  }
  int64_t PositionOf(int64_t row) const {
    return step_.form == RowForm::kDecode ? step_.position[row] : step_.pieces[0].position + row;
  }
  const float* Projected(int64_t row) const {
    return args_.projected + row * shape_.projected_width();
  }
  // [2, H, K]: queries, then keys.
  float* Features(int64_t row) const { return features_ + static_cast<size_t>(row) * 2 * Keys(); }
  float* Out(int64_t row) const { return args_.out + row * shape_.value_width(); }

  void Prepare(int64_t row, int thread) {
    if (IsPadding(row)) return;
    const int K = shape_.key_dim, pairs = K / 2;
    float* cosine = stream_.scratch(thread).data();
    float* sine = cosine + pairs;
    RotaryAngles(frequency_.data(), pairs, PositionOf(row), cosine, sine);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(K)));
    const float* from = Projected(row);
    float* features = Features(row);
    for (int head = 0; head < 2 * shape_.heads; ++head) {  // queries, then keys, side by side
      float* to = features + ptrdiff_t{head} * K;
      // Written so that NaN stays NaN.
      for (int d = 0; d < K; ++d) {
        const float x = from[ptrdiff_t{head} * K + d];
        to[d] = x < 0 ? 0.0f : x;
      }
      Rotate(cosine, sine, pairs, to);
      if (head < shape_.heads) ScaleRow(to, scale, K, to);
    }
  }

  void Mix(int64_t row, int count, int head, int thread) {
    const BlockState& state = args_.states[step_.form == RowForm::kDecode ? step_.session[row] : 0];
    const int K = shape_.key_dim, V = shape_.value_dim;
    const int64_t at = int64_t{head} * K * V;
    MixPieceArgs<float> piece;
    piece.count = count;
    piece.key_dim = K;
    piece.value_dim = V;
    piece.q = Features(row) + ptrdiff_t{head} * K;
    piece.k = piece.q + Keys();
    piece.key_stride = 2 * shape_.key_width();
    piece.v = Projected(row) + 2 * Keys() + ptrdiff_t{head} * V;
    piece.value_stride = shape_.projected_width();
    piece.prefix = state.prefix == nullptr ? nullptr : state.prefix + at;
    piece.own_weight = state.own_weight;
    piece.open = state.open + at;
    piece.out = Out(row) + ptrdiff_t{head} * V;
    piece.out_stride = shape_.value_width();
    piece.scratch = stream_.scratch(thread).data();
    MixPiece(piece);
  }

  void Finish(int64_t row) {
    if (IsPadding(row)) {
      std::fill_n(Out(row), shape_.value_width(), 0.0f);
      return;
    }
    const int V = shape_.value_dim;
    const float* gate = Projected(row) + 2 * Keys() + shape_.value_width();
    for (int head = 0; head < shape_.heads; ++head) {
      float* out = Out(row) + ptrdiff_t{head} * V;
      GateRow(out, InverseRms(out, V, args_.epsilon), args_.norm_weight, gate + ptrdiff_t{head} * V,
              V, out);
    }
  }

  const BlockReadArgs& args_;
  const StepTable& step_;
  const BlockShape& shape_;
  CpuStream& stream_;
  float* features_;  // [rows, 2, H, K]
  std::vector<double> frequency_;
};

}  // namespace

template <typename Real>
void MixPiece(const MixPieceArgs<Real>& args) {
  if (args.count == 1) {
    MixToken(args);
    return;
  }
  const int n = args.count, K = args.key_dim, V = args.value_dim;
  // scratch <- m q k^T where the query is not before the key, else 0
  PlainProductOf<Real> product = ProductOf<Real>(n, n, K, {args.q, args.key_stride},
                                                 {args.k, args.key_stride}, args.scratch, n);
  product.transpose_b = true;
  product.alpha = args.own_weight;
  Multiply(product);
  for (int i = 0; i < n; ++i)
    std::fill(args.scratch + ptrdiff_t{i} * n + i + 1, args.scratch + ptrdiff_t{i + 1} * n,
              Real{0});
  // out <- scratch v + m q C + q P, C as the tokens found it
  Multiply(n, V, n, {args.scratch, n}, {args.v, args.value_stride}, args.out, args.out_stride);
  product = ProductOf<Real>(n, V, K, {args.q, args.key_stride}, {args.open, V}, args.out,
                            args.out_stride);
  product.alpha = args.own_weight;
  product.beta = 1;
  Multiply(product);
  if (args.prefix != nullptr) {
    product = ProductOf<Real>(n, V, K, {args.q, args.key_stride}, {args.prefix, V}, args.out,
                              args.out_stride);
    product.beta = 1;
    Multiply(product);
  }
  AddTransposedTimes(K, V, n, {args.k, args.key_stride}, {args.v, args.value_stride}, 1, args.open,
                     V);
}

template <typename Real>
void MixSums(std::span<const Real* const> sums, std::span<const Real> weights, int64_t begin,
             int64_t end, Real* out) {
  std::fill(out + begin, out + end, Real{0});
  for (size_t j = 0; j < sums.size(); ++j) {
    const Real weight = weights[j];
    const Real* sum = sums[j];
    for (int64_t i = begin; i < end; ++i) out[i] += weight * sum[i];
  }
}

Status BlockRead(const BlockReadArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  if (args.step->rows > 0) BlockReading(args, AsCpu(stream)).Run();
  return {};
}

Status BlockPrefix(const BlockPrefixArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  const int64_t numbers = args.shape.sum_numbers();
  const int64_t tasks = (numbers + kSumNumbers - 1) / kSumNumbers;
  AsCpu(stream).pool().Run(tasks, [&](int64_t task, int) {
    const int64_t begin = task * kSumNumbers;
    MixSums(args.sums, args.weights, begin, std::min(begin + kSumNumbers, numbers), args.prefix);
  });
  return {};
}

template void MixPiece(const MixPieceArgs<float>&);
template void MixPiece(const MixPieceArgs<double>&);
template void MixSums(std::span<const float* const>, std::span<const float>, int64_t, int64_t,
                      float*);
template void MixSums(std::span<const double* const>, std::span<const double>, int64_t, int64_t,
                      double*);

}  // namespace mneme::kernels::cpu
