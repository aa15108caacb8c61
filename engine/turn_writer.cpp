#include "engine/turn_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/turn_input.h"

namespace mneme::engine {
namespace {

constexpr uint32_t kBusyRetryMs = 200;

void FillRecord(const TurnInput& input, int64_t wall_us, v1::TurnRecord* record) {
  record->set_wall_us(static_cast<uint64_t>(wall_us));
  if (input.chat) record->set_chat_template(std::string(kChatTemplateName));
  for (const v1::MessageSpan& span : input.messages) *record->add_messages() = span;
}

void AddPart(const std::vector<int32_t>& ids, v1::TokenRole role, v1::TurnRecord* record) {
  if (ids.empty()) return;
  v1::TurnPart* part = record->add_parts();
  part->set_role(role);
  for (const int32_t id : ids) part->add_token_ids(static_cast<uint32_t>(id));
}

float PenaltyOf(const v1::SamplingSettings& asked) {
  return asked.repetition_penalty() == 0 ? 1 : asked.repetition_penalty();
}

uint32_t WindowTokens(const v1::SamplingSettings& asked) {
  return asked.repetition_window() == 0 ? kRepetitionWindowMax : asked.repetition_window();
}

// What a penalty sees before the first token is drawn; none without a penalty.
Result<std::optional<RepetitionWindow>> WindowFor(const v1::SamplingSettings& asked,
                                                  Session& session,
                                                  std::span<const int32_t> prompt) {
  if (PenaltyOf(asked) == 1) return std::optional<RepetitionWindow>();
  const uint64_t most = WindowTokens(asked);
  const uint64_t room = most - std::min<uint64_t>(most, prompt.size());
  const uint64_t logged = std::min(room, session.head.position());
  const auto before = session.Collect(session.head.position() - logged, logged);
  MNEME_TRY(before);
  std::optional<RepetitionWindow> window(most);
  window->Push(*before);
  window->Push(prompt);
  return window;
}

}  // namespace

uint64_t TurnWriter::PositionsMax() const {
  const uint64_t most = parts_.options.tokens_per_session_max;
  if (parts_.layout.attention_layers.empty()) return most;
  return std::min(most, static_cast<uint64_t>(parts_.inputs.model->config().positions_max));
}

Status TurnWriter::CheckRoom(const Session& session, uint64_t tokens) const {
  if (tokens <= PositionsMax() - std::min(PositionsMax(), session.head.position())) return {};
  return Fail(Reason::kContextLimit, "session {}: {} tokens more after {}; the most is {}",
              session.name, tokens, session.head.position(), PositionsMax());
}

Result<Session*> TurnWriter::Find(const std::string& name) {
  const auto session = parts_.sessions.Find(name);
  MNEME_TRY(session);
  const auto stored = parts_.log().GetSession((*session)->id);
  MNEME_TRY(stored);
  if (stored->record.identity() != parts_.identity) {
    return Fail(Reason::kIdentityMismatch, "session {}: {}", name,
                IdentityDifference(parts_.identity, stored->record.identity()));
  }
  return *session;
}

Status TurnWriter::CheckHead(const Session& session, const v1::Head& expected) const {
  const v1::HeadRecord& head = session.head;
  const std::string& hash = expected.chain_hash();
  if (expected.turn() > head.turn() && !hash.empty()) {
    return Fail(Reason::kStoreBehindReceipt,
                "session {}: the receipt names turn {}, the store ends at {}", session.name,
                expected.turn(), head.turn());
  }
  const bool same = expected.turn() == head.turn() &&
                    (expected.position() == 0 || expected.position() == head.position()) &&
                    (hash.empty() || hash == head.chain_hash());
  if (same) return {};
  return Fail(Reason::kHeadMoved, "session {}: turn {} was expected, the head is turn {}",
              session.name, expected.turn(), head.turn());
}

template <typename Request>
Session* TurnWriter::Begin(const std::shared_ptr<Call>& call, const Request& request) {
  const auto found = Find(request.session());
  if (!found) {
    call->Fail(found.error());
    return nullptr;
  }
  Session& session = **found;
  const std::string& key = request.idempotency_key();
  if (!key.empty()) {
    if (session.writing != nullptr && session.writing->record.idempotency_key() == key) {
      call->Fail(Error(ErrorCode::kConflict,
                       fmt::format("session {}: a request with this idempotency key is in flight",
                                   session.name))
                     .RetryAfter(kBusyRetryMs));
      return nullptr;
    }
    const auto known = parts_.log().FindKey(session.id, key);
    if (!known) {
      call->Fail(known.error());
      return nullptr;
    }
    if (known->has_value()) {
      const auto turn = parts_.log().ReadTurn(session.id, {(*known)->turn()});
      if (!turn) {
        call->Fail(turn.error());
      } else if ((*known)->request_hash() != RequestHash(request)) {
        call->Fail(Error(Reason::kKeyReused,
                         fmt::format("session {}: this idempotency key was used for turn {} by "
                                     "another request",
                                     session.name, (*known)->turn())));
      } else {
        call->Finish(RecordedAnswer(parts_, session, *turn));
      }
      return nullptr;
    }
  }
  if (session.writing != nullptr) {
    call->Fail(Error(Reason::kSessionBusy,
                     fmt::format("session {}: another write is in flight", session.name))
                   .RetryAfter(kBusyRetryMs));
    return nullptr;
  }
  if (request.has_expected_head()) {
    if (const Status same = CheckHead(session, request.expected_head()); !same) {
      call->Fail(same.error(), HeadOf(session.head));
      return nullptr;
    }
  }
  return &session;
}

void TurnWriter::Append(const std::shared_ptr<Call>& call) {
  const v1::AppendRequest& request = call->request().append();
  if (Session* session = Begin(call, request)) Encode(*session, call, WriteKind::kAppend, request);
}

void TurnWriter::Generate(const std::shared_ptr<Call>& call) {
  const v1::GenerateRequest& request = call->request().generate();
  if (const Status can = parts_.inputs.model->config().CheckThinking(request.thinking()); !can)
    return call->Fail(can.error());
  if (Session* session = Begin(call, request))
    Encode(*session, call, WriteKind::kGenerate, request);
}

template <typename Request>
void TurnWriter::Encode(Session& session, const std::shared_ptr<Call>& call, WriteKind kind,
                        const Request& request) {
  const auto end = EndOfLog(session, parts_.tokenizer(), chat_);
  if (!end) return call->Fail(end.error());
  session.writing = std::make_unique<Writing>();
  Writing& writing = *session.writing;
  writing.call = call;
  writing.kind = kind;
  writing.stage = WriteStage::kEncoding;
  writing.accepted_us = parts_.clock.MonotonicUs();
  v1::TurnRecord& record = writing.record;
  record.set_kind(kind == WriteKind::kAppend ? v1::TURN_KIND_APPEND : v1::TURN_KIND_GENERATE);
  if (!request.idempotency_key().empty()) {
    record.set_idempotency_key(request.idempotency_key());
    record.set_request_hash(RequestHash(request));
  }
  if (request.has_expected_head()) record.set_expected_head(request.expected_head().turn());
  if (request.input().ByteSizeLong() <= kInlineInputBytesMax) {
    return OnEncoded(session, EncodeInput(call->request(), *end, parts_.tokenizer(), chat_,
                                          parts_.inputs.model->config().vocab));
  }
  parts_.encode(call, *end, [this, id = session.id, call](Result<TurnInput> input) {
    Session* still = parts_.sessions.Get(id);
    // Cut off meanwhile, and perhaps another write has begun.
    if (still == nullptr || still->writing == nullptr || still->writing->call != call) return;
    OnEncoded(*still, std::move(input));
  });
}

void TurnWriter::OnEncoded(Session& session, Result<TurnInput> input) {
  Status begun = input ? CheckEncoded(session, *input) : Status(Fail(input.error()));
  if (begun) {
    FillRecord(*input, parts_.clock.WallUs(), &session.writing->record);
    if (session.writing->kind == WriteKind::kAppend) return BeginAppend(session, *input);
    begun = BeginGeneration(session, std::move(*input));
  }
  if (begun) {
    admission_.Want(session);
    return admission_.Settle(session);
  }
  const std::shared_ptr<Call> call = std::move(session.writing->call);
  session.writing.reset();
  admission_.Settle(session);
  call->Fail(begun.error());
}

Status TurnWriter::CheckEncoded(const Session& session, const TurnInput& input) const {
  const bool generates = session.writing->kind == WriteKind::kGenerate;
  if (generates && session.head.position() + input.ids.size() == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "session {}: there is nothing to go on from; give an input", session.name);
  }
  return CheckRoom(session, input.ids.size() + (generates ? 1 : 0));
}

