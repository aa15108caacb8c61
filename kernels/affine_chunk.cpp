#include "kernels/affine_chunk.h"

#include <string_view>

#include "kernels/args.h"
#include "kernels/gdn.h"

namespace mneme::kernels {
namespace {

template <typename Real>
Status CheckShape(std::string_view op, const AffineShape& shape,
                  const AffineWorkspace<Real>* workspace) {
  MNEME_TRY(RequirePointers(op, {{"workspace", workspace}}));
  MNEME_TRY(RequirePositive(op, {{"key dim", shape.key_dim}, {"value dim", shape.value_dim}}));
  if (shape.key_dim > kHeadDimMax || shape.value_dim > kHeadDimMax)
    return Fail(ErrorCode::kInvalidArgument, "{}: a head of {} x {}, at most {}", op, shape.key_dim,
                shape.value_dim, kHeadDimMax);
  if (shape.key_dim > workspace->key_dim || shape.value_dim > workspace->value_dim)
    return Fail(ErrorCode::kInvalidArgument, "{}: a head of {} x {}, the workspace is for {} x {}",
                op, shape.key_dim, shape.value_dim, workspace->key_dim, workspace->value_dim);
  if (shape.rule.decay == TransitionKind::kDense)
    return Fail(ErrorCode::kInvalidArgument, "{}: the decay of a token is {}", op,
                NameOf(shape.rule.decay));
  return {};
}

template <typename Real>
Status CheckChunk(std::string_view op, const AffineShape& shape, ConstAffineChunk<Real> chunk) {
  MNEME_TRY(RequirePointers(op, {{"b", chunk.b}}));
  if (shape.a_numbers() != 0) MNEME_TRY(RequirePointers(op, {{"a", chunk.a}}));
  return {};
}

template <typename Real>
Status CheckTokens(std::string_view op, const AffineShape& shape, const TokenRows<Real>& tokens) {
  MNEME_TRY(RequirePointers(op, {{"k", tokens.k}, {"v", tokens.v}}));
  if (shape.rule.decay != TransitionKind::kIdentity)
    MNEME_TRY(RequirePointers(op, {{"log_decay", tokens.log_decay}}));
  return {};
}

template <typename Real>
Status CheckGate(std::string_view op, Real gate) {
  if (!(gate >= 0 && gate <= 1))
    return Fail(ErrorCode::kInvalidArgument, "{}: a gate is {}", op, gate);
  return {};
}

}  // namespace

template <typename Real>
AffineWorkspace<Real>::AffineWorkspace(int key_dim_max, int value_dim_max)
    : key_dim(key_dim_max), value_dim(value_dim_max) {
  const size_t n = kPieceTokens, k = static_cast<size_t>(key_dim),
               v = static_cast<size_t>(value_dim);
  decay.resize((n + 1) * k);
  key.resize(n * k);
  reader.resize(2 * n * k);
  late_key.resize(n * k);
  late_reader.resize(2 * n * k);
  score.resize(2 * n * n);
  written.resize(n * (k + v));
  product.resize(n * (k + v));
  a.resize(k * k);
  a_product.resize(k * k);
  b.resize(k * v);
  b_product.resize(k * v);
}

template <typename Real>
Status Validate(const StepTokenArgs<Real>& args) {
  constexpr std::string_view kOp = "step token";
  MNEME_TRY(CheckShape(kOp, args.shape, args.workspace));
  MNEME_TRY(CheckTokens(kOp, args.shape, args.token));
  return RequirePointers(kOp, {{"b", args.chunk.b}});
}

template <typename Real>
Status Validate(const AppendPieceArgs<Real>& args) {
  constexpr std::string_view kOp = "append piece";
  MNEME_TRY(CheckShape(kOp, args.shape, args.workspace));
  MNEME_TRY(RequirePositive(kOp, {{"count", args.count}}));
  if (args.count > kPieceTokens)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} tokens, at most {}", kOp, args.count,
                kPieceTokens);
  MNEME_TRY(CheckTokens(kOp, args.shape, args.tokens));
  MNEME_TRY(CheckChunk(kOp, args.shape, ConstAffineChunk<Real>(args.chunk)));
  return RequirePointers(kOp,
                         {{"q", args.tokens.q}, {"carry", args.carry}, {"output", args.output}});
}

template <typename Real>
Status Validate(const MergeChunksArgs<Real>& args) {
  constexpr std::string_view kOp = "merge chunks";
  MNEME_TRY(CheckShape(kOp, args.shape, args.workspace));
  MNEME_TRY(CheckChunk(kOp, args.shape, args.older));
  MNEME_TRY(CheckChunk(kOp, args.shape, args.newer));
  return CheckChunk(kOp, args.shape, ConstAffineChunk<Real>(args.out));
}

template <typename Real>
Status Validate(const ReadChunkArgs<Real>& args) {
  constexpr std::string_view kOp = "read chunk";
  MNEME_TRY(CheckShape(kOp, args.shape, args.workspace));
  MNEME_TRY(RequirePositive(kOp, {{"count", args.count}}));
  MNEME_TRY(CheckChunk(kOp, args.shape, args.chunk));
  if (args.gate != nullptr) {
    for (int i = 0; i < args.count; ++i) MNEME_TRY(CheckGate(kOp, args.gate[i]));
  }
  return RequirePointers(kOp, {{"carry", args.carry}, {"output", args.output}});
}

template <typename Real>
Status Validate(const FoldChunkArgs<Real>& args) {
  constexpr std::string_view kOp = "fold chunk";
  MNEME_TRY(CheckShape(kOp, args.shape, args.workspace));
  MNEME_TRY(CheckChunk(kOp, args.shape, args.chunk));
  MNEME_TRY(CheckGate(kOp, args.gate));
  return RequirePointers(kOp, {{"state", args.state}});
}

template struct AffineWorkspace<float>;
template struct AffineWorkspace<double>;
template Status Validate(const StepTokenArgs<float>&);
template Status Validate(const StepTokenArgs<double>&);
template Status Validate(const AppendPieceArgs<float>&);
template Status Validate(const AppendPieceArgs<double>&);
template Status Validate(const MergeChunksArgs<float>&);
template Status Validate(const MergeChunksArgs<double>&);
template Status Validate(const ReadChunkArgs<float>&);
template Status Validate(const ReadChunkArgs<double>&);
template Status Validate(const FoldChunkArgs<float>&);
template Status Validate(const FoldChunkArgs<double>&);

}  // namespace mneme::kernels
