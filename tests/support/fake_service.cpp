#include "tests/support/fake_service.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "base/clock.h"

namespace mneme::support {
namespace {

constexpr char kStoreId[] = "fake-store";
constexpr uint32_t kTokensDefault = 256;

uint64_t TokenCount(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  uint64_t count = 0;
  while (words >> word) ++count;
  return count;
}

std::string InputText(const v1::Input& input) {
  if (input.has_text()) return input.text();
  if (input.has_tokens()) return std::to_string(input.tokens().ids_size()) + " tokens";
  const auto& messages = input.messages().messages();
  return messages.empty() ? "" : messages.rbegin()->content();
}

std::vector<std::string> AnswerTokens(const std::string& prompt, size_t token_bytes) {
  std::vector<std::string> tokens;
  std::istringstream words(prompt);
  std::string word;
  words >> word;
  uint64_t count = 0;
  if (word == "count" && words >> count) {
    for (uint64_t i = 1; i <= count; ++i) tokens.push_back(std::to_string(i) + " ");
  } else {
    std::istringstream all("you said: " + prompt);
    while (all >> word) tokens.push_back((tokens.empty() ? "" : " ") + word);
  }
  for (std::string& token : tokens) {
    if (token.size() < token_bytes) token.append(token_bytes - token.size(), '.');
  }
  return tokens;
}

// The error that `fail NAME` asks for.
std::unique_ptr<Error> ErrorAskedFor(const std::string& prompt) {
  if (!prompt.starts_with("fail ")) return nullptr;
  const std::string name = prompt.substr(5);
  for (int value = 1; value <= static_cast<int>(Reason::kDraining); ++value) {
    if (NameOf(static_cast<Reason>(value)) == name)
      return std::make_unique<Error>(static_cast<Reason>(value), "as asked for");
  }
  for (int value = 0; value <= static_cast<int>(ErrorCode::kInternal); ++value) {
    if (NameOf(static_cast<ErrorCode>(value)) == name)
      return std::make_unique<Error>(static_cast<ErrorCode>(value), "as asked for");
  }
  return nullptr;
}

Error NoSuchSession(const std::string& name) {
  return Error(ErrorCode::kNotFound, "session " + name + ": there is none of this name");
}

}  // namespace

FakeService::FakeService(FakeServiceOptions options)
    : options_(options), inbox_(options.queue_max), thread_([this] { Run(); }) {}

FakeService::~FakeService() {
  stop_ = true;
  inbox_.Close();
  thread_.join();
}

Status FakeService::Submit(std::shared_ptr<engine::Call> call) {
  if (const Status status = inbox_.Push(std::move(call)); !status)
    return Fail(Error(status.error()).RetryAfter(20));
  return {};
}

void FakeService::SetStuck(bool stuck) {
  stuck_ = stuck;
  while (is_stuck_ != stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

v1::Health FakeService::Health() {
  v1::Health health;
  health.set_state("ready");
  health.set_model("echo");
  health.set_reader("native");
  return health;
}

void FakeService::Run() {
  while (!stop_) {
    is_stuck_ = stuck_.load();
    if (is_stuck_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const int64_t now_us = RealClock().MonotonicUs();
    int64_t wait_us = 20'000;  // the longest a cancel or a lost client goes unseen
    for (const Generation& generation : running_)
      wait_us = std::min(wait_us, std::max<int64_t>(generation.next_us - now_us, 0));
    const bool paused = std::ranges::any_of(
        running_, [](const Generation& generation) { return generation.call->paused(); });
    if (paused) wait_us = std::max<int64_t>(wait_us, 1000);
    for (const auto& call : inbox_.Drain(std::chrono::microseconds(wait_us))) Answer(call);
    std::erase_if(running_, [this](Generation& generation) { return Step(generation); });
    running_count_ = static_cast<uint32_t>(running_.size());
  }
  for (Generation& generation : running_)
    generation.call->Fail(Error(ErrorCode::kUnavailable, "stopped"));
}

void FakeService::Answer(const std::shared_ptr<engine::Call>& call) {
  v1::Event event;
  const v1::Request& request = call->request();
  if (call->expired(RealClock().MonotonicUs()))
    return call->Fail(Error(ErrorCode::kDeadlineExceeded, "not begun before the deadline"));
  switch (request.kind_case()) {
    case v1::Request::kOpen:
      return Open(*call);
    case v1::Request::kAppend:
      return Append(*call);
    case v1::Request::kGenerate:
      return Generate(call);
    case v1::Request::kStats:
      return ShowStats(*call);
    case v1::Request::kExplain:
      return Explain(*call);
    case v1::Request::kTranscript:
      return ShowTranscript(*call);
    case v1::Request::kList:
      return List(*call);
    case v1::Request::kClose:
      if (!sessions_.contains(request.close().session()))
        return call->Fail(NoSuchSession(request.close().session()));
      event.mutable_closed()->set_session(request.close().session());
      return call->Finish(event);
    case v1::Request::kDelete: {
      const auto found = sessions_.find(request.delete_().session());
      if (found == sessions_.end()) return call->Fail(NoSuchSession(request.delete_().session()));
      event.mutable_deleted()->set_session(found->first);
      event.mutable_deleted()->set_turns(found->second.turns.size());
      sessions_.erase(found);
      return call->Finish(event);
    }
    default:
      return call->Fail(Error(ErrorCode::kInternal, "the server answers this itself"));
  }
}

void FakeService::Open(engine::Call& call) {
  const v1::OpenRequest& request = call.request().open();
  const bool exists = sessions_.contains(request.session());
  if (!exists && !request.create()) return call.Fail(NoSuchSession(request.session()));
  if (exists && request.must_be_fresh())
    return call.Fail(Error(ErrorCode::kConflict, "session " + request.session() + " exists"));
  Session& session = sessions_[request.session()];
  if (!exists) session.created_us = RealClock().WallUs();
  v1::Event event;
  v1::Opened& opened = *event.mutable_opened();
  opened.set_session(request.session());
  opened.set_created(!exists);
  *opened.mutable_head() = session.head;
  opened.set_reader("native");
  opened.mutable_memory()->set_restored_tokens(session.head.position());
  opened.mutable_memory()->set_tier(exists ? "host" : "none");
  opened.mutable_memory()->set_exact(true);
  opened.set_last_used_us(session.last_used_us);
  call.Finish(event);
}

FakeService::Session* FakeService::Writable(engine::Call& call, const std::string& name,
                                            const v1::Head* expected) {
  const auto found = sessions_.find(name);
  if (found == sessions_.end()) {
    call.Fail(NoSuchSession(name));
    return nullptr;
  }
  Session& session = found->second;
  if (session.busy) {
    call.Fail(Error(Reason::kSessionBusy, "session " + name + " is being written"));
    return nullptr;
  }
  if (expected != nullptr && expected->turn() != session.head.turn()) {
    call.Fail(Error(Reason::kHeadMoved,
                    fmt::format("session {} ends at turn {}", name, session.head.turn())),
              session.head);
    return nullptr;
  }
  return &session;
}

bool FakeService::Replay(engine::Call& call, Session& session, const std::string& key,
                         const std::string& request) {
  const auto found = session.answers.find(key);
  if (key.empty() || found == session.answers.end()) return false;
  if (found->second.first == request) {
    call.Finish(found->second.second);
  } else {
    call.Fail(Error(Reason::kKeyReused, "idempotency_key came with another request before"));
  }
  return true;
}

void FakeService::Remember(Session& session, const std::string& key, const std::string& request,
                           const v1::Event& event) {
  if (!key.empty()) session.answers.emplace(key, std::pair(request, event));
}

v1::Receipt FakeService::Commit(const std::string& name, Session& session,
                                const std::string& prompt, const std::string& answer,
                                const std::string& stop_reason, bool truncated) {
  v1::TranscriptTurn turn;
  turn.set_turn(session.head.turn() + 1);
  turn.set_stop_reason(stop_reason);
  turn.set_truncated(truncated);
  turn.set_wall_us(RealClock().WallUs());
  uint64_t position = session.head.position();
  for (const auto& [text, generated] : {std::pair(prompt, false), std::pair(answer, true)}) {
    if (text.empty()) continue;
    v1::TranscriptPart& part = *turn.add_parts();
    part.set_generated(generated);
    part.set_text(text);
    part.set_first_position(position);
    part.set_tokens(TokenCount(text));
    position += part.tokens();
  }
  session.turns.push_back(turn);
  session.head.set_turn(turn.turn());
  session.head.set_position(position);
  session.last_used_us = turn.wall_us();
  v1::Receipt receipt;
  receipt.set_session(name);
  *receipt.mutable_head() = session.head;
  receipt.set_store_id(kStoreId);
  receipt.set_epoch(1);
  receipt.set_commit(++commits_);
  receipt.set_durability("synced");
  return receipt;
}

void FakeService::Append(engine::Call& call) {
  const v1::AppendRequest& request = call.request().append();
  const std::string bytes = request.SerializeAsString();
  Session* session = Writable(call, request.session(), nullptr);
  if (session == nullptr || Replay(call, *session, request.idempotency_key(), bytes)) return;
  if (request.has_expected_head() &&
      Writable(call, request.session(), &request.expected_head()) == nullptr)
    return;
  const std::string prompt = InputText(request.input());
  if (const auto error = ErrorAskedFor(prompt)) return call.Fail(*error);
  v1::Event event;
  v1::Appended& appended = *event.mutable_appended();
  appended.set_tokens(TokenCount(prompt));
  *appended.mutable_receipt() = Commit(request.session(), *session, prompt, "", "", false);
  appended.mutable_memory()->set_fresh_tokens(appended.tokens());
  Remember(*session, request.idempotency_key(), bytes, event);
  call.Finish(event);
}

void FakeService::Generate(const std::shared_ptr<engine::Call>& call) {
  const v1::GenerateRequest& request = call->request().generate();
  Session* session = Writable(*call, request.session(), nullptr);
  if (session == nullptr ||
      Replay(*call, *session, request.idempotency_key(), request.SerializeAsString()))
    return;
  if (request.has_expected_head() &&
      Writable(*call, request.session(), &request.expected_head()) == nullptr)
    return;
  Generation generation;
  generation.call = call;
  generation.prompt = InputText(request.input());
  if (const auto error = ErrorAskedFor(generation.prompt)) return call->Fail(*error);
  generation.tokens = AnswerTokens(generation.prompt, options_.token_bytes);
  std::istringstream words(generation.prompt);
  std::string word;
  if (words >> word && word == "read") words >> generation.progress_total;
  generation.progress_left = generation.progress_total;
  session->busy = true;
  running_.push_back(std::move(generation));
}

bool FakeService::Drop(Generation& generation, ErrorCode code, const std::string& why) {
  sessions_[generation.call->request().generate().session()].busy = false;
  generation.call->Fail(Error(code, why));
  return true;
}

void FakeService::End(Generation& generation, const std::string& stop_reason, bool truncated) {
  const v1::GenerateRequest& request = generation.call->request().generate();
  Session& session = sessions_[request.session()];
  session.busy = false;
  v1::Event event;
  v1::Done& done = *event.mutable_done();
  done.set_stop_reason(stop_reason);
  done.set_text(generation.text);
  done.set_truncated(truncated);
  done.set_prompt_tokens(TokenCount(generation.prompt));
  done.set_generated_tokens(generation.next);
  done.mutable_memory()->set_restored_tokens(session.head.position());
  done.mutable_memory()->set_fresh_tokens(done.prompt_tokens() + generation.next);
  done.mutable_memory()->set_tier("host");
  done.set_tokens_per_second(100.0);
  *done.mutable_receipt() = Commit(request.session(), session, generation.prompt, generation.text,
                                   stop_reason, truncated);
  Remember(session, request.idempotency_key(), request.SerializeAsString(), event);
  generation.call->Finish(event);
}

bool FakeService::EndIfUnwanted(Generation& generation, int64_t now_us) {
  engine::Call& call = *generation.call;
  const bool lost = call.disconnected();
  if (!lost && !call.cancelled() && !call.expired(now_us)) return false;
  if (lost) ++clients_lost_;
  const std::string reason = lost ? "disconnected" : (call.cancelled() ? "cancelled" : "deadline");
  const bool keep = call.request().generate().on_disconnect() == v1::ON_DISCONNECT_KEEP;
  if (keep && generation.next > 0) {  // as the engine: there has to be an answer to keep
    End(generation, reason, true);
    return true;
  }
  return Drop(generation,
              reason == "deadline" ? ErrorCode::kDeadlineExceeded : ErrorCode::kCancelled,
              reason + "; nothing of the turn is kept");
}

bool FakeService::Step(Generation& generation) {
  engine::Call& call = *generation.call;
  const int64_t now_us = RealClock().MonotonicUs();
  if (EndIfUnwanted(generation, now_us)) return true;
  if (now_us < generation.next_us) return false;
  if (call.paused()) {
    ++steps_paused_;
    return false;
  }
  generation.next_us = now_us + options_.token_us;
  if (generation.progress_left > 0) {
    --generation.progress_left;
    v1::Event event;
    v1::Progress& progress = *event.mutable_progress();
    progress.set_phase("prefill");
    progress.set_tokens_done(64 * uint64_t{generation.progress_total - generation.progress_left});
    progress.set_tokens_total(64 * uint64_t{generation.progress_total});
    progress.set_tokens_per_second(1000.0);
    call.Emit(event);
    return false;
  }
  if (!generation.started) {
    generation.started = true;
    v1::Event event;
    event.mutable_started()->set_prompt_tokens(TokenCount(generation.prompt));
    call.Emit(event);
    return false;
  }
  return EmitToken(generation);
}

bool FakeService::EmitToken(Generation& generation) {
  const v1::GenerateRequest& request = generation.call->request().generate();
  const uint32_t tokens_max = request.max_tokens() == 0 ? kTokensDefault : request.max_tokens();
  std::string stop_reason;
  if (generation.next == generation.tokens.size()) {
    stop_reason = "stop";
  } else if (generation.next == tokens_max) {
    stop_reason = "max_tokens";
  } else {
    for (const std::string& stop : request.stop()) {
      if (generation.tokens[generation.next].find(stop) != std::string::npos)
        stop_reason = "stop_string";
    }
  }
  if (!stop_reason.empty()) {
    End(generation, stop_reason, false);
    return true;
  }
  v1::Event event;
  event.mutable_token()->set_id(static_cast<uint32_t>(generation.next));
  event.mutable_token()->set_text(generation.tokens[generation.next]);
  event.mutable_token()->set_position(generation.next);
  generation.text += generation.tokens[generation.next];
  ++generation.next;
  ++tokens_generated_;
  generation.call->Emit(event);
  return false;
}

void FakeService::ShowTranscript(engine::Call& call) {
  const v1::TranscriptRequest& request = call.request().transcript();
  const auto found = sessions_.find(request.session());
  if (found == sessions_.end()) return call.Fail(NoSuchSession(request.session()));
  const auto& turns = found->second.turns;
  const size_t count = request.turns_max() == 0 ? 100 : request.turns_max();
  const size_t first = request.first_turn() > 0
                           ? std::min<size_t>(request.first_turn() - 1, turns.size())
                           : turns.size() - std::min(turns.size(), count);
  const size_t last = std::min(turns.size(), first + count);
  v1::Event event;
  event.mutable_transcript()->set_session(request.session());
  *event.mutable_transcript()->mutable_head() = found->second.head;
  for (size_t i = first; i < last; ++i) *event.mutable_transcript()->add_turns() = turns[i];
  event.mutable_transcript()->set_more(last < turns.size());
  call.Finish(event);
}

void FakeService::List(engine::Call& call) {
  const v1::ListRequest& request = call.request().list();
  const int count = request.sessions_max() == 0 ? 100 : static_cast<int>(request.sessions_max());
  v1::Event event;
  event.mutable_list();
  for (auto it = sessions_.upper_bound(request.after()); it != sessions_.end(); ++it) {
    if (event.list().sessions_size() == count) {
      event.mutable_list()->set_more(true);
      break;
    }
    v1::SessionSummary& summary = *event.mutable_list()->add_sessions();
    summary.set_session(it->first);
    *summary.mutable_head() = it->second.head;
    summary.set_reader("native");
    summary.set_created_us(it->second.created_us);
    summary.set_last_used_us(it->second.last_used_us);
    summary.mutable_bytes()->set_host_bytes(it->second.head.position() * 1024);
  }
  call.Finish(event);
}

void FakeService::Explain(engine::Call& call) {
  const auto found = sessions_.find(call.request().explain().session());
  if (found == sessions_.end()) return call.Fail(NoSuchSession(call.request().explain().session()));
  v1::Event event;
  v1::Explanation& explanation = *event.mutable_explanation();
  explanation.set_turn(found->second.head.turn());
  if (found->second.turns.empty()) {
    explanation.set_none_because("nothing was generated yet");
  } else {
    v1::TokenExplanation& token = *explanation.add_tokens();
    token.set_position(7);
    token.set_text("said");
    v1::Contribution& part = *token.add_contributions();
    part.set_tokens(256);
    part.set_share(0.75);
    part.set_tier("disk");
    part.set_text("the key is under the blue stone");
  }
  call.Finish(event);
}

void FakeService::ShowStats(engine::Call& call) {
  const std::string& name = call.request().stats().session();
  v1::Event event;
  v1::StatsReply& stats = *event.mutable_stats();
  stats.set_session(name);
  if (name.empty()) {
    stats.set_sessions(sessions_.size());
    stats.set_sessions_running(running_.size());
  }
  stats.set_tokens_generated(tokens_generated_);
  if (!name.empty()) {
    const auto found = sessions_.find(name);
    if (found == sessions_.end()) return call.Fail(NoSuchSession(name));
    stats.set_turns(found->second.head.turn());
    stats.set_tokens(found->second.head.position());
    stats.mutable_bytes()->set_host_bytes(found->second.head.position() * 1024);
    stats.mutable_bytes()->set_disk_bytes(found->second.head.position() * 2048);
  }
  call.Finish(event);
}

}  // namespace mneme::support