void TurnWriter::BeginAppend(Session& session, const TurnInput& input) {
  Writing& writing = *session.writing;
  writing.stage = WriteStage::kCommitting;
  writing.append_tokens = input.ids.size();
  AddPart(input.ids, v1::TOKEN_ROLE_PROMPT, &writing.record);
  CommitAppend(session);
}

void TurnWriter::CommitAppend(Session& session) {
  parts_.commit(memory::AppendTurn{.session = session.id, .record = session.writing->record},
                [this, id = session.id](Result<memory::Committed> result) {
                  OnAppended(id, std::move(result));
                });
}

void TurnWriter::OnAppended(SessionId id, Result<memory::Committed> result) {
  Session* session = parts_.sessions.Get(id);
  MNEME_CHECK(session != nullptr && session->writing != nullptr, "session {}", id.value);
  Writing& writing = *session->writing;
  if (!result) return Refused(*session, result.error());
  LogRoom();
  RefreshHead(*session);
  MNEME_LOG(kInfo, "turn", "session={} turn={} kind=append tokens={} position={}", id.value,
            session->head.turn(), writing.append_tokens, session->head.position());
  writing.stage = WriteStage::kCommitted;
  keeper_.AddNodes(*session);
  admission_.Want(*session);
  admission_.Settle(*session);
  v1::Event event;
  v1::Appended& appended = *event.mutable_appended();
  *appended.mutable_receipt() = ReceiptOf(session->name, result->receipt);
  appended.set_tokens(writing.append_tokens);
  if (writing.call->request().append().wait_until_computed()) {
    writing.answer = std::move(event);
    return;
  }
  *appended.mutable_memory() = ReportOf(*session);
  writing.call->Finish(std::move(event));
  EndWriting(*session, /*committed=*/true);
}

