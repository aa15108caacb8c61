#include "kernels/attention.h"

#include "kernels/args.h"

namespace mneme::kernels {
namespace {

Status ValidateShape(const AttentionShape& shape) {
  MNEME_TRY(RequirePositive("attention", {{"query_heads", shape.query_heads},
                                          {"kv_heads", shape.kv_heads},
                                          {"head_dim", shape.head_dim},
                                          {"chunk_tokens", shape.chunk_tokens}}));
  if (shape.query_heads % shape.kv_heads != 0)
    return Fail(ErrorCode::kInvalidArgument, "attention: {} query heads on {} kv heads",
                shape.query_heads, shape.kv_heads);
  if (shape.rotary_dim < 0 || shape.rotary_dim > shape.head_dim || shape.rotary_dim % 2 != 0)
    return Fail(ErrorCode::kInvalidArgument, "attention: rotary_dim is {} of {}", shape.rotary_dim,
                shape.head_dim);
  if (shape.rotary_dim > 0 && !(shape.rope_theta > 0))
    return Fail(ErrorCode::kInvalidArgument, "attention: rope_theta is {}", shape.rope_theta);
  return {};
}

Status ValidateSession(const AttentionArgs& args, const SessionView& session) {
  MNEME_TRY(RequirePointers("attention", {{"open_kv", session.open_kv}}));
  const OpenKv& open = session.open_kv[args.attention_layer];
  MNEME_TRY(RequirePointers("attention", {{"open key", open.key}, {"open value", open.value}}));
  if (session.chunk_count < 0)
    return Fail(ErrorCode::kInvalidArgument, "attention: chunk_count is {}", session.chunk_count);
  if (session.chunk_count > 0)
    MNEME_TRY(RequirePointers("attention", {{"chunks", session.chunks}}));
  for (int32_t c = 0; c < session.chunk_count; ++c) {
    if (session.chunks[c] == nullptr || session.chunks[c]->kv == nullptr ||
        session.chunks[c]->kv[args.attention_layer] == nullptr)
      return Fail(ErrorCode::kInvalidArgument, "attention: kv page of chunk {} is null", c);
  }
  return {};
}

Status ValidatePieces(const AttentionArgs& args) {
  const StepTable& step = *args.step;
  MNEME_TRY(RequirePointers("attention", {{"pieces", step.pieces}}));
  if (step.session_count != 1)
    return Fail(ErrorCode::kInvalidArgument, "attention: {} sessions in a prefill slice",
                step.session_count);
  if (int64_t{step.piece_count} * kPieceTokens != step.rows)
    return Fail(ErrorCode::kInvalidArgument, "attention: {} pieces in {} rows", step.piece_count,
                step.rows);
  for (int32_t p = 0; p < step.piece_count; ++p) {
    const Piece& piece = step.pieces[p];
    if (piece.row != p * kPieceTokens || piece.tokens < 1 || piece.tokens > kPieceTokens ||
        piece.position < 0)
      return Fail(ErrorCode::kInvalidArgument,
                  "attention: piece {} has row {}, {} tokens, position {}", p, piece.row,
                  piece.tokens, piece.position);
    const int32_t place = piece.position % args.shape.chunk_tokens;
    if (place % kKeyBlock + piece.tokens > kKeyBlock ||
        place + piece.tokens > args.shape.chunk_tokens)
      return Fail(ErrorCode::kInvalidArgument,
                  "attention: piece {} of {} tokens at {} leaves its cell of the page", p,
                  piece.tokens, place);
  }
  return {};
}

}  // namespace

Status Validate(const AttentionArgs& args) {
  MNEME_TRY(RequireStep("attention", args.step));
  MNEME_TRY(ValidateShape(args.shape));
  if (args.kv_dtype != Dtype::kF16 && args.kv_dtype != Dtype::kF32)
    return Fail(ErrorCode::kInvalidArgument, "attention: kv_dtype is {}", NameOf(args.kv_dtype));
  if (args.attention_layer < 0)
    return Fail(ErrorCode::kInvalidArgument, "attention: attention_layer is {}",
                args.attention_layer);
  const StepTable& step = *args.step;
  if (step.rows == 0) return {};
  MNEME_TRY(RequirePointers("attention", {{"projected", args.projected},
                                          {"q_norm", args.q_norm},
                                          {"k_norm", args.k_norm},
                                          {"out", args.out},
                                          {"sessions", step.sessions}}));
  if (step.form == RowForm::kPrefill) {
    MNEME_TRY(ValidatePieces(args));
  } else {
    MNEME_TRY(
        RequirePointers("attention", {{"position", step.position}, {"session", step.session}}));
    for (int32_t row = 0; row < step.rows; ++row) {
      if (step.session[row] < -1 || step.session[row] >= step.session_count)
        return Fail(ErrorCode::kInvalidArgument, "attention: row {}: session {} of {}", row,
                    step.session[row], step.session_count);
      if (step.position[row] < 0)
        return Fail(ErrorCode::kInvalidArgument, "attention: row {}: position is {}", row,
                    step.position[row]);
    }
  }
  for (int32_t s = 0; s < step.session_count; ++s)
    MNEME_TRY(ValidateSession(args, step.sessions[s]));
  return {};
}

}  // namespace mneme::kernels
