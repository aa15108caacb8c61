#include "engine/session_table.h"

namespace mneme::engine {

Result<Session*> SessionTable::Find(const std::string& name) {
  const auto stored = store_.FindSession("", name);
  if (!stored) {
    if (stored.error().code() == ErrorCode::kNotFound)
      return Fail(ErrorCode::kNotFound, "session {}: there is none of this name", name);
    return Fail(stored.error());
  }
  if (stored->condition != memory::SessionCondition::kWhole) {
    return Fail(
        ErrorCode::kCorruption, "session {}: {}", name,
        stored->condition == memory::SessionCondition::kRegressed
            ? "turns that were acknowledged are missing, or may be; it is not served until the "
              "server was started with --accept-loss (what it says at its start tells which)"
            : "its chain of turns is damaged; restore the store from a copy, or delete the "
              "session");
  }
  if (Session* used = Used(name)) return used;
  auto session = std::make_unique<Session>(store_, *stored);
  Session* made = session.get();
  names_.emplace(name, made->id.value);
  sessions_.emplace(made->id.value, std::move(session));
  return made;
}

Session* SessionTable::Used(const std::string& name) {
  const auto known = names_.find(name);
  return known == names_.end() ? nullptr : sessions_.at(known->second).get();
}

Session* SessionTable::Get(SessionId id) {
  const auto found = sessions_.find(id.value);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void SessionTable::Remove(SessionId id) {
  const auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return;
  names_.erase(found->second->name);
  sessions_.erase(found);
}

}  // namespace mneme::engine
