#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace mneme::engine {
namespace {

constexpr int64_t kRoomWaitUs = 50'000;
constexpr double kRateWeight = 0.25;  // of the newest measurement

void Smooth(double* rate, double tokens, int64_t elapsed_us) {
  if (elapsed_us <= 0) return;
  const double measured = tokens * 1e6 / static_cast<double>(elapsed_us);
  *rate = *rate == 0 ? measured : *rate + kRateWeight * (measured - *rate);
}

}  // namespace

bool Scheduler::Round() {
  std::vector<Ready> decode;
  std::vector<Ready> prefill;
  std::vector<Session*> draw;
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->phase != Phase::kRunning || Blocked(*session) || !Prepare(*session)) continue;
    Ready ready;
    const auto need = NeedOf(*session, &ready);
    if (!need) {
      writer_.OnError(*session, need.error());
      continue;
    }
    switch (*need) {
      case Need::kDecode:
        decode.push_back(ready);
        break;
      case Need::kPrefill:
        prefill.push_back(ready);
        break;
      case Need::kSample:
        draw.push_back(session.get());
        break;
      case Need::kNothing:
        break;
    }
  }
  const bool any = !decode.empty() || !draw.empty();
  for (Session* session : draw) Draw(*session);
  if (!decode.empty()) Decode(decode);
  return Prefill(prefill) || any;
}

bool Scheduler::Blocked(const Session& session) const {
  return session.blocked_until >= parts_.room_changes &&
         parts_.clock.MonotonicUs() < session.blocked_until_us;
}

void Scheduler::Wait(Session& session) {
  session.blocked_until = parts_.room_changes;
  session.blocked_until_us = parts_.clock.MonotonicUs() + kRoomWaitUs;
}

bool Scheduler::Prepare(Session& session) {
  if (session.memory->full()) {
    if (const Status sealed = keeper_.Seal(session); !sealed) {
      Failed(session, sealed.error(), /*alone=*/true);
      return false;
    }
  }
  if (session.generating() && session.at_head == nullptr &&
      session.memory->position() == session.head.position())
    session.at_head = std::make_unique<memory::SessionMemory>(session.memory->Fork());
  return true;
}

Result<Scheduler::Need> Scheduler::NeedOf(Session& session, Ready* ready) {
  const auto work = session.HasWork();
  MNEME_TRY(work);
  if (!*work) {
    session.phase = Phase::kIdle;
    return Need::kNothing;
  }
  ready->session = &session;
  const uint64_t position = session.position();
  const uint64_t known = session.tokens_known();
  const bool generating = session.generating();
  if (session.paused()) return Need::kNothing;
  if (position == known) return generating ? Need::kSample : Need::kNothing;
  const auto run = session.RunAt(position);
  MNEME_TRY(run);
  ready->run = *run;
  if (!run->generated) {
    if (keeper_.UnsavedTokens(session) < parts_.options.unsaved_tokens_max) return Need::kPrefill;
    // Who waits is told why; what is logged is computed when the store goes on.
    if (const auto stuck = parts_.mover.stuck(); stuck && session.awaited()) {
      writer_.OnError(session, Error(*stuck).Within("memory waits for the page store"));
      admission_.Settle(session);
    }
    return Need::kNothing;
  }
  ready->draw = generating && position + 1 == known && !session.writing->generated.empty();
  return Need::kDecode;
}

kernels::Sampling Scheduler::SamplingOf(const Session& session) const {
  const Generation& generation = *session.writing->generation;
  kernels::Sampling sampling = generation.sampling;
  sampling.position = session.tokens_known();
  if (generation.repetition) {
    const std::span<const int32_t> ids = generation.repetition->ids();
    sampling.seen = ids.data();
    sampling.seen_count = static_cast<int32_t>(ids.size());
  }
  return sampling;
}

void Scheduler::Draw(Session& session) {
  writer_.Started(session);
  const auto token = parts_.step.Sample(*session.memory, SamplingOf(session));
  if (!token) return writer_.OnError(session, token.error());
  writer_.OnSampled(session, {.token = *token,
                              .shares = std::exchange(session.last_shares, {}),
                              .reads = &session.last_reads});
}

void Scheduler::Decode(std::vector<Ready>& rows) {
  // The first rows are served first when room is short, so each is first in its turn.
  std::rotate(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(decode_turn_++ % rows.size()),
              rows.end());
  const auto lonely =
      std::find_if(rows.begin(), rows.end(), [](const Ready& row) { return row.session->alone; });
  if (lonely != rows.end()) return DecodeBatch({*lonely});
  if (rows.size() > static_cast<size_t>(parts_.step.batch_max()))
    rows.resize(static_cast<size_t>(parts_.step.batch_max()));
  DecodeBatch(std::move(rows));
}

void Scheduler::DecodeBatch(std::vector<Ready> rows) {
  std::vector<model::DecodeRow> batch;
  for (const Ready& row : rows) {
    const bool explain = row.draw && row.session->writing->generation->explain;
    batch.push_back({.memory = row.session->memory.get(),
                     .token = row.run.tokens[0],
                     .sample = row.draw,
                     .explain = explain,
                     .sampling = row.draw ? SamplingOf(*row.session) : kernels::Sampling{}});
  }
  std::vector<model::DecodeResult> results(batch.size());
  const int64_t began_us = parts_.clock.MonotonicUs();
  const Status done = parts_.step.Decode(batch, results);
  const int64_t elapsed_us = parts_.clock.MonotonicUs() - began_us;
  parts_.counters.decode_us += static_cast<uint64_t>(elapsed_us);
  Smooth(&decode_rate_, static_cast<double>(rows.size()), elapsed_us);
  reads_ = parts_.mover.TakeReads();
  for (size_t row = 0; row < rows.size(); ++row) {
    Session& session = *rows[row].session;
    const Status& status = done ? results[row].status : done;
    if (!status) {
      Failed(session, status.error(), rows.size() == 1);
      continue;
    }
    session.alone = false;
    Count(session, session.position() - 1, 1);
    if (!rows[row].draw) continue;
    writer_.OnSampled(session, {.token = results[row].next_token,
                                .shares = std::move(results[row].shares),
                                .reads = &reads_});
  }
}

