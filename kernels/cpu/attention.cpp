#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/activation.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace mneme::kernels::cpu {
namespace {

// One row of the step, whichever form it has.
struct RowPlace {
  int32_t session = -1;  // -1: padding
  int32_t position = 0;
};

RowPlace PlaceOf(const StepTable& step, int64_t row) {
  if (step.form == RowForm::kDecode) return {step.session[row], step.position[row]};
  const Piece& piece = step.pieces[row / kPieceTokens];
  const auto offset = static_cast<int32_t>(row % kPieceTokens);
  return offset < piece.tokens ? RowPlace{0, piece.position + offset} : RowPlace{};
}

// The op's fixed values, and the rows' queries after norm and rotation.
struct Attend {
  const AttentionArgs& args;
  CpuStream& stream;
  float* queries;           // [rows, Hq, E]
  const double* frequency;  // [rotary / 2]

  const AttentionShape& shape() const { return args.shape; }
  int64_t group() const { return shape().query_heads / shape().kv_heads; }
  int64_t query_width() const { return int64_t{shape().query_heads} * shape().head_dim; }
  float scale() const {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape().head_dim)));
  }
  const float* projected(int64_t row) const {
    return args.projected + row * shape().projected_width();
  }
};

// Queries to scratch, key and value to their place in the open page.
void PrepareRow(const Attend& op, int64_t row, float* cosine, float* sine) {
  const AttentionShape& shape = op.shape();
  const int64_t e = shape.head_dim;
  float* queries = op.queries + row * op.query_width();
  const RowPlace place = PlaceOf(*op.args.step, row);
  if (place.session < 0) {
    std::fill_n(queries, op.query_width(), 0.0f);
    std::fill_n(op.args.out + row * op.query_width(), op.query_width(), 0.0f);
    return;
  }
  const int pairs = shape.rotary_dim / 2;
  RotaryAngles(op.frequency, pairs, place.position, cosine, sine);
  const float* projected = op.projected(row);
  for (int64_t h = 0; h < shape.query_heads; ++h) {
    NormZeroCentred(projected + 2 * h * e, op.args.q_norm, e, op.args.epsilon, queries + h * e);
    Rotate(cosine, sine, pairs, queries + h * e);
  }
  const float* keys = projected + 2 * op.query_width();
  const float* values = keys + shape.kv_heads * e;
  const OpenKv& open = op.args.step->sessions[place.session].open_kv[op.args.attention_layer];
  for (int64_t g = 0; g < shape.kv_heads; ++g) {
    const int64_t at = (g * shape.chunk_tokens + place.position % shape.chunk_tokens) * e;
    NormZeroCentred(keys + g * e, op.args.k_norm, e, op.args.epsilon, open.key + at);
    Rotate(cosine, sine, pairs, open.key + at);
    std::copy_n(values + g * e, e, open.value + at);
  }
}

// A block of keys and values of one kv head, as f32 in scratch.
struct KeyBlock {
  float* keys;    // [kKeyBlock, E]
  float* values;  // [kKeyBlock, E]
};

// Tokens [first, first + tokens) of a closed page; the rest of the block becomes 0.
void LoadClosed(const Attend& op, const ChunkView& chunk, int64_t head, int64_t first,
                int64_t tokens, const KeyBlock& block) {
  const AttentionShape& shape = op.shape();
  const int64_t e = shape.head_dim;
  const std::byte* page = chunk.kv[op.args.attention_layer];
  for (const int64_t half : {0, 1}) {
    const int64_t index = ((half * shape.kv_heads + head) * shape.chunk_tokens + first) * e;
    const std::byte* from = page + static_cast<size_t>(index) * BytesOf(op.args.kv_dtype);
    float* to = half == 0 ? block.keys : block.values;
    if (op.args.kv_dtype == Dtype::kF16) {
      F16ToF32Row(reinterpret_cast<const uint16_t*>(from), tokens * e, to);
    } else {
      std::memcpy(to, from, static_cast<size_t>(tokens * e) * sizeof(float));
    }
    std::fill(to + tokens * e, to + kKeyBlock * e, 0.0f);
  }
}

void LoadOpen(const Attend& op, const OpenKv& open, int64_t head, int64_t first, int64_t tokens,
              const KeyBlock& block) {
  const int64_t e = op.shape().head_dim;
  const int64_t at = (head * op.shape().chunk_tokens + first) * e;
  std::copy_n(open.key + at, tokens * e, block.keys);
  std::copy_n(open.value + at, tokens * e, block.values);
  // What lies behind may be anything, and 0 times NaN is NaN.
  std::fill(block.keys + tokens * e, block.keys + kKeyBlock * e, 0.0f);
  std::fill(block.values + tokens * e, block.values + kKeyBlock * e, 0.0f);
}

