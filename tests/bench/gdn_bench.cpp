// The ops of a Gated-DeltaNet layer at the demo model's head sizes (2 key and 2 value heads of 128,
// chunks of 256): one generated token and a piece of 64 prompt tokens, with 0 to 8 chunks of
// history, and what closes a chunk.
//
//   gdn_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "kernels/gdn.h"
#include "kernels/page_group.h"
#include "tests/support/gdn_definition.h"
#include "tests/support/gdn_session.h"

namespace mneme::kernels {
namespace {

LinearShape Demo(int pages) {
  return {.hidden = 384,
          .key_heads = 2,
          .value_heads = 2,
          .key_dim = 128,
          .value_dim = 128,
          .chunk_tokens = 256,
          .window_tokens = 16,
          .pages_max = std::max(pages, 1)};
}

// gdn_read of the last token of a full open chunk, `range(0)` chunks selected.
void Read(benchmark::State& state, RowForm form) {
  const int pages = static_cast<int>(state.range(0)), tokens = form == RowForm::kDecode ? 1 : 64;
  const LinearShape shape = Demo(pages);
  const int count = 256 * (pages + 1);
  const support::GdnTokens all = support::MakeTokens(shape, count, 1);
  support::GdnSession session(all,
                              {.dtype = Dtype::kF16, .threads = static_cast<int>(state.range(1))});
  session.Run({{.tokens = count - 1}}, [](int, int, int) { return 0.5f; });

  const int rows = tokens, first = count - tokens;
  std::vector<int32_t> position, of(static_cast<size_t>(rows), 0);
  for (int i = 0; i < rows; ++i) position.push_back(first + i);
  const Piece piece = {.row = 0, .tokens = tokens, .position = first};
  const OpenRows open = session.open();
  SessionView view;
  view.open = &open;
  StepTable step;
  step.form = form;
  step.rows = rows;
  step.position = position.data();
  step.session = of.data();
  step.pieces = &piece;
  step.piece_count = form == RowForm::kDecode ? 0 : 1;
  step.sessions = &view;
  step.session_count = 1;
  const int lists = rows * 2, M = shape.pages_max;
  std::vector<int32_t> chunk(static_cast<size_t>(lists * M)),
      used(static_cast<size_t>(lists), pages);
  std::vector<float> gate(chunk.size(), 0.5f), share(chunk.size());
  std::vector<const std::byte*> group(chunk.size());
  for (int list = 0; list < lists; ++list) {
    for (int m = 0; m < pages; ++m) {
      const size_t at = static_cast<size_t>(list * M + m);
      chunk[at] = pages - 1 - m;
      group[at] = session.groups()[static_cast<size_t>(chunk[at] * 2 + list % 2)].data();
    }
  }
  const auto from = [&](const std::vector<float>& x, int width) {
    return x.data() + first * width;
  };
  std::vector<float> projected(static_cast<size_t>(rows * shape.projected_width()), 0.25f);
  std::vector<float> out(static_cast<size_t>(rows * shape.value_width()));
  GdnReadArgs args;
  args.step = &step;
  args.shape = shape;
  args.projected = projected.data();
  args.q = from(all.q, shape.key_width());
  args.k = from(all.k, shape.key_width());
  args.v = from(all.v, shape.value_width());
  args.write_strength = from(all.write_strength, 2);
  args.log_decay = from(all.log_decay, 2);
  args.list = {chunk.data(), gate.data(), group.data(), used.data()};
  args.norm_weight = session.norm_weight().data();
  args.epsilon = 1e-6f;
  args.out = out.data();
  args.share = share.data();
  for (auto _ : state) {
    if (!cpu::GdnRead(args, session.stream())) state.SkipWithError("refused");
  }
}

BENCHMARK_CAPTURE(Read, token, RowForm::kDecode)
    ->ArgsProduct({{0, 1, 4, 8}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(Read, piece, RowForm::kPrefill)
    ->ArgsProduct({{0, 1, 4, 8}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

void Prepare(benchmark::State& state, RowForm form) {
  const LinearShape shape = Demo(1);
  const int rows = form == RowForm::kDecode ? 1 : 64;
  cpu::CpuStream stream(1);
  std::vector<float> projected(static_cast<size_t>(rows * shape.projected_width()), 0.25f);
  std::vector<float> weight(static_cast<size_t>(shape.conv_width() * kConvTaps), 0.5f);
  std::vector<float> conv(static_cast<size_t>(6 * shape.conv_width())), head(2, 0.5f);
  std::vector<float> q(static_cast<size_t>(rows * 256)), k = q, v = q, b(q), g(q);
  std::vector<int32_t> position, of(static_cast<size_t>(rows), 0);
  for (int i = 0; i < rows; ++i) position.push_back(64 + i);
  const Piece piece = {.row = 0, .tokens = rows, .position = 64};
  float ignored = 0.0f;
  const OpenRows open = {.k = &ignored, .u = &ignored, .c = &ignored, .conv = conv.data()};
  SessionView view;
  view.open = &open;
  StepTable step;
  step.form = form;
  step.rows = rows;
  step.position = position.data();
  step.session = of.data();
  step.pieces = &piece;
  step.piece_count = form == RowForm::kDecode ? 0 : 1;
  step.sessions = &view;
  step.session_count = 1;
  GdnPrepareArgs args;
  args.step = &step;
  args.shape = shape;
  args.projected = projected.data();
  args.conv_weight = weight.data();
  args.decay_rate = args.dt_bias = head.data();
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.write_strength = b.data();
  args.log_decay = g.data();
  for (auto _ : state) {
    if (!cpu::GdnPrepare(args, stream)) state.SkipWithError("refused");
  }
}
BENCHMARK_CAPTURE(Prepare, token, RowForm::kDecode)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Prepare, piece, RowForm::kPrefill)->Unit(benchmark::kMicrosecond);

// Everything below works on one layer of the demo model.
struct Chunk {
  LinearShape shape = Demo(16);
  std::vector<float> k = std::vector<float>(2 * 256 * 128, 0.05f);
  std::vector<float> u = std::vector<float>(2 * 256 * 256, 0.01f);
  std::vector<float> c = std::vector<float>(2 * 256, -0.5f);
  std::vector<float> state = std::vector<float>(2 * 128 * 128);
  OpenRows open = {.k = k.data(), .u = u.data(), .c = c.data()};
  std::vector<std::byte> bytes =
      std::vector<std::byte>(2 * PageGroupBytes(1, 128, 128, Dtype::kF16));
  std::byte* groups[2] = {bytes.data(), bytes.data() + bytes.size() / 2};
};

void SealLayer(benchmark::State& state) {
  Chunk chunk;
  cpu::CpuStream stream(1);
  const int layer = 0;
  SealArgs args;
  args.shape = chunk.shape;
  args.open = {&chunk.open, 1};
  args.layer = {&layer, 1};
  args.groups = chunk.groups;
  for (auto _ : state) {
    if (!cpu::Seal(args, stream)) state.SkipWithError("refused");
  }
}
BENCHMARK(SealLayer)->Unit(benchmark::kMicrosecond);

void FoldLayer(benchmark::State& state) {
  Chunk chunk;
  cpu::CpuStream stream(1);
  float* const states[] = {chunk.state.data()};
  FoldArgs args;
  args.shape = chunk.shape;
  args.open = {&chunk.open, 1};
  args.state = states;
  for (auto _ : state) {
    if (!cpu::Fold(args, stream)) state.SkipWithError("refused");
  }
}
BENCHMARK(FoldLayer)->Unit(benchmark::kMicrosecond);

void RepresentWindow(benchmark::State& state) {
  Chunk chunk;
  cpu::CpuStream stream(1);
  const std::vector<float> weight(2 * 128 * 128, 0.01f);
  const PoolWeights pool = {weight.data(), weight.data(), weight.data()};
  const float* const keys = chunk.k.data();
  std::vector<uint16_t> representatives(2 * 16 * 128);
  RepresentArgs args;
  args.shape = chunk.shape;
  args.pool = {&pool, 1};
  args.route_key = {&keys, 1};
  args.first_window = 3;
  args.last_window = 4;
  args.representatives = representatives.data();
  for (auto _ : state) {
    if (!cpu::Represent(args, stream)) state.SkipWithError("refused");
  }
}
BENCHMARK(RepresentWindow)->Unit(benchmark::kMicrosecond);

// `range(0)` closed chunks; `range(1)`: every chunk must be scored, or the first level spares all.
void RouteChunks(benchmark::State& state, RowForm form) {
  const LinearShape shape = Demo(16);
  const int count = static_cast<int>(state.range(0)), rows = form == RowForm::kDecode ? 1 : 64;
  std::vector<uint16_t> representatives(static_cast<size_t>(count) * 2 * 16 * 128, F32ToF16(0.1f));
  std::vector<int8_t> centroid(static_cast<size_t>(count) * 256, 100);
  const std::vector<float> scale(2, 0.001f), radius(2, state.range(1) != 0 ? 1000.0f : 0.0f);
  std::vector<ChunkView> chunks(static_cast<size_t>(count));
  std::vector<const ChunkView*> list;
  std::byte byte{};
  const std::byte* const groups[] = {&byte, &byte};
  for (size_t j = 0; j < chunks.size(); ++j) {
    chunks[j].groups = groups;
    chunks[j].representatives = &representatives[j * 2 * 16 * 128];
    chunks[j].centroid = &centroid[j * 256];
    chunks[j].centroid_scale = scale.data();
    chunks[j].radius = radius.data();
    list.push_back(&chunks[j]);
  }
  const std::vector<float> weight(2 * 128 * 128, 0.001f), bias(2, -6.0f);
  const std::vector<float> projected(static_cast<size_t>(rows * shape.projected_width()), 0.1f);
  std::vector<int32_t> position(static_cast<size_t>(rows), 0), of(static_cast<size_t>(rows), 0);
  std::vector<int32_t> chunk(static_cast<size_t>(rows * 32)), used(static_cast<size_t>(rows * 2));
  std::vector<float> gate(chunk.size());
  std::vector<const std::byte*> group(chunk.size());
  const Piece piece = {.row = 0, .tokens = rows, .position = 0};
  SessionView view;
  view.chunks = list.data();
  view.chunk_count = count;
  StepTable step;
  step.form = form;
  step.rows = rows;
  step.position = position.data();
  step.session = of.data();
  step.pieces = &piece;
  step.piece_count = form == RowForm::kDecode ? 0 : 1;
  step.sessions = &view;
  step.session_count = 1;
  int32_t misses = 0;
  RouteArgs args;
  args.step = &step;
  args.shape = shape;
  args.routed_layer = 0;
  args.projected = projected.data();
  args.query_weight = weight.data();
  args.bias = bias.data();
  args.theta = 0.1f;
  args.list = {chunk.data(), gate.data(), group.data(), used.data()};
  args.misses = &misses;
  cpu::CpuStream stream(1);
  for (auto _ : state) {
    if (!cpu::Route(args, stream)) state.SkipWithError("refused");
  }
}
BENCHMARK_CAPTURE(RouteChunks, token, RowForm::kDecode)
    ->ArgsProduct({{16, 512, 8192}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(RouteChunks, piece, RowForm::kPrefill)
    ->ArgsProduct({{16, 512, 8192}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mneme::kernels
