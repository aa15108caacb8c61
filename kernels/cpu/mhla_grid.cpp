#include "kernels/mhla_grid.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/products.h"
#include "kernels/shape.h"

namespace mneme::kernels::cpu {
namespace {

// Numbers of a block's sum that one task mixes: enough for a product, little enough to share out.
constexpr int64_t kMixColumns = 512;

// Some heads of the grids, from their tokens to their outputs.
template <typename Real>
class HeadRun {
 public:
  // Heads [head, head + count) of all grids' heads.
  HeadRun(const MhlaGridArgs<Real>& args, ThreadPool& pool, int64_t head, int count)
      : args_(args),
        workspace_(*args.workspace),
        pool_(pool),
        head_(head),
        count_(count),
        L_(static_cast<int>(args.shape.grid.blocks())),
        K_(args.shape.key_dim),
        V_(args.shape.value_dim) {}

  void Run() {
    pool_.Run(int64_t{count_} * L_, [this](int64_t task, int thread) {
      SumBlock(static_cast<int>(task / L_), static_cast<int>(task % L_), thread);
    });
    const int64_t pieces = (Sums() + kMixColumns - 1) / kMixColumns;
    pool_.Run(count_ * pieces, [&](int64_t task, int) {
      const int64_t column = task % pieces * kMixColumns;
      Mix(task / pieces * L_ * Sums() + column, Sums(), std::min(kMixColumns, Sums() - column),
          workspace_.sum, workspace_.mixed);
    });
    pool_.Run(count_, [this](int64_t head, int) { Normalize(static_cast<int>(head)); });
    pool_.Run(int64_t{count_} * L_, [this](int64_t task, int thread) {
      ReadBlock(static_cast<int>(task / L_), static_cast<int>(task % L_), thread);
    });
  }

 private:
  int64_t Sums() const { return int64_t{K_} * V_; }
  int64_t Tokens() const { return args_.shape.grid.tokens(); }
  int First(int block) const { return workspace_.first[static_cast<size_t>(block)]; }
  bool Normalizes() const { return args_.normalizer != GridNormalizer::kNone; }

  // The row of a token, of `width` numbers, of the head that is `head` of this run.
  int64_t RowAt(int head, int place, int width) const {
    const int64_t all = head_ + head, heads = args_.shape.heads;
    const int64_t token = workspace_.token[static_cast<size_t>(place)];
    return ((all / heads * Tokens() + token) * heads + all % heads) * width;
  }
  Real* Rows(int thread) {
    return workspace_.rows.data() + ptrdiff_t{thread} * kPieceTokens * (K_ + V_);
  }
  Real* SumOf(std::vector<Real>& sums, int head, int block) {
    return sums.data() + (int64_t{head} * L_ + block) * Sums();
  }
  Real* KeySumOf(std::vector<Real>& sums, int head, int block) {
    return sums.data() + (ptrdiff_t{head} * L_ + block) * K_;
  }
  Real* NormOf(int head) { return workspace_.norm.data() + head * Tokens(); }

  void SumBlock(int head, int block, int thread) {
    Real* sum = SumOf(workspace_.sum, head, block);
    Real* keys = Rows(thread);
    Real* values = keys + ptrdiff_t{kPieceTokens} * K_;
    for (int begin = First(block); begin < First(block + 1); begin += kPieceTokens) {
      const int n = std::min(kPieceTokens, First(block + 1) - begin);
      for (int i = 0; i < n; ++i) {
        std::copy_n(args_.k + RowAt(head, begin + i, K_), K_, keys + ptrdiff_t{i} * K_);
        std::copy_n(args_.v + RowAt(head, begin + i, V_), V_, values + ptrdiff_t{i} * V_);
      }
      AddTransposedTimes(K_, V_, n, {keys, K_}, {values, V_}, begin == First(block) ? 0 : 1, sum,
                         V_);
    }
    if (!Normalizes()) return;
    Real* key_sum = KeySumOf(workspace_.key_sum, head, block);
    const Real* plain = args_.plain_k == nullptr ? args_.k : args_.plain_k;
    std::fill_n(key_sum, K_, Real{0});
    for (int place = First(block); place < First(block + 1); ++place) {
      const Real* row = plain + RowAt(head, place, K_);
      for (int d = 0; d < K_; ++d) key_sum[d] += row[d];
    }
  }

