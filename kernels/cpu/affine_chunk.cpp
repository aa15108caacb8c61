#include "kernels/affine_chunk.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/products.h"

namespace mneme::kernels::cpu {
namespace {

// e^x for x <= 0; 0 where it would be denormal, which processors are slow with.
template <typename Real>
Real DecayOf(double x) {
  static const double floor = std::log(static_cast<double>(std::numeric_limits<Real>::min()));
  return x < floor ? Real{0} : std::exp(static_cast<Real>(x));
}

// Written so that NaN stays NaN.
double HeldDecay(double g) { return g < kLogDecayMin ? kLogDecayMin : g; }

int64_t Stride(int64_t given, int64_t packed) { return given == 0 ? packed : given; }

// Log decays a token brings: none, one, or one a key channel.
int DecayNumbers(const AffineShape& shape) {
  return static_cast<int>(TransitionNumbers(shape.rule.decay, shape.key_dim));
}

// matrix <- A matrix, where A is not dense.
template <typename Real>
void ScaleByTransition(TransitionKind kind, const Real* a, int rows, int width, Real* matrix) {
  if (kind == TransitionKind::kIdentity) return;
  for (int i = 0; i < rows; ++i) {
    const Real factor = kind == TransitionKind::kScalar ? a[0] : a[i];
    for (int d = 0; d < width; ++d) matrix[static_cast<ptrdiff_t>(i) * width + d] *= factor;
  }
}

// x <- A_t x + B_t in the token's own words; v is null for a column block of A.
template <typename Real>
void StepColumns(const StepTokenArgs<Real>& args, const Real* decay, const Real* v, int width,
                 Real* x) {
  const TokenRows<Real>& token = args.token;
  const int K = args.shape.key_dim;
  ScaleByTransition(args.shape.rule.decay, decay, K, width, x);
  Real* write = args.workspace->product.data();
  for (int d = 0; d < width; ++d) write[d] = v == nullptr ? Real{0} : v[d];
  if (args.shape.rule.erases) {
    const Real* erase = token.erase == nullptr ? token.k : token.erase;
    for (int i = 0; i < K; ++i) {
      for (int d = 0; d < width; ++d)
        write[d] -= erase[i] * x[static_cast<ptrdiff_t>(i) * width + d];
    }
  }
  const Real beta = token.write_strength == nullptr ? Real{1} : token.write_strength[0];
  for (int d = 0; d < width; ++d) write[d] *= beta;
  for (int i = 0; i < K; ++i) {
    for (int d = 0; d < width; ++d)
      x[static_cast<ptrdiff_t>(i) * width + d] += token.k[i] * write[d];
  }
}

// The older chunk's numbers under the newer's. `out` may be either: b first, as it needs a.
template <typename Real>
void Merge(const AffineShape& shape, ConstAffineChunk<Real> older, ConstAffineChunk<Real> newer,
           AffineChunk<Real> out, AffineWorkspace<Real>& workspace) {
  const int K = shape.key_dim, V = shape.value_dim;
  const int64_t b_numbers = shape.b_numbers(), a_numbers = shape.a_numbers();
  Real* b = workspace.b_product.data();
  if (shape.kind() == TransitionKind::kDense) {
    Multiply(K, V, K, {newer.a, K}, {older.b, V}, b, V);
    Multiply(K, K, K, {newer.a, K}, {older.a, K}, workspace.a_product.data(), K);
  } else {
    std::copy_n(older.b, b_numbers, b);
    ScaleByTransition(shape.kind(), newer.a, K, V, b);
    for (int64_t i = 0; i < a_numbers; ++i)
      workspace.a_product[static_cast<size_t>(i)] = newer.a[i] * older.a[i];
  }
  for (int64_t i = 0; i < b_numbers; ++i) out.b[i] = b[i] + newer.b[i];
  std::copy_n(workspace.a_product.data(), a_numbers, out.a);
}

// Rows of carry that a chunk turns: those whose gate is not 0, side by side.
template <typename Real>
void ReadRows(const ReadChunkArgs<Real>& args, const int* entry, int count) {
  AffineWorkspace<Real>& workspace = *args.workspace;
  const AffineShape& shape = args.shape;
  const int K = shape.key_dim, V = shape.value_dim;
  Real* rows = workspace.reader.data();
  Real* product = workspace.product.data();
  const auto gate_of = [&](int i) { return args.gate == nullptr ? Real{1} : args.gate[entry[i]]; };
  const auto carry_of = [&](int i) { return args.carry + static_cast<ptrdiff_t>(entry[i]) * K; };
  for (int i = 0; i < count; ++i) std::copy_n(carry_of(i), K, rows + static_cast<ptrdiff_t>(i) * K);
  Multiply(count, V, K, {rows, K}, {args.chunk.b, V}, product, V);
  for (int i = 0; i < count; ++i) {
    Real* output = args.output + static_cast<ptrdiff_t>(entry[i]) * V;
    for (int d = 0; d < V; ++d)
      output[d] += gate_of(i) * product[static_cast<ptrdiff_t>(i) * V + d];
  }
  if (shape.kind() == TransitionKind::kIdentity) return;
  if (shape.kind() == TransitionKind::kDense)
    Multiply(count, K, K, {rows, K}, {args.chunk.a, K}, product, K);
  for (int i = 0; i < count; ++i) {
    Real* carry = carry_of(i);
    Real* turned = product + static_cast<ptrdiff_t>(i) * K;  // carry A
    if (shape.kind() != TransitionKind::kDense) {
      const bool scalar = shape.kind() == TransitionKind::kScalar;
      for (int d = 0; d < K; ++d) turned[d] = carry[d] * args.chunk.a[scalar ? 0 : d];
    }
    // In this form because w = 1 must leave nothing of the old carry.
    const Real gate = gate_of(i), keep = 1 - gate;
    for (int d = 0; d < K; ++d) carry[d] = keep * carry[d] + gate * turned[d];
  }
}

template <typename Real>
void Read(const ReadChunkArgs<Real>& args) {
  int entry[kPieceTokens];
  int count = 0;
  for (int i = 0; i < args.count; ++i) {
    if (args.gate == nullptr || args.gate[i] != 0) entry[count++] = i;
    if (count == kPieceTokens || (count != 0 && i + 1 == args.count)) {
      ReadRows(args, entry, count);
      count = 0;
    }
  }
}

// One piece from A = I, B = 0, in the block form of models.md 5.1:
//
//   L_ij = sum_d p_id k_jd e^{G_id - G_jd}  j < i        P_ij = the same with q_i for p_i, j <= i
//   u_i  = beta_i ([-p_i o e^{G_i} | v_i] - sum_{j<i} L_ij u_j)
//   [carry | output] = [q o e^G | 0] + P u
//   [A | B] = [Diag(e^{G_n}) | 0] + (K o e^{G_n - G})^T u
//
// Only differences of G that are not positive are exponentiated.
template <typename Real>
class Piece {
 public:
  explicit Piece(const AppendPieceArgs<Real>& args)
      : args_(args),
        workspace_(*args.workspace),
        n_(args.count),
        K_(args.shape.key_dim),
        V_(args.shape.value_dim),
        decays_(DecayNumbers(args.shape)),
        erases_(args.shape.rule.erases),
        first_(erases_ ? 0 : K_) {}

