#include "kernels/gdn.h"

#include <string_view>

#include "kernels/args.h"
#include "kernels/page_group.h"

namespace mneme::kernels {
namespace {

Status CheckAtMost(std::string_view op, std::string_view name, int64_t value, int64_t most) {
  if (value > most)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}, at most {}", op, name, value, most);
  return {};
}

Status CheckShape(std::string_view op, const LinearShape& shape) {
  MNEME_TRY(RequirePositive(op, {{"key heads", shape.key_heads},
                                 {"value heads", shape.value_heads},
                                 {"key dim", shape.key_dim},
                                 {"value dim", shape.value_dim},
                                 {"chunk tokens", shape.chunk_tokens},
                                 {"window tokens", shape.window_tokens}}));
  MNEME_TRY(CheckAtMost(op, "key dim", shape.key_dim, kHeadDimMax));
  MNEME_TRY(CheckAtMost(op, "value dim", shape.value_dim, kHeadDimMax));
  MNEME_TRY(CheckAtMost(op, "conv width", shape.conv_width(), kConvWidthMax));
  MNEME_TRY(CheckAtMost(op, "chunk tokens", shape.chunk_tokens, kChunkTokensMax));
  if (shape.conv_taps != 0 && shape.conv_taps != kConvTaps)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} conv taps, expected {} or 0", op,
                shape.conv_taps, kConvTaps);
  if (shape.value_heads % shape.key_heads != 0)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} value heads on {} key heads", op,
                shape.value_heads, shape.key_heads);
  MNEME_TRY(CheckAtMost(op, "value heads of a key head", shape.heads_per_group(), kGroupHeadsMax));
  if (shape.chunk_tokens % kPieceTokens != 0 || shape.chunk_tokens % shape.window_tokens != 0)
    return Fail(ErrorCode::kInvalidArgument, "{}: chunks of {} tokens, windows of {}", op,
                shape.chunk_tokens, shape.window_tokens);
  return {};
}

// Open rows are of the gated delta rule.
Status CheckDense(std::string_view op, const LinearShape& shape) {
  if (shape.transition != TransitionKind::kDense)
    return Fail(ErrorCode::kInvalidArgument, "{}: the transition of a chunk is {}", op,
                NameOf(shape.transition));
  return {};
}

Status CheckDecodeRows(std::string_view op, const StepTable& step) {
  for (int32_t row = 0; row < step.rows; ++row) {
    if (step.session[row] < -1 || step.session[row] >= step.session_count || step.position[row] < 0)
      return Fail(ErrorCode::kInvalidArgument, "{}: row {} has session {} of {} and position {}",
                  op, row, step.session[row], step.session_count, step.position[row]);
  }
  return {};
}

Status CheckPieces(std::string_view op, const StepTable& step, int chunk_tokens) {
  if (step.session_count != 1 || step.piece_count < 0 ||
      step.rows != int64_t{step.piece_count} * kPieceTokens)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} rows, {} pieces, {} sessions in a slice", op,
                step.rows, step.piece_count, step.session_count);
  if (step.piece_count == 0) return {};
  MNEME_TRY(RequirePointers(op, {{"pieces", step.pieces}}));
  int64_t next = step.pieces[0].position;
  for (int32_t i = 0; i < step.piece_count; ++i) {
    const Piece& piece = step.pieces[i];
    const bool fits = piece.tokens >= 1 && piece.position >= 0 &&
                      piece.position % kPieceTokens + piece.tokens <= kPieceTokens;
    const bool placed = piece.row == i * kPieceTokens && piece.position == next;
    const bool same_chunk =
        fits && piece.position / chunk_tokens == step.pieces[0].position / chunk_tokens;
    if (!fits || !placed || !same_chunk)
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: piece {} at row {} has {} tokens at position {}, expected at row {} and {}",
                  op, i, piece.row, piece.tokens, piece.position, i * kPieceTokens, next);
    next += piece.tokens;
  }
  return {};
}

