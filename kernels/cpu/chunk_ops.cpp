// The table entries that read or make closed chunks: route, represent, index, seal, fold and
// fold_pages. Each is one parallel loop over heads that share nothing.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/fold.h"
#include "kernels/gdn.h"
#include "kernels/gdn_chunk.h"
#include "kernels/page_codec.h"
#include "kernels/represent.h"
#include "kernels/route.h"

namespace mneme::kernels::cpu {
namespace {

// Addresses of the listed groups of row `row`; returns how many are not in memory.
int32_t FindGroups(const RouteArgs& args, const SessionView& session, int64_t row, int key_head) {
  const LinearShape& shape = args.shape;
  const int64_t list = row * shape.key_heads + key_head;
  const int64_t group = int64_t{args.paged_layer} * shape.key_heads + key_head;
  int32_t misses = 0;
  for (int32_t i = 0; i < args.list.count[list]; ++i) {
    const int64_t at = list * shape.pages_max + i;
    args.list.group[at] = session.chunks[args.list.chunk[at]]->groups[group];
    misses += args.list.group[at] == nullptr ? 1 : 0;
  }
  return misses;
}

// One key head of `rows` rows of a session; returns the misses.
int32_t RouteRows(const RouteArgs& args, const SessionView& session, int64_t first_row, int rows,
                  int key_head, float* scratch) {
  const LinearShape& shape = args.shape;
  const int64_t list = first_row * shape.key_heads + key_head;
  RouteHeadArgs head;
  head.shape = shape;
  head.key_head = key_head;
  if (args.routed_layer >= 0) {
    const ptrdiff_t K = shape.key_dim;
    head.routed_layer = args.routed_layer;
    head.query_weight = args.query_weight + key_head * K * K;
    head.bias = args.bias[key_head];
    head.query = args.projected + first_row * shape.projected_width() + key_head * K;
    head.query_stride = shape.projected_width();
  }
  head.theta = args.theta;
  head.recent_chunks = args.recent_chunks;
  head.chunks = session.chunks;
  head.chunk_count = session.chunk_count;
  head.rows = rows;
  head.chunk = args.list.chunk + list * shape.pages_max;
  head.gate = args.list.gate + list * shape.pages_max;
  head.list_stride = int64_t{shape.key_heads} * shape.pages_max;
  head.count = args.list.count + list;
  head.count_stride = shape.key_heads;
  head.scratch = scratch;
  args.step->form == RowForm::kDecode ? RouteRow(head) : RoutePiece(head);
  int32_t misses = 0;
  for (int i = 0; i < rows; ++i) misses += FindGroups(args, session, first_row + i, key_head);
  return misses;
}

// The first failure in order, so that the answer does not depend on threads.
Status FirstOf(std::vector<Status>& statuses) {
  for (Status& status : statuses) MNEME_TRY(std::move(status));
  return {};
}

TransitionArgs TransitionOf(const LinearShape& shape, const OpenRows& open, int value_head) {
  const int64_t T = shape.chunk_tokens, h = value_head, g = h / shape.heads_per_group();
  TransitionArgs args;
  args.key_dim = shape.key_dim;
  args.value_dim = shape.value_dim;
  args.tokens = shape.chunk_tokens;
  args.k = open.k + g * T * shape.key_dim;
  args.u = open.u + h * T * (shape.key_dim + shape.value_dim);
  args.c = open.c + h * T;
  return args;
}

Status SealGroup(const SealArgs& args, size_t layer, int key_head, float* scratch) {
  const LinearShape& shape = args.shape;
  std::byte* group =
      args.groups[layer * static_cast<size_t>(shape.key_heads) + static_cast<size_t>(key_head)];
  PageGroupHeader header =
      MakePageGroupHeader(shape, args.dtype, args.layer[layer], key_head, args.first_position);
  const int r = shape.heads_per_group();
  for (int head = 0; head < r; ++head) {
    TransitionArgs transition = TransitionOf(shape, args.open[layer], key_head * r + head);
    transition.out = scratch;
    transition.scratch =
        scratch + static_cast<ptrdiff_t>(shape.key_dim) * (shape.key_dim + shape.value_dim);
    ChunkTransition(transition);
    const int64_t width = shape.key_dim + shape.value_dim;
    MNEME_TRY(PackPage({.a = transition.out,
                        .b = transition.out + shape.key_dim,
                        .a_stride = width,
                        .b_stride = width,
                        .log_gamma = transition.c[shape.chunk_tokens - 1],
                        .head = head},
                       header, group));
  }
  std::memcpy(group, &header, sizeof(header));
  return {};
}

// One KV head's keys or values.
void SealKv(const float* from, int64_t count, Dtype dtype, std::byte* to, float* scratch) {
  if (dtype == Dtype::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  constexpr float kF16Max = 65504.0f;
  constexpr int64_t kAtOnce = 4096;
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - i);
    for (int64_t j = 0; j < n; ++j) scratch[j] = std::clamp(from[i + j], -kF16Max, kF16Max);
    F32ToF16Row(scratch, n, 1.0f, reinterpret_cast<uint16_t*>(to) + i);
  }
}

}  // namespace

