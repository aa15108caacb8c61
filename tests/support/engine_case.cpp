#include "tests/support/engine_case.h"

#include <chrono>
#include <random>
#include <thread>

#include "base/check.h"
#include "model/model_folder.h"
#include "tests/support/sanitizers.h"

namespace mneme::support {

std::vector<uint32_t> Answer::tokens() const {
  std::vector<uint32_t> ids;
  for (const v1::Event& event : events) {
    if (event.has_token()) ids.push_back(event.token().id());
  }
  return ids;
}

std::string Answer::text() const {
  std::string text;
  for (const v1::Event& event : events) {
    if (event.has_token()) text += event.token().text();
  }
  return text;
}

namespace {

// Far more than the longest answer takes.
constexpr std::chrono::seconds kAnswerWait{kSanitizer ? 200 : 20};

// Takes what there is; true once the last event is among it.
bool TakeEvents(Asked& asked) {
  size_t bytes = 0;
  for (v1::Event& event : asked.stream->Take()) {
    bytes += event.ByteSizeLong() + 16;
    asked.seen.push_back(std::move(event));
  }
  asked.stream->Sent(bytes);
  return !asked.seen.empty() && asked.seen.back().final();
}

}  // namespace

Answer Asked::Wait() {
  const auto until = std::chrono::steady_clock::now() + kAnswerWait;
  while (!TakeEvents(*this)) {
    MNEME_CHECK(std::chrono::steady_clock::now() < until, "no answer to request {}",
                call->request().request_id());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return {.events = seen};
}

bool Asked::WaitForTokens(size_t count) {
  const auto tokens = [this] {
    size_t found = 0;
    for (const v1::Event& event : seen) found += event.has_token() ? 1 : 0;
    return found;
  };
  while (!TakeEvents(*this)) {
    if (tokens() >= count) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

EngineCase::EngineCase(const std::string& model, const std::string& reader) {
  const std::filesystem::path root = MNEME_SOURCE_DIR;
  const auto folder = model::ModelFolder::Open(root / model);
  MNEME_CHECK(folder.has_value(), "{}", folder.error().message());
  const auto chosen = folder->ChooseReader(reader);
  MNEME_CHECK(chosen.has_value(), "{}", chosen.error().message());
  auto loaded = model::LoadedModel::Make(folder->config(), folder->weights(), folder->router(),
                                         *chosen, kernels::Dtype::kF16, kernels::CpuKernels());
  MNEME_CHECK(loaded.has_value(), "{}", loaded.error().message());
  model_ = std::move(*loaded);
  // The golden models have none of their own; ids beyond their vocabulary are refused.
  auto tokenizer = folder->OpenTokenizer();
  if (!tokenizer)
    tokenizer = model::Tokenizer::Load((root / "tests/golden/tokenizer/tokenizer.json").string());
  MNEME_CHECK(tokenizer.has_value(), "{}", tokenizer.error().message());
  tokenizer_ = std::make_unique<model::Tokenizer>(std::move(*tokenizer));
  options.readers = 4;
  options.model_name = "tiny";
  options.host_bytes_max = 64 * kMiB;
}

EngineCase::~EngineCase() { Stop(engine::StopMode::kAtOnce); }

void EngineCase::Start() {
  const Status started = TryStart();
  MNEME_CHECK(started.has_value(), "{}", started.error().message());
}

Status EngineCase::TryStart() {
  auto stores = support::Open(folder_.path(), log_options, page_options, marks);
  MNEME_TRY(stores);
  stores_.emplace(std::move(*stores));
  auto engine = engine::Engine::Make(options, {.model = model_.get(),
                                               .tokenizer = tokenizer_.get(),
                                               .kernels = &kernels,
                                               .folder = stores_->folder.get(),
                                               .log = stores_->log.get(),
                                               .pages = stores_->pages.get()});
  if (!engine) {
    stores_.reset();
    return Fail(engine.error());
  }
  engine_ = std::move(*engine);
  return {};
}

void EngineCase::Stop(engine::StopMode mode) {
  if (engine_ == nullptr) return;
  engine_->Stop(mode);
  engine_.reset();
  stores_.reset();
}

uint64_t EngineCase::CapOf(uint64_t groups, uint64_t chunks) const {
  const uint64_t page = 4096;
  const uint64_t group = (model_->layout().group_bytes() + page - 1) / page * page;
  return groups * group + chunks * (memory::ClosedChunk::IndexBytes(model_->layout()) +
                                    memory::ClosedChunk::KvBytes(model_->layout()));
}

Asked EngineCase::Submit(v1::Request request, int64_t deadline_us, size_t pause_bytes) {
  request.set_request_id(next_id_++);
  Asked asked;
  asked.stream = std::make_shared<engine::EventStream>(
      engine::EventStreamOptions{.pause_bytes = pause_bytes, .bytes_max = 4 << 20}, RealClock());
  asked.call = std::make_shared<engine::Call>(std::move(request), asked.stream, deadline_us);
  const Status submitted = engine_->Submit(asked.call);
  if (!submitted) asked.call->Fail(submitted.error());
  return asked;
}

Answer EngineCase::Open(const std::string& session) {
  v1::Request request;
  request.mutable_open()->set_session(session);
  request.mutable_open()->set_create(true);
  return Ask(std::move(request));
}

Answer EngineCase::Append(const std::string& session, const std::vector<uint32_t>& ids, bool wait) {
  v1::Request request = AppendOf(session, ids);
  request.mutable_append()->set_wait_until_computed(wait);
  return Ask(std::move(request));
}

Answer EngineCase::Generate(const std::string& session, const std::vector<uint32_t>& ids,
                            uint32_t tokens) {
  return Ask(GenerateOf(session, ids, tokens));
}

v1::StatsReply EngineCase::Stats(const std::string& session) {
  v1::Request request;
  request.mutable_stats()->set_session(session);
  const Answer answer = Ask(std::move(request));
  return answer.last().stats();
}

v1::Request AppendOf(const std::string& session, const std::vector<uint32_t>& ids) {
  v1::Request request;
  v1::AppendRequest& append = *request.mutable_append();
  append.set_session(session);
  append.mutable_input()->mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
  return request;
}

v1::Request GenerateOf(const std::string& session, const std::vector<uint32_t>& ids,
                       uint32_t tokens) {
  v1::Request request;
  v1::GenerateRequest& generate = *request.mutable_generate();
  generate.set_session(session);
  generate.set_prompt_form(v1::PROMPT_FORM_RAW);
  generate.set_max_tokens(tokens);
  generate.mutable_sampling()->set_temperature(1.0f);
  generate.mutable_sampling()->set_seed(7);
  if (!ids.empty())
    generate.mutable_input()->mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
  return request;
}

std::vector<uint32_t> RandomIds(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> ids(count);
  for (uint32_t& id : ids) id = 10 + static_cast<uint32_t>(random() % 130);
  return ids;
}

}  // namespace mneme::support
