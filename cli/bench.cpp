// mneme bench: how fast this machine runs a model's steps, as shares of what its memory and its
// matrix library can do in the same run.
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "cli/bench_model.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/gate_bench.h"
#include "cli/terminal.h"
#include "kernels/gemm.h"
#include "kernels/thread_pool.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
examples:
  mneme bench --model checkpoints/demo
  mneme bench --model checkpoints/demo --history 32768 --json
  mneme bench --model checkpoints/demo --gates 3
  mneme bench --shape 0.8b --history 512

decode     one token at a time; share: bytes it must read (weights, open rows, chosen pages or
           folded state, keys and values) over the time, against the rate at which the same threads
           read a buffer of that size
batch      several sessions decode together; gain: tokens per second over those of one
prefill    a prompt, all of its work; share: against the matrix library multiplying 256 rows at a
           time by the same matrices and doing nothing else

With --gates N instead: what a token takes when every key head of every routed layer reads exactly N
closed chunks, as a multiple of native in the same run. The readers take turns, one chunk of 256
tokens and its sealing at a time, after the whole chunks of the history.
  hla      the folder's router scores all closed chunks; N of them are read. Not without a router
  mhla     static gates, 1 for the newest N chunks in every linear layer; needs no mixing file

Every figure is the best of its repeats: the machine may be shared.)";

struct BenchCommand {
  BenchModel model;
  size_t history = 4096;
  int batch = 8;
  int gates = 0;  // above 0: their figures instead
  int repeats = 5;
  bool json = false;
};

// Seconds of the quickest of `repeats` runs.
double Best(int repeats, const std::function<void()>& run) {
  double best = 1e30;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const int64_t started_us = RealClock().MonotonicUs();
    run();
    best = std::min(best, static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6);
  }
  return best;
}

// The sum of `count` words, asked for in time.
uint64_t SumOf(const uint64_t* words, size_t count) {
  constexpr size_t kLineWords = 8;
  constexpr size_t kAheadWords = 512;
  uint64_t sums[kLineWords] = {};
  for (size_t line = 0; line + kLineWords <= count; line += kLineWords) {
    __builtin_prefetch(words + line + kAheadWords);
    for (size_t word = 0; word < kLineWords; ++word) sums[word] += words[line + word];
  }
  return std::accumulate(std::begin(sums), std::end(sums), uint64_t{0});
}

// Tokens decoded in one measurement, and times that a buffer is read in one: equally long stretches
// meet as much of what else runs on the machine.
constexpr int kDecodeTokens = 32;

// Bytes per second at which `threads` read a buffer of `bytes` once, in pieces that go to whoever
// is free, as the panels of a matrix do.
double ReadRate(size_t bytes, int threads, int repeats) {
  kernels::ThreadPool pool(threads);
  // In huge pages, as packed weights are.
  constexpr size_t kHugePageBytes = 2 * kMiB;
  const size_t count = std::max<size_t>(bytes / sizeof(uint64_t), 1024);
  const size_t room = (count * sizeof(uint64_t) / kHugePageBytes + 1) * kHugePageBytes;
  const std::unique_ptr<uint64_t, void (*)(void*)> buffer(
      static_cast<uint64_t*>(std::aligned_alloc(kHugePageBytes, room)), std::free);
  MNEME_CHECK(buffer != nullptr, "no memory for {} bytes", room);
  madvise(buffer.get(), room, MADV_HUGEPAGE);
  std::fill_n(buffer.get(), count, 1u);
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  constexpr size_t kPieceWords = 8192;
  const auto pieces = static_cast<int64_t>((count + kPieceWords - 1) / kPieceWords);
  const double seconds = Best(repeats, [&] {
    for (int pass = 0; pass < kDecodeTokens; ++pass) {
      pool.Run(pieces, [&](int64_t piece, int thread) {
        const size_t first = static_cast<size_t>(piece) * kPieceWords;
        sums[static_cast<size_t>(thread)] +=
            SumOf(buffer.get() + first, std::min(kPieceWords, count - first));
      });
    }
  });
  if (std::all_of(sums.begin(), sums.end(), [](uint64_t sum) { return sum == 0; })) return 0;
  return static_cast<double>(count * sizeof(uint64_t)) * kDecodeTokens / seconds;
}

