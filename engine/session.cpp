#include "engine/session.h"

#include <algorithm>

#include "base/check.h"

namespace mneme::engine {

std::string_view NameOf(Phase phase) {
  switch (phase) {
    case Phase::kParked:
      return "parked";
    case Phase::kQueued:
      return "queued";
    case Phase::kResuming:
      return "resuming";
    case Phase::kMovingBack:
      return "moving_back";
    case Phase::kRunning:
      return "running";
    case Phase::kIdle:
      return "idle";
    case Phase::kClosed:
      return "closed";
  }
  return "?";
}

Session::Session(const memory::TurnStore& store, const memory::StoredSession& stored)
    : id{stored.record.id()},
      name(stored.record.name()),
      created_us(static_cast<int64_t>(stored.record.created_wall_us())),
      head(stored.head),
      logged(store, id),
      computed_once(stored.head.position()) {}

Result<TokenRun> Session::RunAt(uint64_t position) {
  MNEME_CHECK(position < tokens_known(), "position {} of {}", position, tokens_known());
  if (position < head.position()) return logged.RunAt(position, head);
  const auto at = static_cast<size_t>(position - head.position());
  if (at < writing->prompt.size())
    return TokenRun{.tokens = std::span(writing->prompt).subspan(at), .generated = false};
  return TokenRun{.tokens = std::span(writing->generated).subspan(at - writing->prompt.size()),
                  .generated = true};
}

Result<std::vector<int32_t>> Session::Collect(uint64_t first, uint64_t count) {
  std::vector<int32_t> ids;
  while (ids.size() < count) {
    const auto run = RunAt(first + ids.size());
    MNEME_TRY(run);
    const size_t taken = std::min<size_t>(run->tokens.size(), count - ids.size());
    ids.insert(ids.end(), run->tokens.begin(), run->tokens.begin() + static_cast<ptrdiff_t>(taken));
  }
  return ids;
}

Result<bool> Session::HasWork() {
  if (generating()) return true;
  if (position() >= head.position()) return false;
  if (writing != nullptr && writing->stage == WriteStage::kCommitting) return false;
  if (position() + 1 < head.position()) return true;
  const auto run = RunAt(position());
  MNEME_TRY(run);
  return !run->generated;
}

}  // namespace mneme::engine