Status CheckStep(std::string_view op, const StepTable* step, const LinearShape& shape) {
  MNEME_TRY(RequireStep(op, step));
  MNEME_TRY(CheckShape(op, shape));
  if (step->rows == 0) return {};
  MNEME_TRY(RequirePointers(
      op,
      {{"position", step->position}, {"session", step->session}, {"sessions", step->sessions}}));
  if (step->form == RowForm::kDecode) return CheckDecodeRows(op, *step);
  return CheckPieces(op, *step, shape.chunk_tokens);
}

// Every session's open rows of a layer.
Status CheckOpen(std::string_view op, const StepTable& step, const LinearShape& shape, int layer) {
  if (layer < 0) return Fail(ErrorCode::kInvalidArgument, "{}: linear layer {}", op, layer);
  for (int32_t i = 0; i < step.session_count; ++i) {
    MNEME_TRY(RequirePointers(op, {{"open", step.sessions[i].open}}));
    const OpenRows& open = step.sessions[i].open[layer];
    MNEME_TRY(RequirePointers(op, {{"open k", open.k}, {"open u", open.u}, {"open c", open.c}}));
    if (shape.conv_taps != 0) MNEME_TRY(RequirePointers(op, {{"open conv", open.conv}}));
  }
  return {};
}

Status CheckList(std::string_view op, const RouteList& list, const LinearShape& shape) {
  MNEME_TRY(RequirePositive(op, {{"pages max", shape.pages_max}}));
  MNEME_TRY(CheckAtMost(op, "pages max", shape.pages_max, kPagesMax));
  return RequirePointers(op, {{"list chunk", list.chunk},
                              {"list gate", list.gate},
                              {"list group", list.group},
                              {"list count", list.count}});
}

Status CheckChunks(std::string_view op, const SessionView& session, bool routed) {
  if (session.chunk_count < 0)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} chunks", op, session.chunk_count);
  if (session.chunk_count == 0) return {};
  MNEME_TRY(RequirePointers(op, {{"chunks", session.chunks}}));
  for (int32_t j = 0; j < session.chunk_count; ++j) {
    const ChunkView* chunk = session.chunks[j];
    if (chunk == nullptr || chunk->groups == nullptr ||
        (routed && (chunk->representatives == nullptr || chunk->centroid == nullptr ||
                    chunk->centroid_scale == nullptr || chunk->radius == nullptr)))
      return Fail(ErrorCode::kInvalidArgument, "{}: chunk {} is incomplete", op, j);
  }
  return {};
}

Status CheckOpenRows(std::string_view op, const OpenRows& open, size_t layer) {
  if (open.k == nullptr || open.u == nullptr || open.c == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "{}: open rows of layer {} are null", op, layer);
  return {};
}

}  // namespace

Status Validate(const GdnPrepareArgs& args) {
  constexpr std::string_view kOp = "gdn_prepare";
  MNEME_TRY(CheckStep(kOp, args.step, args.shape));
  if (args.step->rows == 0) return {};
  MNEME_TRY(CheckOpen(kOp, *args.step, args.shape, args.linear_layer));
  for (int32_t i = 0; i < args.step->session_count; ++i) {
    if ((args.step->sessions[i].conv_read & ~1) != 0)
      return Fail(ErrorCode::kInvalidArgument, "{}: conv_read is {}", kOp,
                  args.step->sessions[i].conv_read);
  }
  if (args.shape.conv_taps != 0)
    MNEME_TRY(RequirePointers(kOp, {{"conv_weight", args.conv_weight}}));
  return RequirePointers(kOp, {{"projected", args.projected},
                               {"decay_rate", args.decay_rate},
                               {"dt_bias", args.dt_bias},
                               {"q", args.q},
                               {"k", args.k},
                               {"v", args.v},
                               {"write_strength", args.write_strength},
                               {"log_decay", args.log_decay}});
}