Status Route(const RouteArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  CpuStream& cpu = AsCpu(stream);
  const StepTable& step = *args.step;
  const int G = args.shape.key_heads;
  std::atomic<int32_t> misses{0};
  const auto clear = [&](int64_t first, int64_t last) {
    std::fill(args.list.count + first * G, args.list.count + last * G, 0);
  };
  if (step.rows == 0) {
    *args.misses = 0;
    return {};
  }
  if (step.form == RowForm::kDecode) {
    cpu.pool().Run(int64_t{step.rows} * G, [&](int64_t item, int thread) {
      const int64_t row = item / G;
      if (step.session[row] < 0) {
        if (item % G == 0) clear(row, row + 1);
        return;
      }
      misses += RouteRows(args, step.sessions[step.session[row]], row, 1,
                          static_cast<int>(item % G), cpu.scratch(thread).data());
    });
  } else {
    cpu.pool().Run(int64_t{step.piece_count} * G, [&](int64_t item, int thread) {
      const Piece& piece = step.pieces[item / G];
      misses += RouteRows(args, step.sessions[0], piece.row, piece.tokens,
                          static_cast<int>(item % G), cpu.scratch(thread).data());
    });
    for (int32_t i = 0; i < step.piece_count; ++i)
      clear(step.pieces[i].row + step.pieces[i].tokens, step.pieces[i].row + kPieceTokens);
  }
  *args.misses = misses;
  return {};
}

Status Represent(const RepresentArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  CpuStream& cpu = AsCpu(stream);
  const LinearShape& shape = args.shape;
  const int64_t G = shape.key_heads, K = shape.key_dim,
                windows = args.last_window - args.first_window;
  const int64_t heads = static_cast<int64_t>(args.pool.size()) * G;
  cpu.pool().Run(heads * windows, [&](int64_t item, int thread) {
    const int64_t head = item / windows, window = args.first_window + item % windows;
    const int64_t g = head % G;
    const size_t layer = static_cast<size_t>(head / G);
    WindowArgs pool;
    pool.key_dim = shape.key_dim;
    pool.tokens = shape.window_tokens;
    pool.pool = {args.pool[layer].key + g * K * K, args.pool[layer].value + g * K * K,
                 args.pool[layer].output + g * K * K};
    pool.route_key =
        args.route_key[layer] + (g * shape.chunk_tokens + window * shape.window_tokens) * K;
    pool.representative = args.representatives + (head * shape.representatives() + window) * K;
    pool.scratch = cpu.scratch(thread).data();
    PoolWindow(pool);
  });
  return {};
}

Status Index(const IndexArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  const LinearShape& shape = args.shape;
  AsCpu(stream).pool().Run(int64_t{args.routed_layers} * shape.key_heads, [&](int64_t head, int) {
    CentreArgs centre;
    centre.key_dim = shape.key_dim;
    centre.representatives = shape.representatives();
    centre.representative = args.representatives + head * shape.representatives() * shape.key_dim;
    centre.centroid = args.centroid + head * shape.key_dim;
    centre.scale = args.centroid_scale + head;
    centre.radius = args.radius + head;
    FindCentre(centre);
  });
  return {};
}