Status TurnWriter::BeginGeneration(Session& session, TurnInput input) {
  Writing& writing = *session.writing;
  const v1::GenerateRequest& request = writing.call->request().generate();
  const auto repetition = WindowFor(request.sampling(), session, input.ids);
  MNEME_TRY(repetition);
  writing.stage = WriteStage::kComputing;
  writing.prompt = std::move(input.ids);
  writing.generation = std::make_unique<Generation>(
      parts_.tokenizer(), std::vector<std::string>(request.stop().begin(), request.stop().end()));
  Generation& generation = *writing.generation;
  const v1::SamplingSettings& asked = request.sampling();
  generation.sampling = {
      .temperature = asked.temperature(),
      .top_k = static_cast<int32_t>(std::min<uint32_t>(asked.top_k(), INT32_MAX)),
      .top_p = asked.top_p() == 0 ? 1 : asked.top_p(),
      .min_p = asked.min_p(),
      .repetition_penalty = PenaltyOf(asked),
      .seed = asked.seed()};
  const uint32_t wanted =
      request.max_tokens() == 0 ? parts_.options.generated_tokens_default : request.max_tokens();
  generation.tokens_max = std::min(wanted, parts_.options.generated_tokens_max);
  generation.explain = request.explain();
  generation.explained.set_format(1);
  generation.explained.set_chunk_tokens(static_cast<uint32_t>(parts_.layout.chunk_tokens()));
  generation.repetition = *repetition;
  v1::SamplingRecord& sampling = *writing.record.mutable_sampling();
  sampling.set_temperature(generation.sampling.temperature);
  sampling.set_top_k(static_cast<uint32_t>(generation.sampling.top_k));
  sampling.set_top_p(generation.sampling.top_p);
  sampling.set_min_p(generation.sampling.min_p);
  sampling.set_repetition_penalty(generation.sampling.repetition_penalty);
  if (generation.repetition) sampling.set_repetition_window(WindowTokens(asked));
  sampling.set_seed(generation.sampling.seed);
  sampling.set_max_tokens(generation.tokens_max);
  for (const std::string& stop : request.stop()) sampling.add_stop_strings(stop);
  return {};
}

