#include "kernels/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"

namespace mneme::kernels::cpu {
namespace {

// The M largest gates of those offered so far, largest first. Chunks are offered newest first, so
// that of equal gates the earlier place is the newer chunk's.
class Choice {
 public:
  Choice(int32_t* chunk, float* gate, int places) : chunk_(chunk), gate_(gate), places_(places) {}

  void Offer(int32_t chunk, float gate) {
    if (count_ == places_) {
      if (!(gate > gate_[places_ - 1])) return;
      --count_;
    }
    int at = count_++;
    for (; at > 0 && gate > gate_[at - 1]; --at) {
      gate_[at] = gate_[at - 1];
      chunk_[at] = chunk_[at - 1];
    }
    gate_[at] = gate;
    chunk_[at] = chunk;
  }

  // Puts the list in order, newest first, and returns its length.
  int32_t Finish() {
    for (int i = 1; i < count_; ++i) {
      const int32_t chunk = chunk_[i];
      const float gate = gate_[i];
      int at = i;
      for (; at > 0 && chunk_[at - 1] < chunk; --at) {
        chunk_[at] = chunk_[at - 1];
        gate_[at] = gate_[at - 1];
      }
      chunk_[at] = chunk;
      gate_[at] = gate;
    }
    return count_;
  }

 private:
  int32_t* chunk_;
  float* gate_;
  int places_;
  int32_t count_ = 0;
};

// The rule that turns scores into gates, and the score below which a gate is certainly closed.
struct GateRule {
  float scale = 0;  // K^-1/2
  float bias = 0;
  float theta = 0;
  float least = 0;  // s + bias < log(theta / (1 - theta)), less what rounding can hide

  explicit GateRule(const RouteHeadArgs& args)
      : scale(1.0f / std::sqrt(static_cast<float>(args.shape.key_dim))),
        bias(args.bias),
        theta(args.theta),
        least(-std::numeric_limits<float>::infinity()) {
    if (!args.use_index || theta <= 0.0f) return;
    const double odds = std::log(static_cast<double>(theta) / (1.0 - static_cast<double>(theta)));
    least = static_cast<float>(odds - static_cast<double>(bias));
  }

  // Whether a chunk whose representatives give at most `bound` (before scaling) may be open. The
  // exponential, the logarithm and the sigmoid are each good to a few ulps of what they return.
  bool MayOpen(float bound) const {
    const float score = scale * bound;
    return !(score + 1e-5f * (4.0f + std::abs(score) + std::abs(bias)) < least);
  }

  // The gate, or 0 where it stays closed.
  float GateOf(const float* score, int count) const {
    const float s = LogMeanExp(score, count, scale);
    const float gate = 1.0f / (1.0f + std::exp(-(s + bias)));
    return gate >= theta ? gate : 0.0f;
  }
};

ptrdiff_t HeadOf(const RouteHeadArgs& args) {
  return static_cast<ptrdiff_t>(args.routed_layer) * args.shape.key_heads + args.key_head;
}

const uint16_t* RepresentativesOf(const RouteHeadArgs& args, const ChunkView& chunk) {
  return chunk.representatives + HeadOf(args) * args.shape.representatives() * args.shape.key_dim;
}

// Chunks from this one on are read unseen; those before it are scored.
int32_t FirstRecent(const RouteHeadArgs& args) {
  return std::max(0, args.chunk_count - args.recent_chunks);
}

void OfferRecent(const RouteHeadArgs& args, Choice& choice) {
  for (int32_t j = args.chunk_count - 1; j >= FirstRecent(args); --j) choice.Offer(j, 1.0f);
}

// Scores the chunks whose representatives have been gathered, for all rows of a piece.
struct Block {
  float* representatives;  // [RouteBlock, K]
  float* scores;           // [kPieceTokens, RouteBlock]
  int32_t chunk[128];
  uint64_t open[128];  // bit i: row i's bound lets the chunk pass
  int filled = 0;

