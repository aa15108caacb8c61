// SessionReader answers the requests that change nothing: Stats, List, Transcript, Explain. They
// are answered between two steps, whatever the session is doing. Stats of the whole server and List
// look at many sessions, each of which can cost a read of the disk: as many between two steps as
// fit into 2 ms, so that they hold up no tokens.
//
// Threads:  engine thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/parts.h"
#include "engine/scheduler.h"

namespace mneme::engine {

class SessionReader {
 public:
  SessionReader(Parts& parts, const Scheduler& scheduler, const Admission& admission)
      : parts_(parts), scheduler_(scheduler), admission_(admission) {}

  void Stats(std::shared_ptr<Call> call);
  void List(std::shared_ptr<Call> call);
  void Transcript(Call& call);
  void Explain(Call& call);

  // Looks at some of the sessions that Stats or List was asked about; true where there were any.
  bool Advance();

 private:
  struct ChunkCounts {
    uint64_t logged = 0;
    uint64_t kept = 0;  // up to the newest that the page store has whole
  };
  // Sessions as they were when the look began, and an answer that has those before `next`.
  struct Look {
    std::vector<std::shared_ptr<Call>> calls;
    std::vector<memory::StoredSession> sessions;
    size_t next = 0;
    v1::Event answer;
  };

  void Begin(std::shared_ptr<Call> call);
  void AddTo(v1::StatsReply* reply, const memory::StoredSession& stored) const;
  void AddTo(v1::SessionList* list, const memory::StoredSession& stored) const;
  ChunkCounts ChunksOf(const memory::StoredSession& stored) const;
  uint64_t DiskBytesOf(const memory::StoredSession& stored, const ChunkCounts& chunks) const;
  v1::TierBytes BytesOf(const memory::StoredSession& stored, const ChunkCounts& chunks,
                        const Session* session) const;
  void AddServer(v1::StatsReply* reply) const;
  Result<v1::StatsReply> SessionStats(const std::string& name) const;
  Result<v1::Explanation> ExplanationOf(const v1::ExplainRequest& request);

  Parts& parts_;
  const Scheduler& scheduler_;
  const Admission& admission_;
  std::deque<std::shared_ptr<Call>> asking_;  // wait for their look
  Look look_;                                 // no calls: there is none
};

}  // namespace mneme::engine