  // Leaves (A, B) in the workspace's a and b, and the rows in carry and output.
  void Run() {
    Gather();
    std::fill_n(workspace_.score.data(), 2 * kPieceTokens * kPieceTokens, Real{0});
    if (decays_ > 1) {
      ScoreRange(0, n_);
    } else {
      ScoreTogether();
    }
    Write();
    ReadOut();
    Close();
  }

 private:
  // G of token i, or of before the piece with i = -1, in channel d.
  double SumAt(int i, int d) const {
    if (decays_ == 0) return 0.0;
    return workspace_.decay[static_cast<size_t>((i + 1) * decays_ + (decays_ == 1 ? 0 : d))];
  }
  Real DecayBetween(int later, int earlier, int d) const {
    if (decays_ == 0) return Real{1};
    return DecayOf<Real>(SumAt(later, d) - SumAt(earlier, d));
  }
  // out <- x o e^{G_later - G_earlier}
  void DecayRow(const Real* x, int later, int earlier, Real* out) const {
    if (decays_ > 1) {
      for (int d = 0; d < K_; ++d) out[d] = x[d] * DecayBetween(later, earlier, d);
    } else {
      const Real factor = DecayBetween(later, earlier, 0);
      for (int d = 0; d < K_; ++d) out[d] = x[d] * factor;
    }
  }
  const Real* KeyRow(int i) const { return &workspace_.key[static_cast<size_t>(i * K_)]; }
  const Real* EraseRow(int i) const { return &workspace_.reader[static_cast<size_t>(i * K_)]; }
  const Real* QueryRow(int i) const { return EraseRow(kPieceTokens + i); }
  // Row i of L, or of P.
  Real* EraseScore(int i) { return &workspace_.score[static_cast<size_t>(i * kPieceTokens)]; }
  Real* QueryScore(int i) { return EraseScore(kPieceTokens + i); }
  Real* WrittenRow(int i) { return &workspace_.written[static_cast<size_t>(i * (K_ + V_))]; }