// One matrix product of the model, W [outputs, inputs].
struct Product {
  int64_t outputs = 0;
  int64_t inputs = 0;
};

std::vector<Product> ProductsOf(const model::LoadedModel& model) {
  std::vector<Product> products;
  const auto add = [&](const kernels::PackedMatrix& matrix) {
    products.push_back({.outputs = matrix.rows(), .inputs = matrix.cols()});
  };
  for (const model::DecoderLayer& layer : model.layers()) {
    add(layer.linear ? *layer.linear->project_in : *layer.attention->project_in);
    add(layer.linear ? *layer.linear->project_out : *layer.attention->project_out);
    add(*layer.gate_up);
    add(*layer.down);
  }
  return products;
}

// Seconds in which the matrix library multiplies kLibraryRows rows by all of the products, each
// thread a share of a matrix's outputs.
constexpr int kLibraryRows = 256;

double LibrarySeconds(const std::vector<Product>& products, int threads, int repeats) {
  int64_t widest = 0;
  int64_t largest = 0;
  for (const Product& product : products) {
    widest = std::max({widest, product.outputs, product.inputs});
    largest = std::max(largest, product.outputs * product.inputs);
  }
  const std::vector<float> in(static_cast<size_t>(kLibraryRows * widest), 0.5f);
  const std::vector<float> weight(static_cast<size_t>(largest), 0.25f);
  std::vector<float> out(static_cast<size_t>(kLibraryRows * widest));
  kernels::ThreadPool pool(threads);
  return Best(repeats, [&] {
    for (const Product& product : products) {
      pool.Run(threads, [&](int64_t piece, int) {
        const int64_t first = product.outputs * piece / threads;
        const int64_t last = product.outputs * (piece + 1) / threads;
        kernels::cpu::Multiply({.rows = kLibraryRows,
                                .cols = static_cast<int>(last - first),
                                .inner = static_cast<int>(product.inputs),
                                .a = in.data(),
                                .a_stride = product.inputs,
                                .b = weight.data() + first * product.inputs,
                                .b_stride = product.inputs,
                                .transpose_b = true,
                                .c = out.data() + first,
                                .c_stride = product.outputs});
      });
    }
  });
}

struct Figures {
  int threads = 1;
  size_t history = 0;
  int batch = 0;
  double read_rate = 0;     // bytes per second
  double decode_rate = 0;   // tokens per second, one session
  double decode_bytes = 0;  // per token
  double batch_rate = 0;    // tokens per second, all sessions
  double prefill_rate = 0;  // tokens per second
  double library_rate = 0;  // tokens per second, if its matrices were all

  double decode_share() const { return decode_rate * decode_bytes / read_rate; }
  double batch_gain() const { return batch_rate / decode_rate; }
  double prefill_share() const { return prefill_rate / library_rate; }
};

// Bytes one decoded token reads: weights, the open rows before it, the pages of its lists or the
// folded state, and the keys and values of `closed_rows` and `open_rows` tokens.
double DecodeBytes(model::LocalModel& model, const model::StepCounters& before, uint64_t tokens,
                   uint64_t closed_rows, int open_rows) {
  const memory::MemoryLayout& layout = model.model().layout();
  const kernels::LinearShape& shape = layout.linear;
  const double row_floats =
      shape.key_width() + shape.value_heads * (shape.key_dim + shape.value_dim + 1);
  const double rows =
      static_cast<double>(layout.linear_layers.size()) * row_floats * sizeof(float) * open_rows;
  const uint64_t entries = model.step().counters().all_gates().open - before.all_gates().open;
  const double pages = static_cast<double>(entries) / static_cast<double>(tokens) *
                       static_cast<double>(layout.group_bytes());
  const double folded = layout.folds() ? static_cast<double>(layout.linear_layers.size() *
                                                             layout.folded_floats() * sizeof(float))
                                       : 0;
  const size_t kv_numbers = layout.attention_layers.size() * 2 *
                            static_cast<size_t>(layout.attention.kv_heads) *
                            static_cast<size_t>(layout.attention.head_dim);
  const double kv = static_cast<double>(kv_numbers) *
                    (static_cast<double>(closed_rows * kernels::BytesOf(layout.page_dtype)) +
                     static_cast<double>(sizeof(float)) * open_rows);
  return static_cast<double>(model.model().bytes_read()) + rows + pages + folded + kv;
}

