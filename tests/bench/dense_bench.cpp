// The weight matrices of whole models, one pass after the other, in both forms, against what the
// machine allows: reading as many bytes with the same threads (decode), and one BLAS product of the
// same sizes with all rows at once on f32 weights (prefill).
//
//   dense_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only
//
// Compare minimum times: other work on the machine only ever adds.
#include <benchmark/benchmark.h>
#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/gemm.h"

namespace mneme::kernels {
namespace {

using cpu::CpuStream;
using cpu::MatrixProduct;

struct Sizes {
  int64_t outputs;
  int64_t inputs;
  int count;
};

// The demo model: width 384, 5 layers of 2 + 2 heads of 128, MLP 1216, vocabulary 4096.
const std::vector<Sizes> kDemo = {
    {1028, 384, 5}, {384, 256, 5}, {2432, 384, 5}, {384, 1216, 5}, {4096, 384, 1}};

// The published 0.8B shape: 18 linear and 6 attention layers of width 1024.
const std::vector<Sizes> k08B = {{8224, 1024, 18}, {1024, 2048, 24}, {5120, 1024, 6},
                                 {7168, 1024, 24}, {1024, 3584, 24}, {248320, 1024, 1}};

const std::vector<Sizes>& ModelOf(int64_t which) { return which == 0 ? kDemo : k08B; }

using Weights = std::vector<std::unique_ptr<PackedMatrix>>;

// Packed once per model and kept: 1.5 GB for the larger.
const Weights& WeightsOf(int64_t which) {
  static std::map<int64_t, Weights> made;
  if (made.count(which) != 0) return made[which];
  Weights weights;
  for (const Sizes& sizes : ModelOf(which)) {
    std::vector<uint16_t> values(static_cast<size_t>(sizes.outputs * sizes.inputs));
    uint32_t state = 1;
    for (uint16_t& value : values) {
      state = state * 1664525u + 1013904223u;
      value = F32ToBf16((static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 0.1f);
    }
    const TensorView view{reinterpret_cast<const std::byte*>(values.data()), Dtype::kBf16,
                          sizes.outputs, sizes.inputs};
    for (int i = 0; i < sizes.count; ++i)
      weights.push_back(std::move(cpu::PanelMatrix::Pack({&view, 1}).value()));
  }
  return made[which] = std::move(weights);
}

CpuStream& StreamOf(int64_t threads) {
  static std::map<int64_t, std::unique_ptr<CpuStream>> made;
  auto& stream = made[threads];
  if (stream == nullptr) stream = std::make_unique<CpuStream>(static_cast<int>(threads));
  return *stream;
}

std::vector<float> Rows(int64_t floats) {
  std::vector<float> rows(static_cast<size_t>(floats));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return rows;
}

constexpr int64_t kInputsMax = 3584;
constexpr int64_t kOutputsMax = 248320;

// args: model, threads, rows
void Decode(benchmark::State& state) {
  const Weights& weights = WeightsOf(state.range(0));
  CpuStream& stream = StreamOf(state.range(1));
  const int64_t rows = state.range(2);
  const std::vector<float> x = Rows(rows * kInputsMax);
  std::vector<float> out(static_cast<size_t>(rows * kOutputsMax));
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const auto& weight : weights) {
      MatrixProduct product{weight.get(), x.data(), kInputsMax, out.data(), weight->rows(), rows};
      cpu::MultiplyRows(product, stream);
      bytes += static_cast<int64_t>(weight->bytes_read());
    }
  }
  state.SetBytesProcessed(bytes);
  state.SetItemsProcessed(state.iterations() * rows);
}

__attribute__((target_clones("avx512f", "avx2", "default"))) uint64_t ReadWords(const uint64_t* at,
                                                                                size_t count) {
  uint64_t sums[32] = {};
  for (size_t i = 0; i + 32 <= count; i += 32) {
    for (size_t lane = 0; lane < 32; ++lane) sums[lane] ^= at[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum ^= lane;
  return sum;
}

// args: model, threads. One buffer of as many bytes as the model's weights, in the same pages.
void ReadRate(benchmark::State& state) {
  size_t bytes = 0;
  for (const auto& weight : WeightsOf(state.range(0))) bytes += weight->bytes_read();
  CpuStream& stream = StreamOf(state.range(1));
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t rounded = (bytes + kHuge - 1) / kHuge * kHuge;
  std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(kHuge, rounded), std::free);
  madvise(buffer.get(), rounded, MADV_HUGEPAGE);
  std::memset(buffer.get(), 1, rounded);
  const auto* words = static_cast<const uint64_t*>(buffer.get());
  constexpr size_t kPieceBytes = size_t{64} << 10;
  for (auto _ : state) {
    stream.pool().Run(static_cast<int64_t>(bytes / kPieceBytes), [&](int64_t piece, int) {
      benchmark::DoNotOptimize(
          ReadWords(words + static_cast<size_t>(piece) * kPieceBytes / 8, kPieceBytes / 8));
    });
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

double Flops(int64_t which, int64_t rows) {
  double flops = 0;
  for (const Sizes& sizes : ModelOf(which)) {
    if (sizes.outputs == kOutputsMax || sizes.outputs == 4096) continue;  // the head sees one row
    flops += 2.0 * static_cast<double>(sizes.outputs * sizes.inputs * rows * sizes.count);
  }
  return flops;
}

// args: model, threads; all matrices but the head, 256 rows
void Prefill(benchmark::State& state) {
  const Weights& weights = WeightsOf(state.range(0));
  CpuStream& stream = StreamOf(state.range(1));
  const int64_t rows = 256;
  const std::vector<float> x = Rows(rows * kInputsMax);
  std::vector<float> out(static_cast<size_t>(rows * 8224));
  for (auto _ : state) {
    for (const auto& weight : weights) {
      if (weight == weights.back()) continue;
      MatrixProduct product{weight.get(), x.data(),       weight->cols(),
                            out.data(),   weight->rows(), rows};
      cpu::MultiplyPieces(product, stream);
    }
  }
  state.counters["flops"] =
      benchmark::Counter(Flops(state.range(0), rows) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

// args: model, threads; the same products by one BLAS call each (one thread) or one call a thread
// on its share of the rows of W.
void BlasAlone(benchmark::State& state) {
  CpuStream& stream = StreamOf(state.range(1));
  const int64_t threads = state.range(1);
  const int64_t rows = 256;
  const std::vector<float> x = Rows(rows * kInputsMax);
  const std::vector<float> w = Rows(8224 * 1024);
  std::vector<float> out(static_cast<size_t>(rows * 8224));
  for (auto _ : state) {
    for (const Sizes& sizes : ModelOf(state.range(0))) {
      if (sizes.outputs == kOutputsMax || sizes.outputs == 4096) continue;
      for (int i = 0; i < sizes.count; ++i) {
        const auto share = (sizes.outputs + threads - 1) / threads;
        stream.pool().Run(threads, [&](int64_t part, int) {
          const int64_t first = part * share;
          const int64_t n = std::min(share, sizes.outputs - first);
          const auto inputs = static_cast<int>(sizes.inputs);
          cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, static_cast<int>(n), inputs,
                      1.0f, x.data(), inputs, w.data() + first * sizes.inputs, inputs, 0.0f,
                      out.data() + first, static_cast<int>(sizes.outputs));
        });
      }
    }
  }
  state.counters["flops"] =
      benchmark::Counter(Flops(state.range(0), rows) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

BENCHMARK(ReadRate)->UseRealTime()->ArgsProduct({{0, 1}, {1, 2}});
BENCHMARK(Decode)->UseRealTime()->ArgsProduct({{0, 1}, {1, 2}, {1, 2, 4, 8}});
BENCHMARK(BlasAlone)->UseRealTime()->ArgsProduct({{0, 1}, {1, 2}});
BENCHMARK(Prefill)->UseRealTime()->ArgsProduct({{0, 1}, {1, 2}});

}  // namespace
}  // namespace mneme::kernels