  // to <- m from, for `columns` numbers of each block's `stride`, from `at` on.
  void Mix(int64_t at, int64_t stride, int64_t columns, const std::vector<Real>& from,
           std::vector<Real>& to) {
    Multiply(L_, static_cast<int>(columns), L_, {args_.mixing, L_}, {from.data() + at, stride},
             to.data() + at, stride);
  }

  void Normalize(int head) {
    if (!Normalizes()) return;
    const Real* plain = args_.plain_q == nullptr ? args_.q : args_.plain_q;
    const bool of_place = args_.normalizer == GridNormalizer::kOfPlace;
    if (!of_place)
      Mix(int64_t{head} * L_ * K_, K_, K_, workspace_.key_sum, workspace_.mixed_key_sum);
    Real* norm = NormOf(head);
    for (int block = 0; block < L_; ++block) {
      const Real* key_sum =
          KeySumOf(of_place ? workspace_.key_sum : workspace_.mixed_key_sum, head, block);
      for (int place = First(block); place < First(block + 1); ++place) {
        const Real* row = plain + RowAt(head, place, K_);
        Real dot = 0;
        for (int d = 0; d < K_; ++d) dot += row[d] * key_sum[d];
        norm[place] = dot;
      }
    }
    if (of_place) MixPlaces(norm);
    for (int64_t place = 0; place < Tokens(); ++place) norm[place] += args_.epsilon;
  }

  // norm [L, W] <- m norm, place by place: blocks are of one size W.
  void MixPlaces(Real* norm) {
    const int width = First(1);
    std::vector<Real> mixed(static_cast<size_t>(L_));
    for (int place = 0; place < width; ++place) {
      for (int i = 0; i < L_; ++i) {
        Real sum = 0;
        for (int j = 0; j < L_; ++j)
          sum += args_.mixing[ptrdiff_t{i} * L_ + j] * norm[ptrdiff_t{j} * width + place];
        mixed[static_cast<size_t>(i)] = sum;
      }
      for (int i = 0; i < L_; ++i)
        norm[ptrdiff_t{i} * width + place] = mixed[static_cast<size_t>(i)];
    }
  }

  void ReadBlock(int head, int block, int thread) {
    const Real* mixed = SumOf(workspace_.mixed, head, block);
    Real* queries = Rows(thread);
    Real* outputs = queries + ptrdiff_t{kPieceTokens} * K_;
    for (int begin = First(block); begin < First(block + 1); begin += kPieceTokens) {
      const int n = std::min(kPieceTokens, First(block + 1) - begin);
      for (int i = 0; i < n; ++i)
        std::copy_n(args_.q + RowAt(head, begin + i, K_), K_, queries + ptrdiff_t{i} * K_);
      Multiply(n, V_, K_, {queries, K_}, {mixed, V_}, outputs, V_);
      for (int i = 0; i < n; ++i) {
        const Real* from = outputs + ptrdiff_t{i} * V_;
        Real* out = args_.out + RowAt(head, begin + i, V_);
        const Real norm = Normalizes() ? NormOf(head)[begin + i] : Real{1};
        for (int d = 0; d < V_; ++d) out[d] = from[d] / norm;
      }
    }
  }

  const MhlaGridArgs<Real>& args_;
  MhlaGridWorkspace<Real>& workspace_;
  ThreadPool& pool_;
  const int64_t head_;
  const int count_;
  const int L_, K_, V_;
};

}  // namespace

template <typename Real>
Status MhlaGrid(const MhlaGridArgs<Real>& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  ThreadPool& pool = AsCpu(stream).pool();
  const auto row_numbers =
      static_cast<size_t>(args.shape.key_dim) + static_cast<size_t>(args.shape.value_dim);
  args.workspace->rows.resize(static_cast<size_t>(pool.threads()) * kPieceTokens * row_numbers);
  const int64_t heads = int64_t{args.grids} * args.shape.heads;
  for (int64_t head = 0; head < heads; head += args.workspace->heads_at_once) {
    const auto count =
        static_cast<int>(std::min<int64_t>(args.workspace->heads_at_once, heads - head));
    HeadRun<Real>(args, pool, head, count).Run();
  }
  return {};
}

template Status MhlaGrid(const MhlaGridArgs<float>&, Stream&);
template Status MhlaGrid(const MhlaGridArgs<double>&, Stream&);

}  // namespace mneme::kernels::cpu
