// SessionReader answers the requests that change nothing: Stats, List, Transcript, Explain. They
// are answered between two steps, whatever the session is doing.
//
// Threads:  engine thread only.
#pragma once

#include <memory>

#include "engine/parts.h"
#include "engine/scheduler.h"

namespace mneme::engine {

class SessionReader {
 public:
  SessionReader(Parts& parts, const Scheduler& scheduler, const Admission& admission)
      : parts_(parts), scheduler_(scheduler), admission_(admission) {}

  void Stats(Call& call);
  void List(Call& call);
  void Transcript(Call& call);
  void Explain(Call& call);

 private:
  v1::TierBytes BytesOf(const memory::StoredSession& stored, Session* session) const;
  uint64_t ChunksOf(const memory::StoredSession& stored) const;
  // Chunks up to the newest that the page store has whole.
  uint64_t ChunksKept(const memory::StoredSession& stored) const;
  uint64_t DiskBytesOf(const memory::StoredSession& stored) const;
  void ServerStats(v1::StatsReply* reply) const;
  Result<v1::StatsReply> SessionStats(const std::string& name) const;
  Result<v1::Explanation> ExplanationOf(const v1::ExplainRequest& request);

  Parts& parts_;
  const Scheduler& scheduler_;
  const Admission& admission_;
};

}  // namespace mneme::engine
