#include <algorithm>

#include "kernels/conv.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/gdn.h"

namespace mneme::kernels::cpu {
namespace {

constexpr int kTail = kConvTaps - 1;  // tokens before a token that its convolution sees
constexpr int kRowsAtOnce = 8;        // of a piece, per item of the parallel loop

// The first tap that is read: without a convolution the current token alone.
int FirstTap(const LinearShape& shape) { return shape.conv_taps == 0 ? kTail : 0; }

// The last kTail + n pre-convolution rows of a run of n tokens, by index from the run's start:
// -kTail .. -1 are the tail of the step before, which nobody asks for without a convolution.
class RawRows {
 public:
  RawRows(const GdnPrepareArgs& args, const SessionView& session, int32_t first_position,
          const float* zeros)
      : args_(args),
        tail_(args.shape.conv_taps == 0 ? nullptr
                                        : session.open[args.linear_layer].conv +
                                              static_cast<ptrdiff_t>(session.conv_read) * kTail *
                                                  args.shape.conv_width()),
        first_position_(first_position),
        zeros_(zeros) {}

  // Row `row` of the activations holds token `index` >= 0 of the run.
  const float* At(int32_t index, int32_t row) const {
    if (index >= 0) return args_.projected + int64_t{row} * args_.shape.projected_width();
    if (first_position_ + index < 0) return zeros_;
    return tail_ + static_cast<ptrdiff_t>(kTail + index) * args_.shape.conv_width();
  }