Status MeasureDecode(model::LocalModel& model, const model::LocalSession& history,
                     const BenchCommand& command, Figures& figures) {
  const int vocab = model.model().config().vocab;
  const std::vector<int32_t> tokens = AnyTokens(kDecodeTokens, vocab);
  const auto decode = [&](int sessions) -> Result<double> {
    double best = 1e30;
    for (int repeat = 0; repeat < command.repeats; ++repeat) {
      std::vector<memory::SessionMemory> memories;
      memories.reserve(static_cast<size_t>(sessions));
      for (int session = 0; session < sessions; ++session)
        memories.push_back(history.memory().Fork());
      std::vector<model::DecodeRow> rows(memories.size());
      std::vector<model::DecodeResult> results(memories.size());
      const int64_t started_us = RealClock().MonotonicUs();
      for (const int32_t token : tokens) {
        for (size_t row = 0; row < rows.size(); ++row)
          rows[row] = {.memory = &memories[row], .token = token, .sampling = {}};
        MNEME_TRY(model.step().Decode(rows, results));
      }
      best = std::min(best, static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6);
    }
    return sessions * kDecodeTokens / best;
  };
  const model::StepCounters before = model.step().counters();
  const auto one = decode(1);
  MNEME_TRY(one);
  figures.decode_rate = *one;
  figures.decode_bytes =
      DecodeBytes(model, before, uint64_t{kDecodeTokens} * static_cast<uint64_t>(command.repeats),
                  history.position() - static_cast<uint64_t>(history.memory().open_tokens()),
                  history.memory().open_tokens() + kDecodeTokens / 2);
  const auto many = decode(command.batch);
  MNEME_TRY(many);
  figures.batch_rate = *many;
  return {};
}

Result<Figures> Measure(model::LocalModel& model, int threads, const BenchCommand& command) {
  Figures figures = {.threads = threads, .history = command.history, .batch = command.batch};
  // Half a chunk stays open, so that decoding neither seals nor starts from nothing.
  const auto chunk = static_cast<size_t>(model.model().layout().chunk_tokens());
  figures.history = command.history / chunk * chunk + chunk / 2;
  const std::vector<int32_t> tokens = AnyTokens(figures.history, model.model().config().vocab);
  model::LocalSession session(model);
  double seconds = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the first run touches the memory
    model::LocalSession reading(model);
    const int64_t started_us = RealClock().MonotonicUs();
    MNEME_TRY(reading.Read(tokens));
    seconds = static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6;
    session = std::move(reading);
  }
  figures.prefill_rate = static_cast<double>(tokens.size()) / seconds;
  const std::vector<Product> products = ProductsOf(model.model());
  figures.library_rate = kLibraryRows / LibrarySeconds(products, threads, command.repeats);
  MNEME_TRY(MeasureDecode(model, session, command, figures));
  figures.read_rate = ReadRate(static_cast<size_t>(figures.decode_bytes), threads, command.repeats);
  return figures;
}

void Print(const Figures& figures, bool json) {
  if (json) {
    const boost::json::object reply = {{"threads", figures.threads},
                                       {"history_tokens", figures.history},
                                       {"decode_tokens_per_second", figures.decode_rate},
                                       {"decode_bytes_per_token", figures.decode_bytes},
                                       {"read_bytes_per_second", figures.read_rate},
                                       {"decode_share_of_read_rate", figures.decode_share()},
                                       {"batch", figures.batch},
                                       {"batch_tokens_per_second", figures.batch_rate},
                                       {"batch_gain", figures.batch_gain()},
                                       {"prefill_tokens_per_second", figures.prefill_rate},
                                       {"library_tokens_per_second", figures.library_rate},
                                       {"prefill_share_of_library", figures.prefill_share()}};
    fmt::print("{}\n", boost::json::serialize(reply));
    return;
  }
  fmt::print("{}, {} of history: whole chunks and half an open one\n",
             CountOf(static_cast<uint64_t>(figures.threads), "thread"),
             CountOf(figures.history, "token"));
  fmt::print("  decode   {:>8.0f} tokens/s  {} a token, {:.0f} % of {}/s\n", figures.decode_rate,
             Bytes(static_cast<uint64_t>(figures.decode_bytes)), 100 * figures.decode_share(),
             Bytes(static_cast<uint64_t>(figures.read_rate)));
  fmt::print("  batch {}  {:>8.0f} tokens/s  {:.1f} times one session\n", figures.batch,
             figures.batch_rate, figures.batch_gain());
  fmt::print("  prefill  {:>8.0f} tokens/s  {:.0f} % of the matrix library alone\n",
             figures.prefill_rate, 100 * figures.prefill_share());
}