  void Score(const RouteHeadArgs& args, const GateRule& rule, const float* query, Choice* choice) {
    const int K = args.shape.key_dim, P = args.shape.representatives();
    const int columns = filled * P;
    if (columns == 0) return;
    MultiplyByTransposed(kPieceTokens, columns, K, {query, K}, {representatives, K}, scores,
                         columns);
    for (int row = 0; row < args.rows; ++row) {
      const float* score = scores + static_cast<ptrdiff_t>(row) * columns;
      for (int i = 0; i < filled; ++i, score += P) {
        if ((open[i] >> row & 1) == 0) continue;
        const float gate = rule.GateOf(score, P);
        if (gate > 0.0f) choice[row].Offer(chunk[i], gate);
      }
    }
    filled = 0;
  }
};

// Which of the piece's rows the first level lets read the chunk.
uint64_t OpenRowsOf(const RouteHeadArgs& args, const GateRule& rule, const ChunkView& chunk,
                    const float* query, const float* length, float* centre, float* dots) {
  const int K = args.shape.key_dim;
  const int8_t* centroid = chunk.centroid + HeadOf(args) * K;
  const float scale = chunk.centroid_scale[HeadOf(args)], radius = chunk.radius[HeadOf(args)];
  for (int d = 0; d < K; ++d) centre[d] = static_cast<float>(centroid[d]);
  DotRows(query, K, args.rows, K, centre, dots);
  uint64_t open = 0;
  for (int row = 0; row < args.rows; ++row) {
    const bool may = rule.MayOpen(scale * dots[row] + length[row] * radius);
    open |= static_cast<uint64_t>(may) << row;
  }
  return open;
}

}  // namespace

void RouteRow(const RouteHeadArgs& args) {
  const int K = args.shape.key_dim, P = args.shape.representatives();
  Choice choice(args.chunk, args.gate, args.shape.pages_max);
  OfferRecent(args, choice);
  if (args.query_weight != nullptr) {
    const GateRule rule(args);
    float* query = args.scratch;  // W_q q_raw
    float* scores = query + K;    // [P]
    DotRows(args.query_weight, K, K, K, args.query, query);
    float square = 0.0f;
    DotRows(query, K, 1, K, query, &square);
    const float length = std::sqrt(square);
    for (int32_t j = FirstRecent(args) - 1; j >= 0; --j) {
      const ChunkView& chunk = *args.chunks[j];
      const float centre = DotI8(chunk.centroid + HeadOf(args) * K, K, query);
      if (!rule.MayOpen(chunk.centroid_scale[HeadOf(args)] * centre +
                        length * chunk.radius[HeadOf(args)]))
        continue;
      DotRowsF16(RepresentativesOf(args, chunk), P, K, query, scores);
      const float gate = rule.GateOf(scores, P);
      if (gate > 0.0f) choice.Offer(j, gate);
    }
  }
  *args.count = choice.Finish();
}

void RoutePiece(const RouteHeadArgs& args) {
  const int K = args.shape.key_dim, P = args.shape.representatives();
  const auto make = [&](int row) {
    return Choice(args.chunk + row * args.list_stride, args.gate + row * args.list_stride,
                  args.shape.pages_max);
  };
  std::vector<Choice> choice;
  choice.reserve(kPieceTokens);
  for (int row = 0; row < args.rows; ++row) OfferRecent(args, choice.emplace_back(make(row)));
  if (args.query_weight != nullptr) {
    const GateRule rule(args);
    float* raw = args.scratch;                                         // [kPieceTokens, K]
    float* query = raw + static_cast<ptrdiff_t>(kPieceTokens) * K;     // [kPieceTokens, K]
    float* centre = query + static_cast<ptrdiff_t>(kPieceTokens) * K;  // [K]
    float* length = centre + K;                                        // [kPieceTokens]
    float* dots = length + kPieceTokens;                               // [kPieceTokens]
    Block block;
    block.representatives = dots + kPieceTokens;
    block.scores =
        block.representatives + RouteBlock(args.shape) * static_cast<size_t>(args.shape.key_dim);
    std::fill_n(raw, kPieceTokens * K, 0.0f);
    for (int row = 0; row < args.rows; ++row)
      std::copy_n(args.query + row * args.query_stride, K, raw + static_cast<ptrdiff_t>(row) * K);
    MultiplyByTransposed(kPieceTokens, K, K, {raw, K}, {args.query_weight, K}, query, K);
    for (int row = 0; row < args.rows; ++row) {
      const float* x = query + static_cast<ptrdiff_t>(row) * K;
      DotRows(x, K, 1, K, x, &length[row]);
      length[row] = std::sqrt(length[row]);
    }
    const int places = static_cast<int>(RouteBlock(args.shape)) / P;
    for (int32_t j = FirstRecent(args) - 1; j >= 0; --j) {
      const ChunkView& chunk = *args.chunks[j];
      const uint64_t open = OpenRowsOf(args, rule, chunk, query, length, centre, dots);
      if (open == 0) continue;
      F16ToF32Row(RepresentativesOf(args, chunk), int64_t{P} * K,
                  block.representatives + static_cast<ptrdiff_t>(block.filled) * P * K);
      block.chunk[block.filled] = j;
      block.open[block.filled++] = open;
      if (block.filled == places) block.Score(args, rule, query, choice.data());
    }
    block.Score(args, rule, query, choice.data());
  }
  for (int row = 0; row < args.rows; ++row)
    args.count[row * args.count_stride] = choice[static_cast<size_t>(row)].Finish();
}

}  // namespace mneme::kernels::cpu