void TurnWriter::OnSampled(Session& session, const Sampled& sampled) {
  Writing& writing = *session.writing;
  Generation& generation = *writing.generation;
  const int64_t now_us = parts_.clock.MonotonicUs();
  if (generation.first_token_us == 0) generation.first_token_us = now_us;
  generation.last_token_us = now_us;
  const uint64_t position = session.tokens_known();
  writing.generated.push_back(sampled.token);
  ++session.counters.tokens_generated;
  ++parts_.counters.tokens_generated;
  if (generation.explain) Explain(session, sampled);
  if (generation.repetition) generation.repetition->Push(sampled.token);

  std::string shown;
  if (parts_.Ends(sampled.token)) {
    generation.stop_reason = v1::STOP_REASON_END;
  } else {
    shown = generation.stop_text.Push(generation.text_stream.Push(sampled.token));
    if (writing.generated.size() >= generation.tokens_max)
      generation.stop_reason = v1::STOP_REASON_LENGTH;
    if (session.tokens_known() >= PositionsMax()) generation.stop_reason = v1::STOP_REASON_CONTEXT;
  }
  if (generation.stop_reason != v1::STOP_REASON_UNSPECIFIED) {
    shown += generation.stop_text.Push(generation.text_stream.Finish());
    shown += generation.stop_text.Finish();
  }
  if (generation.stop_text.hit()) generation.stop_reason = v1::STOP_REASON_STRING;
  generation.text += shown;
  v1::Event event;
  v1::Token& token = *event.mutable_token();
  token.set_id(static_cast<uint32_t>(sampled.token));
  token.set_text(std::move(shown));
  token.set_position(position);
  writing.call->Emit(std::move(event));
  if (generation.stop_reason != v1::STOP_REASON_UNSPECIFIED) CommitGenerated(session);
}

void TurnWriter::Explain(Session& session, const Sampled& sampled) {
  constexpr size_t kSharesKept = 8;
  v1::TokenShares& token = *session.writing->generation->explained.add_tokens();
  for (size_t index = 0; index < std::min(sampled.shares.size(), kSharesKept); ++index) {
    const model::ChunkShare& share = sampled.shares[index];
    v1::ShareRecord& record = *token.add_shares();
    record.set_chunk(share.chunk);
    record.set_share(share.share);
    record.set_from_disk(sampled.reads != nullptr &&
                         sampled.reads->contains(&session.memory->chunk(share.chunk)));
  }
}

void TurnWriter::CommitGenerated(Session& session) {
  Writing& writing = *session.writing;
  Generation& generation = *writing.generation;
  writing.stage = WriteStage::kCommitting;
  v1::TurnRecord& record = writing.record;
  AddPart(writing.prompt, v1::TOKEN_ROLE_PROMPT, &record);
  AddPart(writing.generated, v1::TOKEN_ROLE_GENERATED, &record);
  record.set_stop_reason(generation.stop_reason);
  record.set_truncated(generation.truncated);
  if (generation.explain) record.set_explain(generation.explained.SerializeAsString());
  v1::TurnTimings& timings = *record.mutable_timings();
  const int64_t first = std::max(generation.first_token_us, writing.accepted_us);
  timings.set_prefill_us(static_cast<uint64_t>(first - writing.accepted_us));
  timings.set_decode_us(
      static_cast<uint64_t>(std::max(generation.last_token_us - first, int64_t{0})));
  timings.set_restored_tokens(session.parts.restored);
  timings.set_replayed_tokens(session.parts.replayed);
  timings.set_prompt_tokens(writing.prompt.size());
  admission_.Settle(session);
  parts_.commit(memory::AppendTurn{.session = session.id, .record = record},
                [this, id = session.id](Result<memory::Committed> result) {
                  OnGenerated(id, std::move(result));
                });
  keeper_.AddNodes(session, session.head.position() + writing.tokens());
}

void TurnWriter::OnGenerated(SessionId id, Result<memory::Committed> result) {
  Session* session = parts_.sessions.Get(id);
  MNEME_CHECK(session != nullptr && session->writing != nullptr, "session {}", id.value);
  Writing& writing = *session->writing;
  if (!result) return Refused(*session, result.error());
  LogRoom();
  // Before the head moves, so that the report is of this turn.
  v1::Event event = DoneEvent(*session, result->receipt);
  RefreshHead(*session);
  *event.mutable_done()->mutable_memory() = ReportOf(*session);
  MNEME_LOG(kInfo, "turn",
            "session={} turn={} kind=generate prompt={} generated={} position={} stop={} "
            "restored={} replayed={} fresh={} pages_from_disk={} first_token_ms={:.1f} "
            "tokens_per_second={:.1f}",
            id.value, session->head.turn(), writing.prompt.size(), writing.generated.size(),
            session->head.position(), event.done().stop_reason(), session->parts.restored,
            session->parts.replayed, session->parts.fresh, session->parts.pages_from_disk,
            event.done().first_token_ms(), event.done().tokens_per_second());
  writing.call->Finish(std::move(event));
  session->at_head.reset();
  EndWriting(*session, /*committed=*/true);
  keeper_.AddNodes(*session);
}

