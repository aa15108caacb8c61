#include "kernels/block_mix.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernels/args.h"
#include "kernels/gdn.h"

namespace mneme::kernels {
namespace {

Status CheckShape(std::string_view op, const BlockShape& shape) {
  MNEME_TRY(RequirePositive(
      op, {{"heads", shape.heads}, {"key dim", shape.key_dim}, {"value dim", shape.value_dim}}));
  if (shape.key_dim > kHeadDimMax || shape.value_dim > kHeadDimMax || shape.key_dim % 2 != 0)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: a head of {} x {}, expected at most {} and an even key dim", op, shape.key_dim,
                shape.value_dim, kHeadDimMax);
  return {};
}

// A prefill step of this op is one piece inside one block.
Status CheckRows(std::string_view op, const StepTable& step) {
  if (step.form == RowForm::kDecode) {
    MNEME_TRY(RequirePointers(op, {{"position", step.position}, {"session", step.session}}));
    for (int32_t row = 0; row < step.rows; ++row) {
      if (step.session[row] < 0 || step.session[row] >= step.session_count ||
          step.position[row] < 0)
        return Fail(ErrorCode::kInvalidArgument, "{}: row {}: session {} of {}, position {}", op,
                    row, step.session[row], step.session_count, step.position[row]);
    }
    return {};
  }
  if (step.piece_count != 1 || step.session_count != 1)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} pieces of {} sessions, expected one of one",
                op, step.piece_count, step.session_count);
  MNEME_TRY(RequirePointers(op, {{"pieces", step.pieces}}));
  const Piece& piece = step.pieces[0];
  if (piece.row != 0 || piece.tokens < 1 || piece.position < 0 ||
      piece.position % kMixBlockTokens + piece.tokens > kMixBlockTokens)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: a piece of {} tokens from position {}, expected tokens of one block of {}", op,
                piece.tokens, piece.position, kMixBlockTokens);
  return {};
}

}  // namespace

Result<CausalMixing> CausalMixing::Make(std::span<const float> stored, int blocks) {
  if (blocks < 1 || stored.size() != static_cast<size_t>(blocks) * static_cast<size_t>(blocks))
    return Fail(ErrorCode::kInvalidArgument, "mixing matrix: {} numbers for {} x {} blocks",
                stored.size(), blocks, blocks);
  CausalMixing mixing;
  mixing.blocks_ = blocks;
  mixing.weights_.assign(stored.size(), 0.0f);
  for (int i = 0; i < blocks; ++i) {
    for (int j = 0; j <= i; ++j) {
      const size_t at =
          static_cast<size_t>(i) * static_cast<size_t>(blocks) + static_cast<size_t>(j);
      if (std::isnan(stored[at]))
        return Fail(ErrorCode::kInvalidArgument, "mixing matrix: [{}, {}] is {}", i, j, stored[at]);
      mixing.weights_[at] = std::clamp(stored[at], kMixingWeightMin, 1.0f);
    }
  }
  return mixing;
}

float CausalMixing::Weight(int64_t query, int64_t key) const {
  const int64_t row = std::min<int64_t>(query, blocks_ - 1), distance = query - key;
  return distance > row ? 0.0f : weights_[static_cast<size_t>(row * blocks_ + row - distance)];
}

Status Validate(const BlockReadArgs& args) {
  constexpr std::string_view kOp = "block read";
  MNEME_TRY(RequireStep(kOp, args.step));
  MNEME_TRY(CheckShape(kOp, args.shape));
  if (!(args.shape.rope_theta >= 1))
    return Fail(ErrorCode::kInvalidArgument, "{}: rope theta is {}", kOp, args.shape.rope_theta);
  if (args.step->rows == 0) return {};
  MNEME_TRY(CheckRows(kOp, *args.step));
  MNEME_TRY(RequirePointers(kOp, {{"projected", args.projected},
                                  {"states", args.states},
                                  {"norm_weight", args.norm_weight},
                                  {"out", args.out}}));
  for (int32_t i = 0; i < args.step->session_count; ++i)
    MNEME_TRY(RequirePointers(kOp, {{"open", args.states[i].open}}));
  return {};
}

Status Validate(const BlockPrefixArgs& args) {
  constexpr std::string_view kOp = "block prefix";
  MNEME_TRY(CheckShape(kOp, args.shape));
  if (args.sums.size() != args.weights.size())
    return Fail(ErrorCode::kInvalidArgument, "{}: {} sums and {} weights", kOp, args.sums.size(),
                args.weights.size());
  for (const float* sum : args.sums) MNEME_TRY(RequirePointers(kOp, {{"a sum", sum}}));
  return RequirePointers(kOp, {{"prefix", args.prefix}});
}

}  // namespace mneme::kernels