  void Gather() {
    const TokenRows<Real>& tokens = args_.tokens;
    const int64_t key_stride = Stride(tokens.key_stride, K_);
    const int64_t decay_stride = Stride(tokens.decay_stride, decays_);
    const Real* erase = tokens.erase == nullptr ? tokens.k : tokens.erase;
    std::fill_n(workspace_.decay.data(), decays_, 0.0);
    for (int i = 0; i < n_; ++i) {
      std::copy_n(tokens.k + i * key_stride, K_, &workspace_.key[static_cast<size_t>(i * K_)]);
      std::copy_n(erase + i * key_stride, K_, &workspace_.reader[static_cast<size_t>(i * K_)]);
      std::copy_n(tokens.q + i * key_stride, K_,
                  &workspace_.reader[static_cast<size_t>((kPieceTokens + i) * K_)]);
      for (int d = 0; d < decays_; ++d) {
        const double g = static_cast<double>(tokens.log_decay[i * decay_stride + d]);
        workspace_.decay[static_cast<size_t>((i + 1) * decays_ + d)] =
            SumAt(i - 1, d) + HeldDecay(g);
      }
    }
  }

  // One decay for all channels leaves the sum over them.
  void ScoreTogether() {
    for (const int part : {0, 1}) {
      if (part == 0 && !erases_) continue;
      Real* score = part == 0 ? EraseScore(0) : QueryScore(0);
      const Real* reader = part == 0 ? EraseRow(0) : QueryRow(0);
      MultiplyByTransposed(n_, n_, K_, {reader, K_}, {KeyRow(0), K_}, score, kPieceTokens);
      for (int i = 0; i < n_; ++i) {
        Real* row = score + static_cast<ptrdiff_t>(i) * kPieceTokens;
        for (int j = 0; j <= i; ++j) row[j] *= DecayBetween(i, j, 0);
        std::fill(row + i + 1, row + n_, Real{0});
      }
    }
  }

