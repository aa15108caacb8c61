#include "cli/gate_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "cli/terminal.h"
#include "model/router_weights.h"

namespace mneme::cli {
namespace {

using memory::Reader;

constexpr auto kChunk = static_cast<size_t>(model::kChunkTokens);

// A reader's model and a session of it at the end of the history.
class Racer {
 public:
  static Result<Racer> Make(Reader reader, const GateBenchOptions& options) {
    BenchModel choice = options.model;
    choice.choice.reader = reader == Reader::kMhla ? "" : NameOf(reader);
    choice.choice.newest_open = reader == Reader::kMhla ? options.gates : 0;
    auto made = MakeBenchModel(choice);
    MNEME_TRY(made);
    Racer racer(reader, *std::move(made), static_cast<uint64_t>(options.gates));
    const int vocab = racer.model_->model().config().vocab;
    MNEME_TRY(racer.history_->Read(AnyTokens(options.history / kChunk * kChunk, vocab)));
    if (reader == Reader::kHla) racer.model_->step().OpenGates(options.gates);
    return racer;
  }

  // Generates a chunk after the history.
  Status TakeTurn() {
    model::LocalSession session = history_->Fork();
    const std::vector<int32_t> tokens = AnyTokens(kChunk, model_->model().config().vocab);
    const model::GateCount before = model_->step().counters().all_gates();
    const int64_t started_us = RealClock().MonotonicUs();
    for (const int32_t token : tokens) {
      MNEME_TRY(session.Next({}));
      MNEME_TRY(session.Feed(token));
    }
    const auto took_us = static_cast<double>(RealClock().MonotonicUs() - started_us);
    best_.token_seconds = std::min(best_.token_seconds, took_us * 1e-6 / kChunk);
    const model::GateCount after = model_->step().counters().all_gates();
    if (after.open - before.open != (after.asked - before.asked) * gates_)
      return Fail(ErrorCode::kInternal, "gates {}: {} were open of {} tokens and key heads", gates_,
                  after.open - before.open, after.asked - before.asked);
    return {};
  }

  const ReaderTime& best() const { return best_; }

 private:
  Racer(Reader reader, std::unique_ptr<model::LocalModel> model, uint64_t gates)
      : model_(std::move(model)),
        history_(std::make_unique<model::LocalSession>(*model_)),
        gates_(gates),
        best_{.reader = reader, .token_seconds = 1e30} {}

  std::unique_ptr<model::LocalModel> model_;
  std::unique_ptr<model::LocalSession> history_;
  uint64_t gates_;
  ReaderTime best_;
};

Result<std::vector<Reader>> ReadersOf(const GateBenchOptions& options) {
  const std::vector both = {Reader::kNative, Reader::kMhla};
  if (!options.model.shape.empty()) return both;
  const auto folder = model::ModelFolder::Open(options.model.choice.folder);
  MNEME_TRY(folder);
  if (!folder->router().has_router()) return both;
  const int pages_max = folder->router().pages_max();
  if (options.gates > pages_max)
    return Fail(ErrorCode::kInvalidArgument, "gates {}: the router of {} opens {} at most",
                options.gates, options.model.choice.folder, pages_max);
  return std::vector{Reader::kNative, Reader::kHla, Reader::kMhla};
}

}  // namespace

Result<std::vector<ReaderTime>> MeasureGates(const GateBenchOptions& options) {
  const size_t chunks = options.history / kChunk;
  if (static_cast<size_t>(options.gates) > chunks)
    return Fail(ErrorCode::kInvalidArgument,
                "gates {}: {} of history are {}; --history {} would do", options.gates,
                CountOf(options.history, "token"), CountOf(chunks, "closed chunk"),
                static_cast<size_t>(options.gates) * kChunk);
  const auto readers = ReadersOf(options);
  MNEME_TRY(readers);
  std::vector<Racer> racers;
  for (const Reader reader : *readers) {
    auto racer = Racer::Make(reader, options);
    MNEME_TRY(racer);
    racers.push_back(*std::move(racer));
  }
  for (int turn = 0; turn < options.repeats; ++turn) {
    for (Racer& racer : racers) MNEME_TRY(racer.TakeTurn());
  }
  std::vector<ReaderTime> times;
  for (const Racer& racer : racers) times.push_back(racer.best());
  return times;
}

}  // namespace mneme::cli
