// SessionTable holds the sessions that were used since the start, by id and by name. A session that
// nobody used lies in the log alone; one that is parked costs about a kilobyte here.
//
// Owns:     the sessions.
// Threads:  engine thread only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "engine/session.h"

namespace mneme::engine {

class SessionTable {
 public:
  explicit SessionTable(const memory::TurnStore& store) : store_(store) {}

  // The session of that name, from the log where it was not used yet. kNotFound, naming it; and the
  // log's errors: kCorruption where its turns are damaged or missing, whenever that was found.
  Result<Session*> Find(const std::string& name);

  // The session of that name where it was used since the start, whatever its turns are now; or
  // null.
  Session* Used(const std::string& name);

  // Null where it is not here (any more).
  Session* Get(SessionId id);

  void Remove(SessionId id);

  // In order of their ids.
  const std::map<uint64_t, std::unique_ptr<Session>>& all() const { return sessions_; }

 private:
  const memory::TurnStore& store_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<std::string, uint64_t> names_;
};

}  // namespace mneme::engine