  // A decay for each channel: the later half of the rows reads the earlier half in one product,
  // with e^{G_i - G_j} in two factors that are both at most 1, from j to the last row of the
  // earlier half and from there on; then each half alone. n log n exponentials a channel instead of
  // n^2 / 2.
  void ScoreRange(int begin, int end) {
    if (end - begin == 1) {
      Real sum = 0;
      for (int d = 0; d < K_; ++d) sum += QueryRow(begin)[d] * KeyRow(begin)[d];
      QueryScore(begin)[begin] = sum;
      return;
    }
    const int middle = begin + (end - begin) / 2;
    const int earlier = middle - begin, later = end - middle;
    Real* late_key = workspace_.late_key.data();
    Real* late_reader = workspace_.late_reader.data();
    for (int j = 0; j < earlier; ++j)
      DecayRow(KeyRow(begin + j), middle - 1, begin + j, late_key + static_cast<ptrdiff_t>(j) * K_);
    for (const int part : {0, 1}) {
      if (part == 0 && !erases_) continue;
      for (int i = 0; i < later; ++i) {
        const Real* reader = part == 0 ? EraseRow(middle + i) : QueryRow(middle + i);
        DecayRow(reader, middle + i, middle - 1, late_reader + static_cast<ptrdiff_t>(i) * K_);
      }
      Real* score = (part == 0 ? EraseScore(middle) : QueryScore(middle)) + begin;
      MultiplyByTransposed(later, earlier, K_, {late_reader, K_}, {late_key, K_}, score,
                           kPieceTokens);
    }
    ScoreRange(begin, middle);
    ScoreRange(middle, end);
  }

  void Write() {
    const TokenRows<Real>& tokens = args_.tokens;
    for (int i = 0; i < n_; ++i) {
      Real* row = WrittenRow(i);
      const Real beta = tokens.write_strength == nullptr
                            ? Real{1}
                            : tokens.write_strength[i * Stride(tokens.strength_stride, 1)];
      const Real* v = tokens.v + i * Stride(tokens.value_stride, V_);
      std::copy_n(v, V_, row + K_);
      if (erases_) {
        DecayRow(EraseRow(i), i, -1, row);
        for (int d = 0; d < K_; ++d) row[d] = -row[d];
        for (int j = 0; j < i; ++j) {
          const Real score = EraseScore(i)[j];
          const Real* earlier = WrittenRow(j);
          for (int d = 0; d < K_ + V_; ++d) row[d] -= score * earlier[d];
        }
      }
      for (int d = first_; d < K_ + V_; ++d) row[d] *= beta;
    }
  }

  void ReadOut() {
    const int width = K_ + V_;
    Real* product = workspace_.product.data();
    Multiply(n_, width - first_, n_, {QueryScore(0), kPieceTokens}, {WrittenRow(0) + first_, width},
             product + first_, width);
    for (int i = 0; i < n_; ++i) {
      Real* carry = args_.carry + static_cast<ptrdiff_t>(i) * K_;
      const Real* row = product + static_cast<ptrdiff_t>(i) * width;
      DecayRow(QueryRow(i), i, -1, carry);
      for (int d = first_; d < K_; ++d) carry[d] += row[d];
      std::copy_n(row + K_, V_, args_.output + static_cast<ptrdiff_t>(i) * V_);
    }
  }

  void Close() {
    const int width = K_ + V_;
    Real* late_key = workspace_.late_key.data();
    Real* a = workspace_.a.data();
    for (int i = 0; i < n_; ++i)
      DecayRow(KeyRow(i), n_ - 1, i, late_key + static_cast<ptrdiff_t>(i) * K_);
    AddTransposedTimes(K_, V_, n_, {late_key, K_}, {WrittenRow(0) + K_, width}, 0,
                       workspace_.b.data(), V_);
    if (!erases_) {
      for (int d = 0; d < decays_; ++d) a[d] = DecayBetween(n_ - 1, -1, d);
      return;
    }
    AddTransposedTimes(K_, K_, n_, {late_key, K_}, {WrittenRow(0), width}, 0, a, K_);
    for (int d = 0; d < K_; ++d)
      a[static_cast<ptrdiff_t>(d) * K_ + d] += DecayBetween(n_ - 1, -1, d);
  }