Status Seal(const SealArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  CpuStream& cpu = AsCpu(stream);
  const int64_t G = args.shape.key_heads;
  const int64_t groups = static_cast<int64_t>(args.groups.size());
  const int64_t kv_heads = args.attention.kv_heads;
  const int64_t kv_items = static_cast<int64_t>(args.kv.size()) * 2 * kv_heads;
  const int64_t each = int64_t{args.attention.chunk_tokens} * args.attention.head_dim;
  std::vector<Status> failed(static_cast<size_t>(groups));
  cpu.pool().Run(groups + kv_items, [&](int64_t item, int thread) {
    float* scratch = cpu.scratch(thread).data();
    if (item < groups) {
      failed[static_cast<size_t>(item)] =
          SealGroup(args, static_cast<size_t>(item / G), static_cast<int>(item % G), scratch);
      return;
    }
    // Keys of all heads, then values of all heads.
    const int64_t part = (item - groups) % (2 * kv_heads), head = part % kv_heads;
    const size_t layer = static_cast<size_t>((item - groups) / (2 * kv_heads));
    const OpenKv& open = args.open_kv[layer];
    SealKv((part < kv_heads ? open.key : open.value) + head * each, each, args.dtype,
           args.kv[layer] + static_cast<size_t>(part * each) * BytesOf(args.dtype), scratch);
  });
  return FirstOf(failed);
}

Status Fold(const FoldArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  CpuStream& cpu = AsCpu(stream);
  const LinearShape& shape = args.shape;
  const int64_t H = shape.value_heads;
  cpu.pool().Run(static_cast<int64_t>(args.open.size()) * H, [&](int64_t item, int thread) {
    const int64_t head = item % H;
    const size_t layer = static_cast<size_t>(item / H);
    const TransitionArgs rows = TransitionOf(shape, args.open[layer], static_cast<int>(head));
    FoldRowsArgs fold;
    fold.key_dim = rows.key_dim;
    fold.value_dim = rows.value_dim;
    fold.tokens = rows.tokens;
    fold.k = rows.k;
    fold.u = rows.u;
    fold.c = rows.c;
    fold.state = args.state[layer] + head * shape.key_dim * shape.value_dim;
    fold.scratch = cpu.scratch(thread).data();
    FoldRows(fold);
  });
  return {};
}

Status FoldPages(const FoldPagesArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  CpuStream& cpu = AsCpu(stream);
  const LinearShape& shape = args.shape;
  const int64_t G = shape.key_heads;
  const int r = shape.heads_per_group();
  // Headers first: nothing is written when one of them is wrong.
  std::vector<PageGroupHeader> headers(args.state.size() * static_cast<size_t>(G));
  for (size_t i = 0; i < headers.size(); ++i) {
    if (args.gate[i / static_cast<size_t>(G)] == 0.0f) continue;
    Result<PageGroupHeader> header = ReadPageGroupHeader(args.chunk->groups[i], shape);
    if (!header) return Fail(std::move(header).error());
    headers[i] = *header;
  }
  cpu.pool().Run(static_cast<int64_t>(headers.size()), [&](int64_t item, int thread) {
    const size_t index = static_cast<size_t>(item), layer = static_cast<size_t>(item / G);
    if (args.gate[layer] == 0.0f) return;
    for (int head = 0; head < r; ++head) {
      FoldPageArgs fold;
      fold.page = PageOf(args.chunk->groups[index], headers[index], head);
      fold.key_dim = shape.key_dim;
      fold.value_dim = shape.value_dim;
      fold.gate = args.gate[layer];
      fold.state =
          args.state[layer] + (item % G * r + head) * int64_t{shape.key_dim} * shape.value_dim;
      fold.scratch = cpu.scratch(thread).data();
      FoldPage(fold);
    }
  });
  return {};
}

}  // namespace mneme::kernels::cpu
