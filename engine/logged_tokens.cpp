#include "engine/logged_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace mneme::engine {
namespace {

constexpr size_t kTurnsKept = 4;

}  // namespace

TokenRun TurnTokens::RunAt(uint64_t position) const {
  MNEME_CHECK(position >= first_position && position < end_position(), "position {} of {} to {}",
              position, first_position, end_position());
  const auto at = static_cast<size_t>(position - first_position);
  const auto part = std::find_if(parts.begin(), parts.end(),
                                 [at](const Part& candidate) { return at < candidate.end; });
  return {.tokens = std::span(ids).subspan(at, part->end - at), .generated = part->generated};
}

TurnTokens TokensOf(const v1::TurnRecord& record) {
  TurnTokens turn;
  turn.number = record.number();
  turn.first_position = record.first_position();
  for (const v1::TurnPart& part : record.parts()) {
    if (part.token_ids().empty()) continue;
    turn.ids.insert(turn.ids.end(), part.token_ids().begin(), part.token_ids().end());
    const bool generated = part.role() == v1::TOKEN_ROLE_GENERATED;
    if (!turn.parts.empty() && turn.parts.back().generated == generated) {
      turn.parts.back().end = turn.ids.size();
    } else {
      turn.parts.push_back({.end = turn.ids.size(), .generated = generated});
    }
  }
  return turn;
}

Result<const TurnTokens*> LoggedTokens::Turn(uint64_t number) {
  for (auto at = turns_.begin(); at != turns_.end(); ++at) {
    if (at->number != number) continue;
    turns_.splice(turns_.begin(), turns_, at);
    return &turns_.front();
  }
  const auto stored = store_.ReadTurn(session_, {number});
  MNEME_TRY(stored);
  turns_.push_front(TokensOf(stored->record));
  if (turns_.size() > kTurnsKept) turns_.pop_back();
  return &turns_.front();
}

Result<const TurnTokens*> LoggedTokens::TurnAt(uint64_t position, const v1::HeadRecord& head) {
  MNEME_CHECK(position < head.position(), "position {} of {}", position, head.position());
  for (const TurnTokens& turn : turns_) {
    if (position >= turn.first_position && position < turn.end_position()) return Turn(turn.number);
  }
  uint64_t first = 1;
  uint64_t last = head.turn();
  // Replay asks for one turn after the other.
  uint64_t guess = turns_.empty() ? (first + last) / 2 : turns_.front().number + 1;
  while (first <= last) {
    guess = std::clamp(guess, first, last);
    const auto turn = Turn(guess);
    MNEME_TRY(turn);
    if (position < (*turn)->first_position) {
      last = guess - 1;
    } else if (position >= (*turn)->end_position()) {
      first = guess + 1;
    } else {
      return *turn;
    }
    guess = first + (last - first) / 2;
  }
  const auto stored = store_.GetSession(session_);
  MNEME_TRY(stored);
  return Fail(ErrorCode::kCorruption, "session {}: no turn holds position {} of {}",
              stored->record.name(), position, head.position());
}

Result<TokenRun> LoggedTokens::RunAt(uint64_t position, const v1::HeadRecord& head) {
  const auto turn = TurnAt(position, head);
  MNEME_TRY(turn);
  return (*turn)->RunAt(position);
}

}  // namespace mneme::engine