 private:
  const GdnPrepareArgs& args_;
  const float* tail_;
  int32_t first_position_;
  const float* zeros_;
};

// Row of token `index` of the slice; pieces are filled one after the other.
int32_t RowOf(const StepTable& step, int32_t index) {
  if (index < 0) return -1;
  for (int32_t i = 0; i < step.piece_count; ++i) {
    if (index < step.pieces[i].tokens) return step.pieces[i].row + index;
    index -= step.pieces[i].tokens;
  }
  return -1;
}

void PrepareRow(const GdnPrepareArgs& args, const OpenRows& open, int32_t row, int32_t position,
                const float* const* raw, float* scratch) {
  const LinearShape& shape = args.shape;
  ConvTokenArgs token;
  token.shape = shape;
  std::copy_n(raw, kConvTaps, token.raw);
  token.conv_weight = args.conv_weight;
  token.decay_rate = args.decay_rate;
  token.dt_bias = args.dt_bias;
  token.q = args.q + int64_t{row} * shape.key_width();
  token.k = args.k + int64_t{row} * shape.key_width();
  token.v = args.v + int64_t{row} * shape.value_width();
  token.write_strength = args.write_strength + int64_t{row} * shape.value_heads;
  token.log_decay = args.log_decay + int64_t{row} * shape.value_heads;
  token.scratch = scratch;
  ConvToken(token);
  if (open.route_key == nullptr) return;
  const int at = position % shape.chunk_tokens;
  for (int g = 0; g < shape.key_heads; ++g) {
    std::copy_n(raw[kTail] + shape.key_width() + static_cast<ptrdiff_t>(g) * shape.key_dim,
                shape.key_dim,
                open.route_key + (int64_t{g} * shape.chunk_tokens + at) * shape.key_dim);
  }
}

void ClearRow(const GdnPrepareArgs& args, int32_t row) {
  const LinearShape& shape = args.shape;
  std::fill_n(args.q + int64_t{row} * shape.key_width(), shape.key_width(), 0.0f);
  std::fill_n(args.k + int64_t{row} * shape.key_width(), shape.key_width(), 0.0f);
  std::fill_n(args.v + int64_t{row} * shape.value_width(), shape.value_width(), 0.0f);
  std::fill_n(args.write_strength + int64_t{row} * shape.value_heads, shape.value_heads, 0.0f);
  std::fill_n(args.log_decay + int64_t{row} * shape.value_heads, shape.value_heads, 0.0f);
}

// The other half of the tail: the columns of the run's last kTail tokens. Only with a convolution.
void WriteTail(const GdnPrepareArgs& args, const SessionView& session, const float* const* raw) {
  const int width = args.shape.conv_width();
  float* tail = session.open[args.linear_layer].conv +
                static_cast<ptrdiff_t>(1 - session.conv_read) * kTail * width;
  for (int i = 0; i < kTail; ++i)
    std::copy_n(raw[i], width, tail + static_cast<ptrdiff_t>(i) * width);
}

void PrepareDecode(const GdnPrepareArgs& args, CpuStream& stream) {
  const StepTable& step = *args.step;
  const int width = args.shape.conv_width();
  stream.pool().Run(step.rows, [&](int64_t item, int thread) {
    const int32_t row = static_cast<int32_t>(item);
    if (step.session[row] < 0) return ClearRow(args, row);
    float* zeros = stream.scratch(thread).data();
    if (step.position[row] < kTail) std::fill_n(zeros, width, 0.0f);
    const SessionView& session = step.sessions[step.session[row]];
    const RawRows rows(args, session, step.position[row], zeros);
    const float* raw[kConvTaps] = {};
    for (int tap = FirstTap(args.shape); tap < kConvTaps; ++tap)
      raw[tap] = rows.At(tap - kTail, row);
    PrepareRow(args, session.open[args.linear_layer], row, step.position[row], raw, zeros + width);
    if (args.shape.conv_taps != 0) WriteTail(args, session, raw + 1);
  });
}

// Rows [first, last) of a piece whose first token is token `index` of the slice.
void PrepareRows(const GdnPrepareArgs& args, const RawRows& rows, const Piece& piece, int32_t index,
                 int32_t first, int32_t last, float* scratch) {
  const StepTable& step = *args.step;
  for (int32_t i = first; i < last; ++i) {
    if (i >= piece.tokens) {
      ClearRow(args, piece.row + i);
      continue;
    }
    const float* raw[kConvTaps] = {};
    for (int tap = FirstTap(args.shape); tap < kConvTaps; ++tap) {
      const int32_t token = index + i + tap - kTail;
      raw[tap] = rows.At(token, RowOf(step, token));
    }
    PrepareRow(args, step.sessions[0].open[args.linear_layer], piece.row + i, piece.position + i,
               raw, scratch);
  }
}

void PreparePrefill(const GdnPrepareArgs& args, CpuStream& stream) {
  const StepTable& step = *args.step;
  const int width = args.shape.conv_width();
  constexpr int kParts = kPieceTokens / kRowsAtOnce;
  const int32_t first_position = step.pieces[0].position;
  // With a convolution one item more than there are rows: the tail.
  const int tails = args.shape.conv_taps == 0 ? 0 : 1;
  stream.pool().Run(int64_t{step.piece_count} * kParts + tails, [&](int64_t item, int thread) {
    float* zeros = stream.scratch(thread).data();
    if (first_position < kTail) std::fill_n(zeros, width, 0.0f);
    const RawRows rows(args, step.sessions[0], first_position, zeros);
    if (item == int64_t{step.piece_count} * kParts) {
      const Piece& last = step.pieces[step.piece_count - 1];
      const int32_t end = last.position + last.tokens - first_position;
      const float* raw[kTail];
      for (int i = 0; i < kTail; ++i)
        raw[i] = rows.At(end - kTail + i, RowOf(step, end - kTail + i));
      return WriteTail(args, step.sessions[0], raw);
    }
    const Piece& piece = step.pieces[item / kParts];
    const int32_t first = static_cast<int32_t>(item % kParts) * kRowsAtOnce;
    PrepareRows(args, rows, piece, piece.position - first_position, first, first + kRowsAtOnce,
                zeros + width);
  });
}

}  // namespace

Status GdnPrepare(const GdnPrepareArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  if (args.step->rows == 0) return {};
  if (args.step->form == RowForm::kDecode) {
    PrepareDecode(args, AsCpu(stream));
  } else {
    PreparePrefill(args, AsCpu(stream));
  }
  return {};
}

}  // namespace mneme::kernels::cpu