// The running softmax of one row and query head.
struct Running {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;

  // Scores of one block become weights, those past `visible` 0. Returns the factor by which what
  // was summed before shrinks.
  float Take(float* scores, int64_t visible) {
    std::fill(scores + visible, scores + kKeyBlock, 0.0f);
    if (visible == 0) return 1.0f;
    float largest = max;
    for (int64_t t = 0; t < visible; ++t) largest = std::max(largest, scores[t]);
    float shrink = max;
    Exp(&shrink, 1, largest, &shrink);
    max = largest;
    Exp(scores, visible, largest, scores);
    float sums[8] = {};
    for (int64_t t = 0; t < kKeyBlock; ++t) sums[t % 8] += scores[t];
    float added = 0;
    for (const float each : sums) added += each;
    sum = sum * shrink + added;
    return shrink;
  }
};

// out <- sum / total, times the output gate; `gate` is overwritten scratch of E.
void Finish(const Attend& op, int64_t row, int64_t head, const float* sums, float total,
            float* gate) {
  const int64_t e = op.shape().head_dim;
  Sigmoid(op.projected(row) + (2 * head + 1) * e, e, gate);
  float* out = op.args.out + row * op.query_width() + head * e;
  for (int64_t i = 0; i < e; ++i) out[i] = sums[i] / total * gate[i];
}

// Calls take(tokens loaded) for every block that a row at `place` of the open page may see, oldest
// first; `last` is the last place of the open page that is written.
template <class Take>
void ForEachBlock(const Attend& op, const SessionView& session, int64_t head, int64_t last,
                  const KeyBlock& block, const Take& take) {
  const int64_t page_tokens = op.shape().chunk_tokens;
  for (int32_t c = 0; c < session.chunk_count; ++c) {
    for (int64_t first = 0; first < page_tokens; first += kKeyBlock) {
      const int64_t tokens = std::min<int64_t>(kKeyBlock, page_tokens - first);
      LoadClosed(op, *session.chunks[c], head, first, tokens, block);
      take(tokens, int64_t{-1});
    }
  }
  const OpenKv& open = session.open_kv[op.args.attention_layer];
  for (int64_t first = 0; first <= last; first += kKeyBlock) {
    const int64_t tokens = std::min<int64_t>(kKeyBlock, last + 1 - first);
    LoadOpen(op, open, head, first, tokens, block);
    take(tokens, first);
  }
}

// One row and kv head: all query heads of the group read each block once.
void DecodeTask(const Attend& op, int64_t row, int64_t head, float* scratch) {
  const int64_t e = op.shape().head_dim;
  const int64_t group = op.group();
  const RowPlace place = PlaceOf(*op.args.step, row);
  if (place.session < 0) return;
  const SessionView& session = op.args.step->sessions[place.session];
  const KeyBlock block{scratch, scratch + kKeyBlock * e};
  float* scores = block.values + kKeyBlock * e;  // [kKeyBlock]
  float* gate = scores + kKeyBlock;              // [E]
  float* sums = gate + e;                        // [group, E]
  auto* running = reinterpret_cast<Running*>(sums + group * e);
  std::fill_n(sums, group * e, 0.0f);
  std::fill_n(running, group, Running());
  const float* queries = op.queries + row * op.query_width() + head * group * e;
  ForEachBlock(op, session, head, place.position % op.shape().chunk_tokens, block,
               [&](int64_t tokens, int64_t) {
                 const int count = static_cast<int>(tokens);
                 const int width = static_cast<int>(e);
                 for (int64_t h = 0; h < group; ++h) {
                   DotRows(block.keys, e, count, width, queries + h * e, scores);
                   ScaleRow(scores, op.scale(), count, scores);
                   const float shrink = running[h].Take(scores, tokens);
                   ScaleRow(sums + h * e, shrink, width, sums + h * e);
                   AddRows(block.values, e, count, width, scores, sums + h * e);
                 }
               });
  for (int64_t h = 0; h < group; ++h)
    Finish(op, row, head * group + h, sums + h * e, running[h].sum, gate);
}