v1::Event TurnWriter::DoneEvent(const Session& session, const memory::Receipt& receipt) const {
  const Writing& writing = *session.writing;
  const Generation& generation = *writing.generation;
  v1::Event event;
  v1::Done& done = *event.mutable_done();
  *done.mutable_receipt() = ReceiptOf(session.name, receipt);
  done.set_stop_reason(StopName(generation.stop_reason));
  done.set_text(generation.text);
  done.set_prompt_tokens(writing.prompt.size());
  done.set_generated_tokens(writing.generated.size());
  done.set_truncated(generation.truncated);
  done.set_first_token_ms(static_cast<double>(generation.first_token_us - writing.accepted_us) /
                          1000);
  const int64_t decode_us = generation.last_token_us - generation.first_token_us;
  if (decode_us > 0) {
    done.set_tokens_per_second(static_cast<double>(writing.generated.size() - 1) * 1e6 /
                               static_cast<double>(decode_us));
  }
  return event;
}

void TurnWriter::LogError(std::string_view event, const Session& session, const Error& error) {
  if (error.reason() != Reason::kStoreFull) {
    MNEME_LOG(kWarning, event, "session={} error=\"{}\"", session.id.value, error.message());
  } else if (refused_full_++ == 0) {
    MNEME_LOG(kWarning, "store_full", "error=\"{}\"", error.message());
  }
}

void TurnWriter::LogRoom() {
  const memory::StoreFolder* folder = parts_.inputs.folder;
  if (refused_full_ == 0 || parts_.mover.stuck() ||
      (folder != nullptr && folder->room() != memory::DiskRoom::kEnough))
    return;
  MNEME_LOG(kInfo, "store_has_room", "writes_refused={}", std::exchange(refused_full_, 0));
}

void TurnWriter::Refused(Session& session, const Error& error) {
  LogError("turn_refused", session, error);
  const std::shared_ptr<Call> call = session.writing->call;
  EndWriting(session, /*committed=*/false);
  call->Fail(error, HeadOf(session.head));
}

void TurnWriter::RefreshHead(Session& session) {
  const auto stored = parts_.log().GetSession(session.id);
  MNEME_CHECK(stored.has_value(), "session {} has a turn and no head", session.id.value);
  session.head = stored->head;
}

void TurnWriter::EndWriting(Session& session, bool committed) {
  const bool generate = session.writing->kind == WriteKind::kGenerate;
  session.writing.reset();
  if (generate && !committed) {
    if (session.at_head != nullptr) {
      session.memory = std::move(session.at_head);
      keeper_.DropUncommitted(session);
      ++parts_.room_changes;
    }
    session.computed_once = std::min(session.computed_once, session.head.position());
  }
  if (session.memory != nullptr) {
    // Told; from here on what there is counts as kept.
    session.parts = {};
    session.parts.restored = session.memory->position();
  }
  session.small_slices = false;
  admission_.Settle(session);
}

void TurnWriter::OnError(Session& session, const Error& error) {
  if (session.writing == nullptr || session.writing->stage == WriteStage::kCommitting) {
    // Nobody waits; the session stops here until it is asked for again.
    LogError("not_computed", session, error);
    if (session.memory != nullptr) session.phase = Phase::kIdle;
    return;
  }
  const std::shared_ptr<Call> call = session.writing->call;
  LogError("write_failed", session, error);
  if (session.writing->answer) {
    // It is logged, so it succeeded; it is only not computed yet.
    v1::Event event = std::move(*session.writing->answer);
    *event.mutable_appended()->mutable_memory() = ReportOf(session);
    EndWriting(session, /*committed=*/true);
    if (session.memory != nullptr) session.phase = Phase::kIdle;
    return call->Finish(std::move(event));
  }
  EndWriting(session, /*committed=*/false);
  if (session.memory != nullptr) session.phase = Phase::kIdle;
  call->Fail(error);
}

}  // namespace mneme::engine
