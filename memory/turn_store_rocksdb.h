// RocksdbTurnStore is TurnStore on one RocksDB instance. Private to memory/turn_*_rocksdb.cpp.
//
// Sessions and heads are kept in memory, because every commit needs them; turns, keys and nodes are
// read from the database.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/open_rocksdb.h"
#include "memory/turn_store.h"
#include "memory/watermark.h"

namespace mneme::memory {

class RocksdbTurnStore final : public TurnStore {
 public:
  static Result<std::unique_ptr<RocksdbTurnStore>> Open(StoreFolder& folder,
                                                        const TurnStoreOptions& options,
                                                        Clock& clock);
  ~RocksdbTurnStore() override;

  std::vector<Result<Committed>> Commit(std::span<const LogEntry> entries) override;
  Status FlushWatermark() override;
  Result<StoredSession> GetSession(SessionId session) const override;
  Result<StoredSession> FindSession(std::string_view tenant, std::string_view name) const override;
  uint64_t SessionsRefused() const override;
  uint64_t SessionsFree() const override;
  std::vector<StoredSession> ListEmptySessions() const override;
  std::vector<StoredSession> ListSessions(std::string_view tenant) const override;
  Result<StoredTurn> ReadTurn(SessionId session, TurnNumber turn) const override;
  Status ReadTurns(SessionId session, TurnNumber first, TurnNumber last,
                   const std::function<bool(const StoredTurn&)>& visit) const override;
  Result<std::optional<v1::IdempotencyRecord>> FindKey(SessionId session,
                                                       std::string_view key) const override;
  Result<v1::ChunkNodeRecord> GetNode(const NodeKey& key) const override;
  Result<bool> HasNode(const NodeKey& key) const override;
  Status CheckReceipt(const Receipt& receipt) const override;
  Status AcceptRegression() override;
  Status Compact() override;
  const OpenReport& report() const override { return report_; }
  uint64_t commit_counter() const override { return counter_.load(std::memory_order_acquire); }
  bool failed() const override { return failed_.load(std::memory_order_acquire); }

 private:
  friend class CommitStage;

  struct TurnKeysCheck {
    TurnNumber first_bad;  // 0: none
    std::string why;
    uint64_t turns = 0;
    uint64_t bytes = 0;
  };

  RocksdbTurnStore(StoreFolder& folder, const TurnStoreOptions& options, Clock& clock,
                   OpenedDatabase opened, Watermark watermark);

  // Open.
  Status Load();
  Status LoadStore();
  Status LoadSessions();
  Status LoadRegressions();
  void CheckChains();
  TurnKeysCheck CheckChain(SessionId session, const v1::HeadRecord& head) const;
  Result<std::optional<Regression>> CompareWithWatermark() const;
  Status BeginEpoch(const std::optional<Regression>& regression);
  void RefuseRegressed(const Regression& regression);

  // What a read of the session's own records met. Of damage the session is refused from then on,
  // with one line in the log of the server.
  Error Met(const Error& error, SessionId session, TurnNumber turn) const;
  // A record by its key: none where there is none, kCorruption where it cannot be parsed.
  Result<std::optional<std::string>> Get(const std::string& key, std::string_view what) const;
  Status WriteBatch(rocksdb::WriteBatch* batch, std::string_view what);
  Receipt ReceiptOf(SessionId session, const StoredTurn& turn) const;
  v1::Durability durability() const {
    return options_.sync ? v1::DURABILITY_SYNCED : v1::DURABILITY_OS;
  }

  StoreFolder& folder_;
  TurnStoreOptions options_;
  Clock& clock_;
  std::string path_;
  std::unique_ptr<rocksdb::DB> db_;
  Watermark watermark_;
  OpenReport report_;

  bool open_ = false;  // the open succeeded: from then on the watermark is ours to write

  // Of the log thread.
  ChainHash commit_chain_;
  uint64_t oldest_commit_kept_ = 1;
  uint64_t next_session_id_ = 1;
  std::optional<StoreId> found_store_;
  uint64_t found_epoch_ = 0;
  int64_t watermark_at_us_ = 0;

  std::atomic<uint64_t> counter_{0};
  std::atomic<bool> failed_{false};

  mutable std::shared_mutex mutex_;  // guards the two maps; held for look-ups and copies only
  mutable std::map<SessionId, StoredSession> sessions_;  // reads change what they are known to be
  std::unordered_map<std::string, SessionId> names_;     // by log_keys::Name
};

}  // namespace mneme::memory
