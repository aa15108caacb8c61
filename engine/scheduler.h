// Scheduler runs the steps: in one round a decode step over all sessions that have a generated
// token to compute, and at most one slice of one session's prompt, so that a long prompt delays
// others by one slice and others delay it by one decode step.
//
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/admission.h"
#include "engine/chunk_keeper.h"
#include "engine/parts.h"
#include "engine/turn_writer.h"

namespace mneme::engine {

class Scheduler {
 public:
  Scheduler(Parts& parts, ChunkKeeper& keeper, Admission& admission, TurnWriter& writer)
      : parts_(parts), keeper_(keeper), admission_(admission), writer_(writer) {}

  // One round. False when there was nothing to compute.
  bool Round();

  double prefill_tokens_per_second() const { return prefill_rate_; }
  double decode_tokens_per_second() const { return decode_rate_; }

 private:
  // What a session computes next.
  enum class Need : uint8_t { kNothing, kDecode, kSample, kPrefill };
  struct Ready {
    Session* session = nullptr;
    TokenRun run;
    bool draw = false;  // the decode row's next token is wanted
  };

  Result<Need> NeedOf(Session& session, Ready* ready);
  // The session is sealed and its state before uncommitted tokens is kept; false: not now.
  bool Prepare(Session& session);
  bool Blocked(const Session& session) const;
  void Decode(std::vector<Ready>& rows);
  void DecodeBatch(std::vector<Ready> rows);
  void Draw(Session& session);
  bool Prefill(std::vector<Ready>& sessions);
  void RunSlice(Ready& ready);
  kernels::Sampling SamplingOf(const Session& session) const;
  void Count(Session& session, uint64_t first, uint64_t tokens);
  // What failed for want of room waits, what failed for a lost group goes back, the rest fails.
  void Failed(Session& session, const Error& error, bool alone);
  void Wait(Session& session);

  Parts& parts_;
  ChunkKeeper& keeper_;
  Admission& admission_;
  TurnWriter& writer_;
  uint64_t decode_turn_ = 0;   // whose row comes first
  uint64_t prefill_last_ = 0;  // session whose slice came last
  double prefill_rate_ = 0;    // tokens per second, smoothed; 0: not measured yet
  double decode_rate_ = 0;
  std::unordered_map<const memory::ClosedChunk*, uint32_t> reads_;  // of the step just done
};

}  // namespace mneme::engine