Status Validate(const RouteArgs& args) {
  constexpr std::string_view kOp = "route";
  MNEME_TRY(CheckStep(kOp, args.step, args.shape));
  MNEME_TRY(RequirePointers(kOp, {{"misses", args.misses}}));
  if (args.step->rows == 0) return {};
  MNEME_TRY(CheckList(kOp, args.list, args.shape));
  if (args.paged_layer < 0 || args.routed_layer < -1 || args.recent_chunks < 0)
    return Fail(ErrorCode::kInvalidArgument, "{}: paged layer {}, routed layer {}, {} recent", kOp,
                args.paged_layer, args.routed_layer, args.recent_chunks);
  const bool routed = args.routed_layer >= 0;
  if (routed) {
    MNEME_TRY(RequirePointers(
        kOp,
        {{"projected", args.projected}, {"query_weight", args.query_weight}, {"bias", args.bias}}));
    if (!(args.theta >= 0.0f && args.theta < 1.0f))
      return Fail(ErrorCode::kInvalidArgument, "{}: theta is {}", kOp, args.theta);
  }
  for (int32_t i = 0; i < args.step->session_count; ++i)
    MNEME_TRY(CheckChunks(kOp, args.step->sessions[i], routed));
  return {};
}

Status Validate(const GdnReadArgs& args) {
  constexpr std::string_view kOp = "gdn_read";
  MNEME_TRY(CheckStep(kOp, args.step, args.shape));
  MNEME_TRY(CheckDense(kOp, args.shape));
  if (args.step->rows == 0) return {};
  MNEME_TRY(CheckOpen(kOp, *args.step, args.shape, args.linear_layer));
  if (args.list.chunk != nullptr) {
    MNEME_TRY(CheckList(kOp, args.list, args.shape));
    for (int32_t i = 0; i < args.step->session_count; ++i) {
      const float* const* folded = args.step->sessions[i].folded;
      if (folded != nullptr && folded[args.linear_layer] != nullptr)
        return Fail(ErrorCode::kInvalidArgument, "{}: session {} has a list and a folded state",
                    kOp, i);
    }
  }
  if (!(args.epsilon >= 0.0f))
    return Fail(ErrorCode::kInvalidArgument, "{}: epsilon is {}", kOp, args.epsilon);
  return RequirePointers(kOp, {{"projected", args.projected},
                               {"q", args.q},
                               {"k", args.k},
                               {"v", args.v},
                               {"write_strength", args.write_strength},
                               {"log_decay", args.log_decay},
                               {"norm_weight", args.norm_weight},
                               {"out", args.out}});
}

Status Validate(const RepresentArgs& args) {
  constexpr std::string_view kOp = "represent";
  MNEME_TRY(CheckShape(kOp, args.shape));
  MNEME_TRY(RequirePointers(kOp, {{"representatives", args.representatives}}));
  if (args.first_window < 0 || args.last_window < args.first_window ||
      args.last_window > args.shape.representatives() || args.pool.size() != args.route_key.size())
    return Fail(ErrorCode::kInvalidArgument, "{}: windows {} to {} of {}, {} of {} layers", kOp,
                args.first_window, args.last_window, args.shape.representatives(),
                args.route_key.size(), args.pool.size());
  for (size_t layer = 0; layer < args.pool.size(); ++layer) {
    MNEME_TRY(RequirePointers(kOp, {{"route_key", args.route_key[layer]},
                                    {"pool key", args.pool[layer].key},
                                    {"pool value", args.pool[layer].value},
                                    {"pool output", args.pool[layer].output}}));
  }
  return {};
}

Status Validate(const IndexArgs& args) {
  constexpr std::string_view kOp = "index";
  MNEME_TRY(CheckShape(kOp, args.shape));
  if (args.routed_layers < 0)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} routed layers", kOp, args.routed_layers);
  return RequirePointers(kOp, {{"representatives", args.representatives},
                               {"centroid", args.centroid},
                               {"centroid_scale", args.centroid_scale},
                               {"radius", args.radius}});
}

