// What TurnWriter does between requests and steps: sessions that open, close and go, writes that
// wait, progress, and writes that are cut off.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/turn_writer.h"

namespace mneme::engine {
namespace {

constexpr int64_t kProgressUs = 250'000;  // between two progress events

Error CutOffError(CutOff why, const std::string& session) {
  if (why == CutOff::kDeadline) {
    return Error(ErrorCode::kDeadlineExceeded,
                 fmt::format("session {}: the deadline passed; nothing was committed", session));
  }
  return Error(ErrorCode::kCancelled,
               fmt::format("session {}: stopped on request; nothing was committed", session));
}

std::optional<CutOff> CutOffOf(const Call& call, int64_t now_us) {
  if (call.cancelled()) return CutOff::kCancelled;
  if (call.disconnected()) return CutOff::kDisconnected;
  if (call.expired(now_us)) return CutOff::kDeadline;
  return std::nullopt;
}

}  // namespace

void TurnWriter::Open(std::shared_ptr<Call> call) {
  const v1::OpenRequest& request = call->request().open();
  if (const auto waiting = creating_.find(request.session()); waiting != creating_.end()) {
    waiting->second.push_back(std::move(call));  // answered when the first one's session is there
    return;
  }
  const auto found = Find(request.session());
  if (!found) {
    if (found.error().code() == ErrorCode::kNotFound && request.create())
      return Create(std::move(call));
    return call->Fail(found.error());
  }
  if (request.create() && request.must_be_fresh() && (*found)->head.turn() > 0) {
    return call->Fail(Error(ErrorCode::kConflict,
                            fmt::format("session {}: it exists already", request.session())));
  }
  admission_.Want(**found);
  openers_.push_back({.call = std::move(call), .session = (*found)->id});
}

void TurnWriter::Create(std::shared_ptr<Call> call) {
  const std::string name = call->request().open().session();
  if (parts_.inputs.folder != nullptr &&
      parts_.inputs.folder->room() != memory::DiskRoom::kEnough) {
    return call->Fail(Error(Reason::kStoreFull,
                            fmt::format("session {}: no session is made until there is room; {}",
                                        name, parts_.inputs.folder->RoomText()))
                          .RetryAfter(5'000));
  }
  // Those that are being made count already.
  if (parts_.log().SessionsFree() <= creating_.size()) RemoveEmpty(call);
  memory::CreateSession entry;
  entry.record.set_name(name);
  entry.record.set_identity(parts_.identity);
  entry.record.set_identity_text(parts_.identity);
  entry.record.set_policy(v1::HISTORY_POLICY_EXACT);
  entry.record.set_chunk_tokens(static_cast<uint32_t>(parts_.layout.chunk_tokens()));
  entry.record.set_created_wall_us(static_cast<uint64_t>(parts_.clock.WallUs()));
  creating_[name].push_back(std::move(call));
  parts_.commit(std::move(entry), [this, name](Result<memory::Committed> result) {
    std::vector<std::shared_ptr<Call>> calls = std::move(creating_[name]);
    creating_.erase(name);
    if (!result) {
      for (const auto& waiting : calls) waiting->Fail(result.error());
      return;
    }
    MNEME_LOG(kInfo, "session_created", "session={}", result->receipt.session.value);
    const auto session = parts_.sessions.Find(name);
    for (auto& waiting : calls) {
      const bool first = &waiting == &calls.front();
      if (!session) {
        waiting->Fail(session.error());
      } else if (first) {
        admission_.Want(**session);
        openers_.push_back(
            {.call = std::move(waiting), .session = (*session)->id, .created = true});
      } else {
        Open(std::move(waiting));
      }
    }
  });
}

void TurnWriter::RemoveEmpty(const std::shared_ptr<Call>& call) {
  const auto used = [this](const memory::StoredSession& stored) {
    const Session* session = parts_.sessions.Get({stored.record.id()});
    return std::pair(session == nullptr ? 0 : session->used_at, stored.head.last_used_wall_us());
  };
  const auto in_flight = [this](const memory::StoredSession& stored) {
    const SessionId id{stored.record.id()};
    const Session* session = parts_.sessions.Get(id);
    return (session != nullptr && session->writing != nullptr) ||
           creating_.contains(stored.record.name()) ||
           std::any_of(openers_.begin(), openers_.end(),
                       [id](const Opener& opener) { return opener.session == id; });
  };
  std::vector<memory::StoredSession> empty = parts_.log().ListEmptySessions();
  std::erase_if(empty, in_flight);
  const auto oldest = std::min_element(
      empty.begin(), empty.end(),
      [&used](const auto& one, const auto& other) { return used(one) < used(other); });
  if (oldest == empty.end()) return;
  const auto found = parts_.sessions.Find(oldest->record.name());
  if (!found) return;
  Session& session = **found;
  BeginDelete(session, call);
  parts_.commit(memory::DeleteSession{.session = session.id},
                [this, id = session.id](Result<memory::Committed> result) {
                  Session* gone = parts_.sessions.Get(id);
                  MNEME_CHECK(gone != nullptr, "session {}", id.value);
                  gone->writing.reset();
                  if (!result) return admission_.Settle(*gone);
                  MNEME_LOG(kInfo, "empty_session_removed", "session={}", id.value);
                  Forget(*gone, *result);
                });
}

void TurnWriter::BeginDelete(Session& session, std::shared_ptr<Call> call) {
  session.writing = std::make_unique<Writing>();
  session.writing->call = std::move(call);
  session.writing->kind = WriteKind::kDelete;
  session.writing->stage = WriteStage::kCommitting;
  admission_.Settle(session);
}

void TurnWriter::Forget(Session& session, const memory::Committed& committed) {
  keeper_.DropAll(session);
  keeper_.DeleteFreed(committed.freed);
  parts_.sessions.Remove(session.id);
  ++parts_.room_changes;
}

bool TurnWriter::AdvanceOpener(const Opener& opener) {
  if (opener.call->finished()) return true;
  Session* session = parts_.sessions.Get(opener.session);
  if (session == nullptr) {
    opener.call->Fail(Error(ErrorCode::kNotFound, "open session: it was deleted meanwhile"));
    return true;
  }
  if (const auto why = CutOffOf(*opener.call, parts_.clock.MonotonicUs())) {
    opener.call->Fail(CutOffError(*why, session->name));
    return true;
  }
  // A session that waits for others to finish is there all the same.
  if (!session->has_memory() && session->phase != Phase::kQueued) return false;
  Opened(opener);
  return true;
}

void TurnWriter::Opened(const Opener& opener) {
  const Session& session = *parts_.sessions.Get(opener.session);
  v1::Event event;
  v1::Opened& opened = *event.mutable_opened();
  opened.set_session(session.name);
  opened.set_created(opener.created);
  *opened.mutable_head() = HeadOf(session.head);
  opened.set_reader(std::string(memory::NameOf(parts_.layout.reader)));
  *opened.mutable_memory() = ReportOf(session);
  // Opening computes nothing new: what a write in flight has computed so far is another's.
  v1::MemoryReport& memory = *opened.mutable_memory();
  memory.set_restored_tokens(memory.restored_tokens() + memory.fresh_tokens());
  memory.set_fresh_tokens(0);
  opened.set_last_used_us(static_cast<int64_t>(session.head.last_used_wall_us()));
  opener.call->Finish(std::move(event));
}

void TurnWriter::Close(const std::shared_ptr<Call>& call) {
  const auto found = parts_.sessions.Find(call->request().close().session());
  if (!found) return call->Fail(found.error());
  Session& session = **found;
  if (session.writing != nullptr) {
    return call->Fail(
        Error(Reason::kSessionBusy, fmt::format("session {}: a write is in flight", session.name)));
  }
  // Chunks on their way to disk are waited for behind the answer.
  if (session.has_memory() && !admission_.Park(session)) session.close_wanted = true;
  v1::Event event;
  event.mutable_closed()->set_session(session.name);
  call->Finish(std::move(event));
}

void TurnWriter::Delete(std::shared_ptr<Call> call) {
  const std::string& name = call->request().delete_().session();
  Session* const used = parts_.sessions.Used(name);
  const auto found = used == nullptr ? parts_.sessions.Find(name) : Result<Session*>(used);
  if (!found) {
    if (found.error().code() == ErrorCode::kCorruption) return DeleteUnserved(std::move(call));
    return call->Fail(found.error());
  }
  Session& session = **found;
  if (session.writing != nullptr) {
    return call->Fail(
        Error(Reason::kSessionBusy, fmt::format("session {}: a write is in flight", session.name)));
  }
  BeginDelete(session, std::move(call));
  parts_.commit(
      memory::DeleteSession{.session = session.id},
      [this, id = session.id, name = session.name](Result<memory::Committed> result) mutable {
        OnDeleted(id, std::move(name), std::move(result));
      });
}

// Damage below a session must not keep it in the store.
void TurnWriter::DeleteUnserved(std::shared_ptr<Call> call) {
  const std::string name = call->request().delete_().session();
  const auto stored = parts_.log().FindSession("", name);
  if (!stored) return call->Fail(stored.error());
  const SessionId id{stored->record.id()};
  parts_.commit(memory::DeleteSession{.session = id},
                [this, call = std::move(call), name,
                 turns = stored->head.turn()](Result<memory::Committed> result) {
                  if (!result) return call->Fail(result.error());
                  MNEME_LOG(kInfo, "session_deleted", "session={} turns={} nodes_freed={}",
                            result->receipt.session.value, turns, result->freed.size());
                  keeper_.DeleteFreed(result->freed);
                  v1::Event event;
                  event.mutable_deleted()->set_session(name);
                  event.mutable_deleted()->set_turns(turns);
                  call->Finish(std::move(event));
                });
}

void TurnWriter::OnDeleted(SessionId id, std::string name, Result<memory::Committed> result) {
  Session* session = parts_.sessions.Get(id);
  MNEME_CHECK(session != nullptr, "session {}", id.value);
  const std::shared_ptr<Call> call = session->writing->call;
  session->writing.reset();
  if (!result) {
    admission_.Settle(*session);
    return call->Fail(result.error());
  }
  v1::Event event;
  event.mutable_deleted()->set_session(name);
  event.mutable_deleted()->set_turns(session->head.turn());
  MNEME_LOG(kInfo, "session_deleted", "session={} turns={} nodes_freed={}", id.value,
            session->head.turn(), result->freed.size());
  Forget(*session, *result);
  call->Finish(std::move(event));
}

bool TurnWriter::Advance() {
  for (auto& [id, error] : admission_.TakeFailures()) {
    for (const Opener& opener : openers_) {
      if (opener.session == id) opener.call->Fail(error);
    }
    if (Session* session = parts_.sessions.Get(id)) OnError(*session, error);
  }
  std::erase_if(openers_, [this](const Opener& opener) { return AdvanceOpener(opener); });
  bool waiting = !openers_.empty() || !creating_.empty();
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->writing == nullptr) continue;
    waiting = true;
    AdvanceWriting(*session);
  }
  return waiting;
}

void TurnWriter::AdvanceWriting(Session& session) {
  Writing& writing = *session.writing;
  if (writing.stage == WriteStage::kCommitting) return;  // the log's answer ends it
  if (const auto why = CutOffOf(*writing.call, parts_.clock.MonotonicUs()))
    return Cut(session, *why);
  if (writing.stage == WriteStage::kEncoding) return;  // the encoder's answer goes on
  if (writing.stage == WriteStage::kCommitted) {
    const auto work = session.has_memory() ? session.HasWork() : Result<bool>(true);
    if (!work) return OnError(session, work.error());
    if (!*work) {
      v1::Event event = std::move(*writing.answer);
      *event.mutable_appended()->mutable_memory() = ReportOf(session);
      writing.call->Finish(std::move(event));
      return EndWriting(session, /*committed=*/true);
    }
  }
  if (writing.generation == nullptr || !writing.generation->started) TellProgress(session);
}

void TurnWriter::Started(Session& session) {
  Writing& writing = *session.writing;
  if (std::exchange(writing.generation->started, true)) return;
  v1::Event event;
  *event.mutable_started()->mutable_memory() = ReportOf(session);
  event.mutable_started()->set_prompt_tokens(writing.prompt.size());
  writing.call->Emit(std::move(event));
}

void TurnWriter::TellProgress(Session& session) {
  Writing& writing = *session.writing;
  if (session.memory == nullptr) return;
  const int64_t now_us = parts_.clock.MonotonicUs();
  const uint64_t position = session.position();
  const uint64_t known = session.tokens_known();
  if (writing.progress_at_us == 0) {
    writing.progress_at_us = now_us;
    writing.progress_first = position;
    writing.progress_first_us = now_us;
    return;
  }
  if (now_us - writing.progress_at_us < kProgressUs) return;
  writing.progress_at_us = now_us;
  v1::Event event;
  v1::Progress& progress = *event.mutable_progress();
  progress.set_phase(position < session.computed_once ? "replay" : "prefill");
  progress.set_tokens_done(position - std::min(position, writing.progress_first));
  progress.set_tokens_total(known - std::min(known, writing.progress_first));
  progress.set_tokens_per_second(static_cast<double>(progress.tokens_done()) * 1e6 /
                                 static_cast<double>(now_us - writing.progress_first_us));
  writing.call->Emit(std::move(event));
}

void TurnWriter::Cut(Session& session, CutOff why) {
  Writing& writing = *session.writing;
  const std::shared_ptr<Call> call = writing.call;
  if (writing.stage == WriteStage::kCommitted) {
    // The append is logged, whoever still waits for it; the rest is computed all the same.
    v1::Event event = std::move(*writing.answer);
    *event.mutable_appended()->mutable_memory() = ReportOf(session);
    call->Finish(std::move(event));
    return EndWriting(session, /*committed=*/true);
  }
  const bool keep = call->request().generate().on_disconnect() == v1::ON_DISCONNECT_KEEP;
  if (keep && !writing.generated.empty()) {
    Generation& generation = *writing.generation;
    generation.truncated = true;
    generation.stop_reason = why == CutOff::kCancelled      ? v1::STOP_REASON_CANCELLED
                             : why == CutOff::kDisconnected ? v1::STOP_REASON_DISCONNECTED
                                                            : v1::STOP_REASON_DEADLINE;
    generation.text += generation.stop_text.Push(generation.text_stream.Finish());
    generation.text += generation.stop_text.Finish();
    return CommitGenerated(session);
  }
  MNEME_LOG(kInfo, "turn_cut_off", "session={} prompt={} generated={} why={}", session.id.value,
            writing.prompt.size(), writing.generated.size(),
            why == CutOff::kCancelled ? "cancelled"
                                      : (why == CutOff::kDeadline ? "deadline" : "disconnected"));
  EndWriting(session, /*committed=*/false);
  call->Fail(CutOffError(why, session.name));
}

void TurnWriter::CancelAll() {
  for (const Opener& opener : openers_) opener.call->Cancel();
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->writing != nullptr) session->writing->call->Cancel();
  }
}

}  // namespace mneme::engine
