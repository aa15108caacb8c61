// Admission decides which sessions hold memory: at most running_max at once, first come first
// served. A session that has nothing to do is parked when another needs its place, or when idle
// sessions together hold more open tokens than they may. One whose answer waits for its reader
// keeps its place for a while only where others wait for one: then it is cut off.
//
// Threads:  engine thread only.
#pragma once

#include <deque>

#include "engine/chunk_keeper.h"
#include "engine/parts.h"

namespace mneme::engine {

class Admission {
 public:
  Admission(Parts& parts, ChunkKeeper& keeper) : parts_(parts), keeper_(keeper) {}

  // The session wants its memory; it gets it in its turn. Nothing to do where it has it.
  void Want(Session& session);

  // One round: places for who waits, and a few chunks more for who resumes. True when there was
  // something to do.
  bool Advance();

  // Whether something will make room without any request's help: a save in flight, or a session
  // that could be parked. Parks that session.
  bool MakeRoom();

  // Drops the memory, if nothing is in the way of it.
  bool Park(Session& session);

  // After a session's memory or work changed: running or idle.
  void Settle(Session& session);

  // The error that a session's resume ended with, which its write is to be told; once.
  std::vector<std::pair<SessionId, Error>> TakeFailures() { return std::exchange(failures_, {}); }

  int running() const;

 private:
  bool HasPlace();
  bool ParkOne();
  bool ParkBeyondIdleTokens();
  // Counts how long readers kept their answers, and cuts the worst off where a place is wanted.
  void CutOffSlowest();
  bool PlaceWanted() const;
  bool CanPark(const Session& session) const;
  void Begin(Session& session);
  bool AdvanceResume(Session& session);
  void EndResume(Session& session);

  Parts& parts_;
  ChunkKeeper& keeper_;
  std::deque<SessionId> queue_;
  int64_t looked_us_ = 0;    // when pauses were last counted
  int64_t next_cut_us_ = 0;  // not before
  std::vector<std::pair<SessionId, Error>> failures_;
};

}  // namespace mneme::engine
