#include "engine/admission.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"

namespace mneme::engine {
namespace {

// Chunks read between two decode steps of other sessions.
constexpr int kChunksPerRound = 16;
// Between two tries of what has no room.
constexpr int64_t kRoomWaitUs = 50'000;
// Between two answers cut off for their readers: by then the place of the first is free, unless its
// turn is kept on a very slow disk.
constexpr int64_t kBetweenCutsUs = 250'000;

}  // namespace

int Admission::running() const {
  int count = 0;
  for (const auto& [id, session] : parts_.sessions.all()) {
    const Phase phase = session->phase;
    if (phase != Phase::kParked && phase != Phase::kQueued && phase != Phase::kClosed) ++count;
  }
  return count;
}

void Admission::Want(Session& session) {
  session.used_at = ++parts_.uses;
  session.close_wanted = false;
  if (session.phase != Phase::kParked) return;
  session.phase = Phase::kQueued;
  queue_.push_back(session.id);
}

bool Admission::Advance() {
  bool did = false;
  while (!queue_.empty() && HasPlace()) {
    Session* session = parts_.sessions.Get(queue_.front());
    queue_.pop_front();
    if (session == nullptr || session->phase != Phase::kQueued) continue;
    Begin(*session);
    did = true;
  }
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->phase == Phase::kResuming) {
      did = AdvanceResume(*session) || did;
    } else if (session->phase == Phase::kMovingBack && !session->moving_back) {
      bool ordered = false;
      for (const NodeWaiting& node : session->nodes) ordered = ordered || node.ordered;
      if (ordered) continue;
      if (session->memory != nullptr) {
        Settle(*session);
      } else {
        Begin(*session);
      }
      did = true;
    }
    if (session->close_wanted && Park(*session)) did = true;
  }
  CutOffSlowest();
  return ParkBeyondIdleTokens() || did;
}

bool Admission::PlaceWanted() const {
  return std::any_of(queue_.begin(), queue_.end(), [this](SessionId id) {
    const Session* session = parts_.sessions.Get(id);
    return session != nullptr && session->phase == Phase::kQueued && session->writing != nullptr;
  });
}

void Admission::CutOffSlowest() {
  const int64_t now_us = parts_.clock.MonotonicUs();
  const int64_t elapsed_us = now_us - std::exchange(looked_us_, now_us);
  Session* slowest = nullptr;
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->phase != Phase::kRunning || !session->paused()) continue;
    int64_t& paused_us = session->writing->generation->paused_us;
    paused_us += elapsed_us;
    if (slowest == nullptr || paused_us > slowest->writing->generation->paused_us)
      slowest = session.get();
  }
  if (slowest == nullptr || now_us < next_cut_us_ || !PlaceWanted()) return;
  if (slowest->writing->generation->paused_us < parts_.options.paused_ms_max * int64_t{1'000})
    return;
  slowest->writing->call->CutOffReader();
  next_cut_us_ = now_us + kBetweenCutsUs;
}

bool Admission::ParkBeyondIdleTokens() {
  int tokens = 0;
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->phase == Phase::kIdle) tokens += session->memory->open_tokens();
  }
  if (tokens <= parts_.options.idle_tokens_max) return false;
  std::vector<Session*> idle;
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (CanPark(*session) && session->memory->open_tokens() > 0) idle.push_back(session.get());
  }
  std::sort(idle.begin(), idle.end(),
            [](const Session* one, const Session* other) { return one->used_at < other->used_at; });
  bool did = false;
  for (Session* session : idle) {
    if (tokens <= parts_.options.idle_tokens_max) break;
    tokens -= session->memory->open_tokens();
    did = Park(*session) || did;
  }
  return did;
}

bool Admission::HasPlace() { return running() < parts_.options.running_max || ParkOne(); }

bool Admission::CanPark(const Session& session) const {
  return session.phase == Phase::kIdle && session.writing == nullptr && session.nodes.empty();
}