bool Scheduler::Prefill(std::vector<Ready>& sessions) {
  if (sessions.empty()) return false;
  // The next session after the one that had the last slice, in order of their ids.
  auto next = std::find_if(sessions.begin(), sessions.end(), [this](const Ready& ready) {
    return ready.session->id.value > prefill_last_;
  });
  if (next == sessions.end()) next = sessions.begin();
  prefill_last_ = next->session->id.value;
  RunSlice(*next);
  return true;
}

void Scheduler::RunSlice(Ready& ready) {
  Session& session = *ready.session;
  const int chunk_tokens = parts_.layout.chunk_tokens();
  int tokens_max = kernels::kPieceTokens;
  if (!session.small_slices && prefill_rate_ != 0) {
    const double fits = prefill_rate_ * parts_.options.step_ms / 1000;
    const int cells =
        static_cast<int>(std::min<double>(fits, chunk_tokens)) / kernels::kPieceTokens;
    tokens_max = std::max(cells, 1) * kernels::kPieceTokens;
  }
  const uint64_t first = session.position();
  const int count = model::SliceTokens(first, ready.run.tokens.size(), chunk_tokens, tokens_max);
  const bool last =
      session.generating() && first + static_cast<uint64_t>(count) == session.tokens_known();
  const bool explain = last && session.writing->generation->explain;
  session.last_shares.clear();
  const int64_t began_us = parts_.clock.MonotonicUs();
  const Status done =
      parts_.step.Prefill(*session.memory, ready.run.tokens.first(static_cast<size_t>(count)),
                          explain ? &session.last_shares : nullptr);
  const int64_t elapsed_us = parts_.clock.MonotonicUs() - began_us;
  parts_.counters.prefill_us += static_cast<uint64_t>(elapsed_us);
  session.last_reads = parts_.mover.TakeReads();
  reads_ = session.last_reads;
  if (!done) {
    if (done.error().code() == ErrorCode::kResourceExhausted && !session.small_slices) {
      session.small_slices = true;  // a shorter slice reads fewer groups at once
      return;
    }
    return Failed(session, done.error(), /*alone=*/true);
  }
  // A slice of a few tokens costs a whole cell, which says nothing about the rate.
  if (count >= kernels::kPieceTokens) Smooth(&prefill_rate_, count, elapsed_us);
  Count(session, first, static_cast<uint64_t>(count));
  // At once, so that the chunk is on its way to disk while others compute.
  if (session.memory->full()) Prepare(session);
}

void Scheduler::Count(Session& session, uint64_t first, uint64_t tokens) {
  const uint64_t end = first + tokens;
  const uint64_t again =
      std::min(tokens, session.computed_once - std::min(first, session.computed_once));
  session.parts.replayed += again;
  session.parts.fresh += tokens - again;
  session.counters.tokens_replayed += again;
  session.counters.tokens_computed += tokens;
  parts_.counters.tokens_replayed += again;
  session.computed_once = std::max(session.computed_once, end);
  for (const auto& [chunk, count] : reads_) {
    const auto index = static_cast<uint32_t>(chunk->first_position() /
                                             static_cast<uint64_t>(parts_.layout.chunk_tokens()));
    if (index >= session.memory->chunk_count() || &session.memory->chunk(index) != chunk) continue;
    session.parts.pages_from_disk += count;
    session.counters.page_reads += count;
  }
}

void Scheduler::Failed(Session& session, const Error& error, bool alone) {
  const std::vector<memory::GroupMiss> misses = parts_.mover.TakeMisses();
  if (error.code() == ErrorCode::kResourceExhausted) {
    if (!alone) {
      session.alone = true;
      return;
    }
    if (admission_.MakeRoom()) {
      const auto stuck = parts_.mover.stuck();
      if (!stuck) return Wait(session);
      return writer_.OnError(session, Error(*stuck).Within("memory waits for the page store"));
    }
    return writer_.OnError(session, error);
  }
  if (error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kCorruption) {
    // The oldest of the session's chunks that was missed decides how far memory goes back.
    const memory::GroupMiss* oldest = nullptr;
    for (const memory::GroupMiss& miss : misses) {
      const auto index = static_cast<uint32_t>(miss.first_position /
                                               static_cast<uint64_t>(parts_.layout.chunk_tokens()));
      if (index >= session.memory->chunk_count() ||
          session.memory->chunk(index).key() != miss.node.bytes)
        continue;
      if (oldest == nullptr || miss.first_position < oldest->first_position) oldest = &miss;
    }
    if (oldest != nullptr) return keeper_.LoseChunks(session, *oldest);
  }
  if (error.code() == ErrorCode::kUnavailable && session.read_retries++ < 20) return Wait(session);
  session.read_retries = 0;
  writer_.OnError(session, error);
}

}  // namespace mneme::engine