// One piece and kv head: products of kPieceTokens rows with kKeyBlock keys.
void PieceTask(const Attend& op, const Piece& piece, int64_t head, float* scratch) {
  const int64_t e = op.shape().head_dim;
  const int64_t group = op.group();
  const KeyBlock block{scratch, scratch + kKeyBlock * e};
  float* scores = block.values + kKeyBlock * e;     // [kPieceTokens, kKeyBlock]
  float* gate = scores + kPieceTokens * kKeyBlock;  // [E]
  float* sums = gate + e;                           // [group, kPieceTokens, E]
  auto* running = reinterpret_cast<Running*>(sums + group * kPieceTokens * e);
  std::fill_n(sums, group * kPieceTokens * e, 0.0f);
  std::fill_n(running, group * kPieceTokens, Running());

  PlainProduct score;  // q k^T
  score.rows = kPieceTokens;
  score.cols = kKeyBlock;
  score.inner = static_cast<int>(e);
  score.a_stride = op.query_width();
  score.b = block.keys;
  score.b_stride = e;
  score.transpose_b = true;
  score.c = scores;
  score.c_stride = kKeyBlock;
  score.alpha = op.scale();
  PlainProduct add;  // sums += weights v
  add.rows = kPieceTokens;
  add.cols = static_cast<int>(e);
  add.inner = kKeyBlock;
  add.a = scores;
  add.a_stride = kKeyBlock;
  add.b = block.values;
  add.b_stride = e;
  add.c_stride = e;
  add.beta = 1;

  const int64_t first_place = piece.position % op.shape().chunk_tokens;
  const auto take = [&](int64_t tokens, int64_t first) {
    for (int64_t h = 0; h < group; ++h) {
      score.a = op.queries + piece.row * op.query_width() + (head * group + h) * e;
      Multiply(score);
      float* sum = sums + h * kPieceTokens * e;
      for (int64_t r = 0; r < kPieceTokens; ++r, sum += e) {
        // In the open page a row sees itself and what came before.
        const int64_t visible =
            first < 0 ? tokens : std::clamp<int64_t>(first_place + r + 1 - first, 0, tokens);
        const float shrink = running[h * kPieceTokens + r].Take(scores + r * kKeyBlock, visible);
        if (shrink != 1.0f) ScaleRow(sum, shrink, static_cast<int>(e), sum);
      }
      add.c = sums + h * kPieceTokens * e;
      Multiply(add);
    }
  };
  ForEachBlock(op, op.args.step->sessions[0], head, first_place + piece.tokens - 1, block, take);
  for (int64_t h = 0; h < group; ++h) {
    for (int64_t r = 0; r < piece.tokens; ++r)
      Finish(op, piece.row + r, head * group + h, sums + (h * kPieceTokens + r) * e,
             running[h * kPieceTokens + r].sum, gate);
  }
}

}  // namespace

Status Attention(const AttentionArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  const StepTable& step = *args.step;
  if (step.rows == 0) return {};
  CpuStream& cpu = AsCpu(stream);
  const int64_t e = args.shape.head_dim;
  const int64_t group = args.shape.query_heads / args.shape.kv_heads;
  const int64_t needed = 2 * kKeyBlock * e + kPieceTokens * kKeyBlock + e +
                         group * kPieceTokens * (e + 2) + args.shape.rotary_dim;
  if (needed > static_cast<int64_t>(kScratchFloats))
    return Fail(ErrorCode::kInvalidArgument, "attention: {} query heads of {} to a kv head", group,
                e);

  const int64_t pairs = args.shape.rotary_dim / 2;
  const int64_t query_floats = int64_t{step.rows} * args.shape.query_heads * e;
  const int64_t padded = (query_floats + 1) / 2 * 2;  // the doubles behind stay aligned
  float* shared = cpu.shared(static_cast<size_t>(padded + 2 * pairs));
  auto* frequency = reinterpret_cast<double*>(shared + padded);
  RotaryFrequencies(args.shape.rotary_dim, args.shape.rope_theta, frequency);

  const Attend op{args, cpu, shared, frequency};
  cpu.pool().Run(step.rows, [&](int64_t row, int thread) {
    float* scratch = cpu.scratch(thread).data();
    PrepareRow(op, row, scratch, scratch + pairs);
  });
  const int64_t heads = args.shape.kv_heads;
  if (step.form == RowForm::kDecode) {
    cpu.pool().Run(step.rows * heads, [&](int64_t task, int thread) {
      DecodeTask(op, task / heads, task % heads, cpu.scratch(thread).data());
    });
  } else {
    cpu.pool().Run(step.piece_count * heads, [&](int64_t task, int thread) {
      PieceTask(op, step.pieces[task / heads], task % heads, cpu.scratch(thread).data());
    });
  }
  return {};
}

}  // namespace mneme::kernels::cpu