bool Admission::ParkOne() {
  Session* oldest = nullptr;
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (CanPark(*session) && (oldest == nullptr || session->used_at < oldest->used_at))
      oldest = session.get();
  }
  return oldest != nullptr && Park(*oldest);
}

bool Admission::Park(Session& session) {
  if (session.writing != nullptr || !session.has_memory()) return false;
  // Nodes on their way name chunks that a resume would compute a second time.
  if (!session.nodes.empty() && !session.chain_broken) return false;
  session.memory.reset();
  session.at_head.reset();
  session.logged.Forget();
  session.last_shares = {};
  session.last_reads = {};
  session.phase = Phase::kParked;
  session.close_wanted = false;
  session.parts = {};
  ++parts_.room_changes;
  MNEME_LOG(kInfo, "parked", "session={} tokens={}", session.id.value, session.head.position());
  return true;
}

bool Admission::MakeRoom() { return keeper_.saves_in_flight() > 0 || ParkOne(); }

void Admission::Settle(Session& session) {
  if (session.memory == nullptr) return;
  const auto work = session.HasWork();
  // An error shows again when the scheduler asks for the tokens.
  session.phase = !work || *work ? Phase::kRunning : Phase::kIdle;
  if (session.phase == Phase::kIdle) session.memory->ReleaseUnused();
}

void Admission::Begin(Session& session) {
  memory::NodeKey newest;
  if (const auto stored = parts_.log().GetSession(session.id))
    newest = memory::NodeKey{memory::DigestFrom(stored->head.newest_node())};
  session.resume = std::make_unique<memory::Resume>(parts_.layout, parts_.cache, parts_.log(),
                                                    parts_.mover, newest);
  session.resume_began_us = parts_.clock.MonotonicUs();
  session.chain_broken = false;
  session.phase = Phase::kResuming;
}

bool Admission::AdvanceResume(Session& session) {
  if (session.blocked_until >= parts_.room_changes &&
      parts_.clock.MonotonicUs() < session.blocked_until_us)
    return false;
  const auto done = session.resume->Advance(kChunksPerRound);
  if (!done) {
    if (done.error().code() == ErrorCode::kResourceExhausted && MakeRoom()) {
      session.blocked_until = parts_.room_changes;
      session.blocked_until_us = parts_.clock.MonotonicUs() + kRoomWaitUs;
      return false;
    }
    MNEME_LOG(kWarning, "not_resumed", "session={} error=\"{}\"", session.id.value,
              done.error().message());
    failures_.emplace_back(session.id, Error(done.error()).Within("bring memory back"));
    session.resume.reset();
    session.phase = Phase::kParked;
    return true;
  }
  if (*done) EndResume(session);
  return true;
}

void Admission::EndResume(Session& session) {
  const memory::ResumeReport report = session.resume->report();
  session.memory = session.resume->Take();
  if (report.chunks_missed == 0) keeper_.Thin(session, session.resume->stale_rungs());
  session.resume.reset();
  const double elapsed_ms =
      static_cast<double>(parts_.clock.MonotonicUs() - session.resume_began_us) / 1000;
  session.parts.restored = report.restored_tokens;
  session.parts.replayed = 0;
  session.parts.fresh = 0;
  session.parts.restore_ms += elapsed_ms;
  session.parts.from_disk = report.restored_tokens > 0;
  if (!report.miss_reason.empty()) session.parts.miss_reason = report.miss_reason;
  session.counters.tokens_restored += report.restored_tokens;
  session.counters.pages_missed += report.chunks_missed;
  parts_.counters.tokens_restored += report.restored_tokens;
  parts_.counters.pages_missed += report.chunks_missed;
  MNEME_LOG(
      kInfo, "resumed", "session={} restored={} to_replay={} ms={:.1f} missed={} reason=\"{}\"",
      session.id.value, report.restored_tokens, session.head.position() - report.restored_tokens,
      elapsed_ms, report.chunks_missed, report.miss_reason);
  if (report.chunks_missed > 0) {
    keeper_.MoveBack(session);
  } else {
    Settle(session);
  }
}

}  // namespace mneme::engine