void PrintGates(const std::vector<ReaderTime>& times, int threads, const BenchCommand& command) {
  const auto chunk = static_cast<size_t>(model::kChunkTokens);
  const size_t history = command.history / chunk * chunk;
  const double native = times.front().token_seconds;
  if (command.json) {
    boost::json::object reply = {
        {"threads", threads}, {"history_tokens", history}, {"gates", command.gates}};
    for (const ReaderTime& time : times) {
      const std::string name(NameOf(time.reader));
      reply[name + "_tokens_per_second"] = 1 / time.token_seconds;
      if (time.reader != memory::Reader::kNative)
        reply[name + "_time_of_native"] = time.token_seconds / native;
    }
    fmt::print("{}\n", boost::json::serialize(reply));
    return;
  }
  fmt::print("{}, {} of history, {} open for every token and key head of a routed layer\n",
             CountOf(static_cast<uint64_t>(threads), "thread"), CountOf(history, "token"),
             CountOf(static_cast<uint64_t>(command.gates), "gate"));
  for (const ReaderTime& time : times)
    fmt::print("  {:<8} {:>8.0f} tokens/s  {:.2f} times native's time for a token\n",
               NameOf(time.reader), 1 / time.token_seconds, time.token_seconds / native);
}

Status Run(BenchCommand& command) {
  const int threads = ThreadsOf(command.model.choice);
  if (command.gates > 0) {
    const auto times = MeasureGates({.model = command.model,
                                     .gates = command.gates,
                                     .history = command.history,
                                     .repeats = command.repeats});
    MNEME_TRY(times);
    PrintGates(*times, threads, command);
    return {};
  }
  command.model.choice.batch_max = command.batch;
  const auto model = MakeBenchModel(command.model);
  MNEME_TRY(model);
  const auto figures = Measure(**model, threads, command);
  MNEME_TRY(figures);
  Print(*figures, command.json);
  return {};
}

}  // namespace

int RunBench(int argc, char** argv) {
  BenchCommand command;
  CLI::App app("Measures how fast this machine runs a model's steps.", "mneme bench");
  app.footer(kFooter);
  AddLocalModelOptions(app, command.model.choice);
  CLI::Option* folder = app.get_option("--model")->required(false);
  app.add_option("--shape", command.model.shape,
                 "instead of --model: random weights in the sizes of a published model; 0.8b is "
                 "Qwen3.5-0.8B in bf16 (reader native, 4 GiB of memory while it loads)")
      ->check(CLI::IsMember({"0.8b"}))
      ->excludes(folder);
  app.add_option(
         "--history", command.history,
         "tokens read before decoding: whole chunks of it, and half a chunk more, so that no "
         "decoded token closes one")
      ->check(CLI::Range(256, 1 << 24))
      ->capture_default_str();
  CLI::Option* batch = app.add_option("--batch", command.batch, "sessions that decode together")
                           ->check(CLI::Range(1, 64))
                           ->capture_default_str();
  app.add_option("--gates", command.gates,
                 "instead: what a token takes with so many gates open, as a multiple of native")
      ->check(CLI::Range(1, model::kPagesMaxMax))
      ->excludes(batch)
      ->excludes(app.get_option("--reader"));
  app.add_option("--repeats", command.repeats, "runs of each figure; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--json", command.json, "one JSON object instead of text");
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  if (command.model.choice.folder.empty() && command.model.shape.empty())
    return RefuseUsage(app, "nothing to measure: give --model DIR or --shape 0.8b");
  if (const Status status = Run(command); !status)
    return Complain("bench", status.error(), command.json);
  return kExitOk;
}

}  // namespace mneme::cli