  const AppendPieceArgs<Real>& args_;
  AffineWorkspace<Real>& workspace_;
  const int n_, K_, V_;
  const int decays_;
  const bool erases_;
  const int first_;  // column of `written` that the first number is in: 0, or K without uA
};

}  // namespace

template <typename Real>
void StartChunk(const AffineShape& shape, AffineChunk<Real> chunk) {
  const bool dense = shape.kind() == TransitionKind::kDense;
  std::fill_n(chunk.a, shape.a_numbers(), dense ? Real{0} : Real{1});
  if (dense) {
    for (int64_t d = 0; d < shape.key_dim; ++d) chunk.a[d * shape.key_dim + d] = 1;
  }
  std::fill_n(chunk.b, shape.b_numbers(), Real{0});
}

template <typename Real>
Status StepToken(const StepTokenArgs<Real>& args) {
  MNEME_TRY(Validate(args));
  const AffineShape& shape = args.shape;
  Real* decay = args.workspace->late_key.data();
  const int decays = DecayNumbers(shape);
  for (int d = 0; d < decays; ++d)
    decay[d] = DecayOf<Real>(HeldDecay(static_cast<double>(args.token.log_decay[d])));
  StepColumns(args, decay, args.token.v, shape.value_dim, args.chunk.b);
  if (args.chunk.a == nullptr) return {};
  if (shape.kind() == TransitionKind::kDense) {
    StepColumns(args, decay, static_cast<const Real*>(nullptr), shape.key_dim, args.chunk.a);
  } else {
    for (int d = 0; d < decays; ++d) args.chunk.a[d] *= decay[d];
  }
  return {};
}

template <typename Real>
Status AppendPiece(const AppendPieceArgs<Real>& args) {
  MNEME_TRY(Validate(args));
  AffineWorkspace<Real>& workspace = *args.workspace;
  Piece<Real>(args).Run();
  Read(ReadChunkArgs<Real>{.shape = args.shape,
                           .chunk = args.chunk,
                           .count = args.count,
                           .carry = args.carry,
                           .output = args.output,
                           .workspace = args.workspace});
  Merge<Real>(args.shape, args.chunk, {workspace.a.data(), workspace.b.data()}, args.chunk,
              workspace);
  return {};
}

template <typename Real>
Status MergeChunks(const MergeChunksArgs<Real>& args) {
  MNEME_TRY(Validate(args));
  Merge(args.shape, args.older, args.newer, args.out, *args.workspace);
  return {};
}

template <typename Real>
Status ReadChunk(const ReadChunkArgs<Real>& args) {
  MNEME_TRY(Validate(args));
  Read(args);
  return {};
}

template <typename Real>
Status FoldChunk(const FoldChunkArgs<Real>& args) {
  MNEME_TRY(Validate(args));
  if (args.gate == 0) return {};
  const AffineShape& shape = args.shape;
  const int K = shape.key_dim, V = shape.value_dim;
  Real* next = args.workspace->b_product.data();
  if (shape.kind() == TransitionKind::kDense) {
    Multiply(K, V, K, {args.chunk.a, K}, {args.state, V}, next, V);
  } else {
    std::copy_n(args.state, shape.b_numbers(), next);
    ScaleByTransition(shape.kind(), args.chunk.a, K, V, next);
  }
  const Real keep = 1 - args.gate;
  for (int64_t i = 0; i < shape.b_numbers(); ++i)
    args.state[i] = keep * args.state[i] + args.gate * (next[i] + args.chunk.b[i]);
  return {};
}

template void StartChunk(const AffineShape&, AffineChunk<float>);
template void StartChunk(const AffineShape&, AffineChunk<double>);
template Status StepToken(const StepTokenArgs<float>&);
template Status StepToken(const StepTokenArgs<double>&);
template Status AppendPiece(const AppendPieceArgs<float>&);
template Status AppendPiece(const AppendPieceArgs<double>&);
template Status MergeChunks(const MergeChunksArgs<float>&);
template Status MergeChunks(const MergeChunksArgs<double>&);
template Status ReadChunk(const ReadChunkArgs<float>&);
template Status ReadChunk(const ReadChunkArgs<double>&);
template Status FoldChunk(const FoldChunkArgs<float>&);
template Status FoldChunk(const FoldChunkArgs<double>&);

}  // namespace mneme::kernels::cpu
