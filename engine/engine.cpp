#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/inbox.h"
#include "base/log.h"
#include "engine/admission.h"
#include "engine/chunk_keeper.h"
#include "engine/scheduler.h"
#include "engine/session_reader.h"
#include "engine/turn_writer.h"
#include "memory/reconcile.h"

namespace mneme::engine {
namespace {

using std::chrono::microseconds;

// Waits of the engine thread: with calls in flight their deadlines and readers are looked at.
constexpr microseconds kBusyWait{2'000};
constexpr microseconds kIdleWait{200'000};
// Receipts and answers must never be refused; there are at most a few for each chunk and turn.
constexpr size_t kInboxItemsMax = size_t{1} << 20;
constexpr uint32_t kQueueRetryMs = 100;
// An empty session outlives a start for so long: who was told that it is there may still be about
// to write, or to ask again for a first turn that a kill left unanswered.
constexpr int64_t kEmptyKeptUs = int64_t{3'600} * 1'000'000;

Status CheckOptions(const EngineOptions& options) {
  if (options.step_ms < 1 || options.running_max < 1 || options.idle_tokens_max < 1 ||
      options.readers < 1 || options.threads < 1 || options.batch_max < 1 ||
      options.batch_max > model::kRowsMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "engine: step_ms {}, running_max {}, idle_tokens_max {}, readers {}, threads {} "
                "must be 1 or more, batch_max {} 1 to {}",
                options.step_ms, options.running_max, options.idle_tokens_max, options.readers,
                options.threads, options.batch_max, model::kRowsMax);
  }
  return {};
}

Result<std::unique_ptr<memory::PageCache>> MakeCache(const EngineOptions& options,
                                                     const memory::MemoryLayout& layout) {
  // A reader that folds keeps no pages; the cache then only counts.
  const size_t group_bytes = std::max<size_t>(layout.group_bytes(), 1);
  return memory::PageCache::Make({.group_bytes = group_bytes, .bytes_max = options.host_bytes_max});
}

// The worst that is so.
std::string StateText(const memory::TurnStore& log, memory::PageStoreState pages,
                      memory::DiskRoom room) {
  if (log.failed()) return "failed";
  if (!log.report().regressions.empty()) return "regressed";
  if (pages == memory::PageStoreState::kFailed) return "pages_failed";
  if (room != memory::DiskRoom::kEnough) return "store_full";
  return pages == memory::PageStoreState::kMending ? "mending" : "ready";
}

// Ids that end an answer: the checkpoint's own and the chat template's.
std::vector<int32_t> EndIds(const EngineInputs& inputs) {
  std::vector<int32_t> ids = inputs.model->config().eos_ids;
  for (const char* content : {"<|im_end|>", "<|endoftext|>"}) {
    if (const auto id = inputs.tokenizer->IdOf(content)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

// Everything behind the interface. Members are in the order in which they need each other.
class Engine::Core {
 public:
  Core(const EngineOptions& options, const EngineInputs& inputs,
       std::unique_ptr<kernels::Stream> stream, std::unique_ptr<memory::PageCache> cache,
       const model::ChatTemplate& chat);
  ~Core() { Stop(StopMode::kAtOnce); }

  Status Submit(std::shared_ptr<Call> call);
  v1::Health Health() const;
  bool Drain(int64_t wait_ms);
  void Stop(StopMode mode);
  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  const std::string& identity() const { return identity_; }

 private:
  using Item = std::variant<std::shared_ptr<Call>, LogAnswer, EncodedInput, memory::SaveReceipt>;

  void Run();
  void Take(std::vector<Item> items);
  void Dispatch(std::shared_ptr<Call> call);
  void Commit(memory::LogEntry entry, Parts::Answered answered);
  void Encode(std::shared_ptr<const Call> call, model::LogEnd end, Parts::Encoded encoded);
  void Deliver(Item item);
  // What one round ordered goes to the log thread together: a turn and the nodes of its chunks are
  // one commit, so that no kill comes between them.
  void SendOrders();
  void RetryNodes();
  void Finish();

  const EngineOptions options_;
  const EngineInputs inputs_;
  Clock& clock_;
  const std::string identity_;
  const std::unique_ptr<kernels::Stream> stream_;
  const std::unique_ptr<memory::PageCache> cache_;
  const model::ChatTemplate chat_;

  Inbox<Item> inbox_{kInboxItemsMax};
  std::atomic<size_t> queued_{0};     // calls in the inbox
  std::atomic<size_t> in_flight_{0};  // calls taken and not ended
  std::atomic<bool> draining_{false};
  std::atomic<bool> cancel_all_{false};
  std::atomic<bool> stop_{false};
  std::vector<std::weak_ptr<Call>> calls_;  // of the engine thread: taken, perhaps ended

  SessionTable sessions_;
  memory::PageMover mover_;
  model::Step step_;
  Parts parts_;
  ChunkKeeper keeper_;
  Admission admission_;
  TurnWriter writer_;
  Scheduler scheduler_;
  SessionReader reader_;

  std::unordered_map<uint64_t, Parts::Answered> answered_;  // by ticket
  std::unordered_map<uint64_t, Parts::Encoded> encoded_;    // by ticket
  std::vector<TurnLog::Entry> orders_;
  uint64_t next_ticket_ = 1;
  int64_t retry_at_us_ = 0;
  TurnLog turn_log_;
  InputEncoder encoder_;
  std::thread thread_;
  bool stopped_ = false;
};

Engine::Core::Core(const EngineOptions& options, const EngineInputs& inputs,
                   std::unique_ptr<kernels::Stream> stream,
                   std::unique_ptr<memory::PageCache> cache, const model::ChatTemplate& chat)
    : options_(options),
      inputs_(inputs),
      clock_(inputs.clock == nullptr ? RealClock() : *inputs.clock),
      identity_(IdentityText({.weights_hash = options.identity.weights_hash,
                              .config_hash = options.identity.config_hash,
                              .router_hash = options.identity.router_hash,
                              .tokenizer_hash = options.identity.tokenizer_hash,
                              .theta = inputs.model->theta()},
                             inputs.model->layout())),
      stream_(std::move(stream)),
      cache_(std::move(cache)),
      chat_(chat),
      sessions_(*inputs.log),
      mover_(inputs.model->layout(), *inputs.pages, {.readers = options.readers}, clock_,
             [this](memory::SaveReceipt receipt) { Deliver(std::move(receipt)); }),
      step_(*inputs.model, *inputs.kernels, *stream_, *cache_, &mover_, options.batch_max),
      parts_{
          .options = options_,
          .inputs = inputs_,
          .layout = inputs.model->layout(),
          .identity = identity_,
          .clock = clock_,
          .cache = *cache_,
          .mover = mover_,
          .step = step_,
          .sessions = sessions_,
          .counters = {},
          .end_ids = EndIds(inputs),
          .commit =
              [this](memory::LogEntry entry, Parts::Answered answered) {
                Commit(std::move(entry), std::move(answered));
              },
          .encode =
              [this](std::shared_ptr<const Call> call, model::LogEnd end, Parts::Encoded encoded) {
                Encode(std::move(call), end, std::move(encoded));
              }},
      keeper_(parts_),
      admission_(parts_, keeper_),
      writer_(parts_, keeper_, admission_, chat_),
      scheduler_(parts_, keeper_, admission_, writer_),
      reader_(parts_, scheduler_, admission_),
      turn_log_(*inputs.log, clock_, [this](LogAnswer answer) { Deliver(std::move(answer)); }),
      encoder_(*inputs.tokenizer, chat_, inputs.model->config().vocab,
               [this](EncodedInput input) { Deliver(std::move(input)); }) {}

void Engine::Core::Deliver(Item item) {
  // Only a closed inbox refuses, and then nobody waits for it any more.
  static_cast<void>(inbox_.Push(std::move(item)).has_value());
}

void Engine::Core::Commit(memory::LogEntry entry, Parts::Answered answered) {
  const uint64_t ticket = next_ticket_++;
  answered_.emplace(ticket, std::move(answered));
  orders_.push_back({.ticket = ticket, .entry = std::move(entry)});
}

void Engine::Core::Encode(std::shared_ptr<const Call> call, model::LogEnd end,
                          Parts::Encoded encoded) {
  const uint64_t ticket = next_ticket_++;
  encoded_.emplace(ticket, std::move(encoded));
  encoder_.Encode({.ticket = ticket, .call = std::move(call), .end = end});
}

void Engine::Core::SendOrders() {
  if (!orders_.empty()) turn_log_.Order(std::exchange(orders_, {}));
}

Status Engine::Core::Submit(std::shared_ptr<Call> call) {
  if (draining_.load())
    return Fail(Error(Reason::kDraining, "the server is stopping").RetryAfter(1'000));
  if (queued_.fetch_add(1) >= options_.queue_max) {
    queued_.fetch_sub(1);
    return Fail(Error(ErrorCode::kResourceExhausted,
                      fmt::format("the queue of {} requests is full", options_.queue_max))
                    .RetryAfter(kQueueRetryMs));
  }
  in_flight_.fetch_add(1);
  Status pushed = inbox_.Push(Item(std::move(call)));
  if (!pushed) {
    queued_.fetch_sub(1);
    in_flight_.fetch_sub(1);
  }
  return pushed;
}

v1::Health Engine::Core::Health() const {
  v1::Health health;
  const auto room = inputs_.folder == nullptr ? memory::DiskRoom::kEnough : inputs_.folder->room();
  health.set_state(StateText(*inputs_.log, inputs_.pages->state(), room));
  health.set_model(options_.model_name);
  health.set_sessions_refused(inputs_.log->SessionsRefused());
  health.set_log_lines_lost(LogLinesLost());
  health.set_reader(std::string(memory::NameOf(inputs_.model->layout().reader)));
  return health;
}

void Engine::Core::Run() {
  bool busy = false;
  while (!stop_.load()) {
    // Parked readers and deadlines are looked at every few milliseconds while calls are in flight.
    const microseconds wait = busy ? microseconds(0) : (calls_.empty() ? kIdleWait : kBusyWait);
    Take(inbox_.Drain(wait));
    if (cancel_all_.load()) {
      for (const auto& weak : calls_) {
        if (const auto call = weak.lock()) call->Cancel();
      }
    }
    bool did = admission_.Advance();
    writer_.Advance();
    did = reader_.Advance() || did;
    did = scheduler_.Round() || did;
    RetryNodes();
    SendOrders();
    const size_t before = calls_.size();
    std::erase_if(calls_, [](const std::weak_ptr<Call>& weak) {
      const auto call = weak.lock();
      return call == nullptr || call->finished();
    });
    in_flight_.fetch_sub(before - calls_.size());
    busy = did;
  }
}

void Engine::Core::RetryNodes() {
  const int64_t now_us = clock_.MonotonicUs();
  if (now_us < retry_at_us_) return;
  retry_at_us_ = now_us + 1'000'000;
  for (const auto& [id, session] : sessions_.all()) {
    if (!session->nodes.empty()) keeper_.AddNodes(*session);
  }
}

void Engine::Core::Take(std::vector<Item> items) {
  for (Item& item : items) {
    if (auto* call = std::get_if<std::shared_ptr<Call>>(&item)) {
      queued_.fetch_sub(1);
      calls_.emplace_back(*call);
      Dispatch(std::move(*call));
    } else if (auto* answer = std::get_if<LogAnswer>(&item)) {
      const auto waiting = answered_.extract(answer->ticket);
      MNEME_CHECK(!waiting.empty(), "ticket {}", answer->ticket);
      waiting.mapped()(std::move(answer->result));
    } else if (auto* encoded = std::get_if<EncodedInput>(&item)) {
      const auto waiting = encoded_.extract(encoded->ticket);
      MNEME_CHECK(!waiting.empty(), "ticket {}", encoded->ticket);
      waiting.mapped()(std::move(encoded->input));
    } else {
      keeper_.OnSaved(std::get<memory::SaveReceipt>(item));
    }
  }
}

void Engine::Core::Dispatch(std::shared_ptr<Call> call) {
  if (call->cancelled() || call->disconnected()) {
    return call->Fail(Error(ErrorCode::kCancelled, "stopped before it was looked at"));
  }
  if (call->expired(clock_.MonotonicUs())) {
    return call->Fail(
        Error(ErrorCode::kDeadlineExceeded, "the deadline passed before it was looked at"));
  }
  switch (call->request().kind_case()) {
    case v1::Request::kOpen:
      return writer_.Open(std::move(call));
    case v1::Request::kAppend:
      return writer_.Append(call);
    case v1::Request::kGenerate:
      return writer_.Generate(call);
    case v1::Request::kClose:
      return writer_.Close(call);
    case v1::Request::kDelete:
      return writer_.Delete(std::move(call));
    case v1::Request::kStats:
      return reader_.Stats(std::move(call));
    case v1::Request::kExplain:
      return reader_.Explain(*call);
    case v1::Request::kTranscript:
      return reader_.Transcript(*call);
    case v1::Request::kList:
      return reader_.List(std::move(call));
    case v1::Request::kHealth: {
      v1::Event event;
      *event.mutable_health() = Health();
      return call->Finish(std::move(event));
    }
    default:
      return call->Fail(
          Error(ErrorCode::kInvalidArgument, "the request asks for nothing the engine knows"));
  }
}

bool Engine::Core::Drain(int64_t wait_ms) {
  draining_.store(true);
  const int64_t until_us = clock_.MonotonicUs() + wait_ms * 1000;
  const auto wait = [this](int64_t until) {
    while (in_flight_.load() > 0 && clock_.MonotonicUs() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return in_flight_.load() == 0;
  };
  if (wait(until_us)) return true;
  cancel_all_.store(true);
  wait(clock_.MonotonicUs() + 5'000'000);
  return false;
}

void Engine::Core::Stop(StopMode mode) {
  if (std::exchange(stopped_, true)) return;
  draining_.store(true);
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  encoder_.Stop();
  if (mode == StopMode::kFinish) Finish();
  mover_.Stop(/*drain=*/mode == StopMode::kFinish);
  turn_log_.Stop(/*drain=*/mode == StopMode::kFinish);
  inbox_.Close();
  // Calls that nobody will answer any more.
  for (Item& item : inbox_.Drain(microseconds(0))) {
    if (auto* call = std::get_if<std::shared_ptr<Call>>(&item)) calls_.emplace_back(*call);
    if (auto* receipt = std::get_if<memory::SaveReceipt>(&item)) keeper_.OnSaved(*receipt);
  }
  for (const auto& weak : calls_) {
    const auto call = weak.lock();
    if (call != nullptr && !call->finished())
      call->Fail(Error(Reason::kDraining, "the server stopped"));
  }
}

// Waits, on the caller's thread now that the engine's has ended, until what was sealed is written
// and the log knows.
void Engine::Core::Finish() {
  const int64_t until_us = clock_.MonotonicUs() + 30'000'000;
  const auto pending = [this] {
    bool nodes = false;
    for (const auto& [id, session] : sessions_.all()) {
      for (const NodeWaiting& node : session->nodes)
        nodes = nodes || (node.end_position <= session->head.position() && !session->chain_broken);
    }
    return keeper_.saves_in_flight() > 0 || nodes || !answered_.empty();
  };
  SendOrders();
  while (pending() && !mover_.stuck() && !inputs_.log->failed() &&
         clock_.MonotonicUs() < until_us) {
    Take(inbox_.Drain(kBusyWait));
    RetryNodes();
    SendOrders();
  }
}

Engine::Engine(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Engine::~Engine() { core_->Stop(StopMode::kFinish); }

Status Engine::Check(const EngineOptions& options, const model::Tokenizer& tokenizer,
                     const memory::MemoryLayout& layout) {
  MNEME_TRY(CheckOptions(options));
  MNEME_TRY(model::ChatTemplate::MakeIfAny(tokenizer));
  MNEME_TRY(MakeCache(options, layout));
  return {};
}

Result<std::unique_ptr<Engine>> Engine::Make(const EngineOptions& options,
                                             const EngineInputs& inputs) {
  MNEME_CHECK(inputs.model != nullptr && inputs.tokenizer != nullptr && inputs.kernels != nullptr &&
                  inputs.log != nullptr && inputs.pages != nullptr,
              "an input is missing");
  MNEME_TRY(CheckOptions(options));
  auto chat = model::ChatTemplate::MakeIfAny(*inputs.tokenizer);
  MNEME_TRY(chat);
  Clock& clock = inputs.clock == nullptr ? RealClock() : *inputs.clock;
  const auto empty = memory::RemoveEmptySessions(*inputs.log, clock.WallUs() - kEmptyKeptUs);
  // They do no harm where they are; what is wrong shows again with the first write.
  if (!empty) MNEME_LOG(kWarning, "empty_sessions_kept", "error=\"{}\"", empty.error().message());
  const auto orphans = memory::RemoveOrphans(*inputs.log, *inputs.pages);
  MNEME_TRY(orphans);
  auto stream = inputs.kernels->make_stream(options.threads);
  MNEME_TRY(stream);
  auto cache = MakeCache(options, inputs.model->layout());
  MNEME_TRY(cache);
  auto core = std::make_unique<Core>(options, inputs, std::move(*stream), std::move(*cache), *chat);
  MNEME_LOG(kInfo, "engine_started",
            "reader={} sessions={} turns={} empty_removed={} nodes={} orphans_removed={} "
            "host_bytes_max={}",
            memory::NameOf(inputs.model->layout().reader), inputs.log->report().sessions,
            inputs.log->report().turns, empty.value_or(0), orphans->nodes_kept,
            orphans->nodes_removed, options.host_bytes_max);
  core->Start();
  return std::unique_ptr<Engine>(new Engine(std::move(core)));
}

Status Engine::Submit(std::shared_ptr<Call> call) { return core_->Submit(std::move(call)); }
v1::Health Engine::Health() { return core_->Health(); }
bool Engine::Drain(int64_t wait_ms) { return core_->Drain(wait_ms); }
void Engine::Stop(StopMode mode) { core_->Stop(mode); }
const std::string& Engine::identity() const { return core_->identity(); }

}  // namespace mneme::engine
