// CommitStage gathers the entries of one commit: each is checked against the store and against the
// entries before it, and either becomes part of the batch or leaves no trace. Private to
// memory/turn_*_rocksdb.cpp.
//
// Threads:  the log thread
#pragma once

#include <rocksdb/write_batch.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "memory/turn_store_rocksdb.h"

namespace mneme::memory {

class CommitStage {
 public:
  explicit CommitStage(RocksdbTurnStore& store);

  Result<Committed> Stage(const LogEntry& entry);

  bool empty() const { return staged_ == 0; }
  uint64_t counter() const { return counter_; }

  // One synced write of everything that was staged.
  Status Write();

  // Shows it to readers, after Write succeeded.
  void Publish();

 private:
  using Nodes = std::map<NodeKey, std::optional<v1::ChunkNodeRecord>>;  // none: removed

  Result<Committed> Add(const CreateSession& entry);
  Result<Committed> Add(const AppendTurn& entry);
  Result<Committed> Add(const AddNode& entry);
  Result<Committed> Add(const MoveToNode& entry);
  Result<Committed> Add(const UpdateSession& entry);
  Result<Committed> Add(const DeleteSession& entry);

  // A copy; kCorruption for a session that may not be served.
  Result<StoredSession> Find(SessionId id) const;
  Result<StoredSession> FindServable(SessionId id) const;
  std::optional<SessionId> FindName(const std::string& name_key) const;
  // What the key has already done, in this commit or before; none where it is fresh.
  Result<std::optional<Committed>> FindRepeated(SessionId id, const v1::TurnRecord& turn) const;
  Status CheckRoom(DiskRoom needed) const;
  Status CheckTurn(const StoredSession& session, const v1::TurnRecord& turn) const;
  void RememberKey(const StoredSession& session, const v1::TurnRecord& turn,
                   const Committed& committed);

  Result<v1::ChunkNodeRecord> GetNode(const Nodes& edit, const NodeKey& key) const;
  // One reference less; frees upwards.
  Status Release(Nodes* edit, NodeKey key, std::vector<NodeKey>* freed) const;
  Status MoveNewest(Nodes* edit, v1::HeadRecord* head, const NodeKey& to,
                    std::vector<NodeKey>* freed) const;

  Receipt HeadReceipt(SessionId id, const v1::HeadRecord& head) const;
  void Put(const StoredSession& session, bool record_too);
  void AddRecordsToBatch();

  RocksdbTurnStore& store_;
  uint64_t counter_;
  ChainHash chain_;
  uint64_t next_session_id_;
  int64_t session_count_;
  size_t staged_ = 0;
  rocksdb::WriteBatch batch_;
  std::map<SessionId, std::optional<StoredSession>> sessions_;  // none: deleted
  std::set<SessionId> records_changed_;
  std::map<std::string, std::optional<SessionId>> names_;  // none: free again
  std::map<std::string, std::pair<std::string, Committed>>
      keys_;  // by key: request hash, what it did
  Nodes nodes_;
  uint64_t oldest_commit_kept_;
};

}  // namespace mneme::memory