Status Validate(const SealArgs& args) {
  constexpr std::string_view kOp = "seal";
  if (args.dtype != Dtype::kF16 && args.dtype != Dtype::kF32)
    return Fail(ErrorCode::kInvalidArgument, "{}: pages of type {}", kOp, NameOf(args.dtype));
  const size_t layers = args.open.size();
  if (args.layer.size() != layers || args.open_kv.size() != args.kv.size())
    return Fail(ErrorCode::kInvalidArgument, "{}: {} layers, {} numbers, {} KV layers, {} pages",
                kOp, layers, args.layer.size(), args.open_kv.size(), args.kv.size());
  if (layers != 0) {
    MNEME_TRY(CheckShape(kOp, args.shape));
    MNEME_TRY(CheckDense(kOp, args.shape));
    if (args.groups.size() != layers * static_cast<size_t>(args.shape.key_heads))
      return Fail(ErrorCode::kInvalidArgument, "{}: {} groups for {} layers of {} key heads", kOp,
                  args.groups.size(), layers, args.shape.key_heads);
  }
  for (size_t i = 0; i < layers; ++i) MNEME_TRY(CheckOpenRows(kOp, args.open[i], i));
  for (const std::byte* group : args.groups) {
    if (reinterpret_cast<uintptr_t>(group) % alignof(PageGroupHeader) != 0 || group == nullptr)
      return Fail(ErrorCode::kInvalidArgument, "{}: a group is null or not aligned", kOp);
  }
  if (args.kv.empty()) return {};
  const AttentionShape& kv = args.attention;
  MNEME_TRY(RequirePositive(
      kOp, {{"KV heads", kv.kv_heads}, {"head dim", kv.head_dim}, {"KV tokens", kv.chunk_tokens}}));
  for (size_t i = 0; i < args.kv.size(); ++i) {
    MNEME_TRY(RequirePointers(kOp, {{"open key", args.open_kv[i].key},
                                    {"open value", args.open_kv[i].value},
                                    {"KV page", args.kv[i]}}));
  }
  return {};
}

Status Validate(const FoldArgs& args) {
  constexpr std::string_view kOp = "fold";
  MNEME_TRY(CheckShape(kOp, args.shape));
  MNEME_TRY(CheckDense(kOp, args.shape));
  if (args.open.size() != args.state.size())
    return Fail(ErrorCode::kInvalidArgument, "{}: {} layers, {} states", kOp, args.open.size(),
                args.state.size());
  for (size_t i = 0; i < args.open.size(); ++i) {
    MNEME_TRY(CheckOpenRows(kOp, args.open[i], i));
    MNEME_TRY(RequirePointers(kOp, {{"state", args.state[i]}}));
  }
  return {};
}

Status Validate(const FoldPagesArgs& args) {
  constexpr std::string_view kOp = "fold_pages";
  MNEME_TRY(CheckShape(kOp, args.shape));
  MNEME_TRY(RequirePointers(kOp, {{"chunk", args.chunk}}));
  if (args.gate.size() != args.state.size())
    return Fail(ErrorCode::kInvalidArgument, "{}: {} gates, {} states", kOp, args.gate.size(),
                args.state.size());
  for (size_t layer = 0; layer < args.state.size(); ++layer) {
    MNEME_TRY(RequirePointers(kOp, {{"state", args.state[layer]}}));
    const float gate = args.gate[layer];
    if (!(gate >= 0.0f && gate <= 1.0f))
      return Fail(ErrorCode::kInvalidArgument, "{}: the gate of layer {} is {}", kOp, layer, gate);
    if (gate == 0.0f) continue;
    MNEME_TRY(RequirePointers(kOp, {{"groups", args.chunk->groups}}));
    for (int g = 0; g < args.shape.key_heads; ++g) {
      const size_t index =
          layer * static_cast<size_t>(args.shape.key_heads) + static_cast<size_t>(g);
      MNEME_TRY(RequirePointers(kOp, {{"a page group", args.chunk->groups[index]}}));
    }
  }
  return {};
}

}  // namespace mneme::kernels
