// LoggedTokens finds the tokens of a session by position in its log, as runs of one turn and one
// role: what is computed in one form and never mixed in one slice.
//
// Owns:     the few turns it read last.
// Threads:  engine thread only.
// Errors:   those of TurnStore::ReadTurn
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "memory/turn_store.h"

namespace mneme::engine {

// Tokens from the position that was asked for to the end of their run.
struct TokenRun {
  std::span<const int32_t> tokens;
  bool generated = false;  // computed as decode rows; else as prefill slices
};

// One turn's tokens in order.
struct TurnTokens {
  uint64_t number = 0;
  uint64_t first_position = 0;
  std::vector<int32_t> ids;
  struct Part {
    size_t end = 0;  // index in ids, exclusive
    bool generated = false;
  };
  std::vector<Part> parts;  // neighbours differ in `generated`

  uint64_t end_position() const { return first_position + ids.size(); }
  // From `position`, which the turn holds.
  TokenRun RunAt(uint64_t position) const;
};

TurnTokens TokensOf(const v1::TurnRecord& record);

class LoggedTokens {
 public:
  LoggedTokens(const memory::TurnStore& store, SessionId session)
      : store_(store), session_(session) {}

  // The turn that holds `position`, which lies before the head's. Good until the next call.
  Result<const TurnTokens*> TurnAt(uint64_t position, const v1::HeadRecord& head);

  Result<TokenRun> RunAt(uint64_t position, const v1::HeadRecord& head);

  // Drops the turns it holds; they are read again when asked for.
  void Forget() { turns_.clear(); }

 private:
  Result<const TurnTokens*> Turn(uint64_t number);

  const memory::TurnStore& store_;
  const SessionId session_;
  std::list<TurnTokens> turns_;  // used last first
};

}  // namespace mneme::engine
