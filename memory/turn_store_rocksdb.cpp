#include "memory/turn_store_rocksdb.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <mutex>

#include "base/log.h"
#include "memory/log_keys.h"

namespace mneme::memory {
namespace {

constexpr size_t kChainBytes = sizeof(Digest);

rocksdb::ReadOptions ScanOptions(const rocksdb::Slice* upper_bound) {
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = upper_bound;
  options.fill_cache = false;
  options.readahead_size = 2 * kMiB;
  return options;
}

std::string TurnName(const StoredSession& session, TurnNumber turn) {
  return fmt::format("session {} turn {}", session.record.name(), turn.value);
}

// Both of a stored turn's parts, checked against each other.
Result<StoredTurn> ParseTurn(std::string_view what, std::string_view value) {
  StoredTurn stored;
  if (value.size() < kChainBytes)
    return Fail(ErrorCode::kCorruption, "{}: {} bytes", what, value.size());
  stored.chain.bytes = DigestFrom(value.substr(0, kChainBytes));
  const std::string_view record = value.substr(kChainBytes);
  if (!stored.record.ParseFromArray(record.data(), static_cast<int>(record.size())))
    return Fail(ErrorCode::kCorruption, "{}: cannot be parsed", what);
  if (stored.record.format() > kTurnFormat)
    return Fail(ErrorCode::kUnavailable, "{}: format {}, this server reads up to {}", what,
                stored.record.format(), kTurnFormat);
  const ChainHash previous{DigestFrom(stored.record.previous_chain_hash())};
  if (NextChainHash(previous, AsBytes(record)) != stored.chain)
    return Fail(ErrorCode::kCorruption, "{}: its chain hash differs", what);
  return stored;
}

}  // namespace

Result<std::unique_ptr<TurnStore>> OpenTurnStore(StoreFolder& folder,
                                                 const TurnStoreOptions& options, Clock& clock) {
  auto store = RocksdbTurnStore::Open(folder, options, clock);
  MNEME_TRY(store);
  return std::unique_ptr<TurnStore>(std::move(*store));
}

std::string_view NameOf(SessionCondition condition) {
  switch (condition) {
    case SessionCondition::kWhole:
      return "";
    case SessionCondition::kRegressed:
      return "regressed";
    case SessionCondition::kDamaged:
      return "damaged";
  }
  return "";
}

std::string_view NameOf(RegressionCause cause) {
  switch (cause) {
    case RegressionCause::kNone:
      return "none";
    case RegressionCause::kBehindWatermark:
      return "behind_watermark";
    case RegressionCause::kDifferentHistory:
      return "different_history";
    case RegressionCause::kWatermarkMissing:
      return "watermark_missing";
  }
  return "unknown";
}

RocksdbTurnStore::RocksdbTurnStore(StoreFolder& folder, const TurnStoreOptions& options,
                                   Clock& clock, OpenedDatabase opened, Watermark watermark)
    : folder_(folder),
      options_(options),
      clock_(clock),
      path_(folder.log_path()),
      db_(std::move(opened.db)),
      watermark_(std::move(watermark)) {
  report_.torn_tail_dropped = opened.torn_tail_dropped;
  report_.damage_accepted = opened.damage_accepted;
  report_.watermark_slots_damaged = watermark_.damaged_slots();
}

RocksdbTurnStore::~RocksdbTurnStore() {
  if (!open_ || failed()) return;
  if (const Status flushed = FlushWatermark(); !flushed)
    MNEME_LOG(kWarning, "log_close", "error=\"{}\"", flushed.error().message());
}

Result<std::optional<std::string>> RocksdbTurnStore::Get(const std::string& key,
                                                         std::string_view what) const {
  std::string value;
  const rocksdb::Status status = db_->Get({}, key, &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  if (!status.ok()) return Fail(ErrorFrom(status, what, path_));
  return std::optional<std::string>(std::move(value));
}

Status RocksdbTurnStore::WriteBatch(rocksdb::WriteBatch* batch, std::string_view what) {
  rocksdb::WriteOptions options;
  options.sync = options_.sync;
  options.protection_bytes_per_key = 8;
  const rocksdb::Status status = db_->Write(options, batch);
  if (!status.ok()) return Fail(ErrorFrom(status, what, path_));
  return {};
}

Status RocksdbTurnStore::FlushWatermark() {
  if (failed()) return Fail(ErrorCode::kUnavailable, "flush watermark: a flush failed before");
  const uint64_t counter = commit_counter();
  if (watermark_.flushed_counter() == counter) return {};
  watermark_at_us_ = clock_.MonotonicUs();
  Status flushed = watermark_.Flush(folder_.store_id(), counter, commit_chain_);
  // A disk that refuses this flush is not to be believed about the next one.
  if (!flushed) failed_.store(true, std::memory_order_release);
  return flushed;
}

Result<StoredSession> RocksdbTurnStore::GetSession(SessionId session) const {
  const std::shared_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end())
    return Fail(ErrorCode::kNotFound, "there is no session {}", session.value);
  return found->second;
}

Result<StoredSession> RocksdbTurnStore::FindSession(std::string_view tenant,
                                                    std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto found =
      tenant.size() <= kTenantBytesMax ? names_.find(log_keys::Name(tenant, name)) : names_.end();
  if (found == names_.end()) return Fail(ErrorCode::kNotFound, "there is no session of that name");
  return sessions_.at(found->second);
}

uint64_t RocksdbTurnStore::SessionsRefused() const {
  const std::shared_lock lock(mutex_);
  uint64_t refused = 0;
  for (const auto& [id, session] : sessions_)
    refused += session.condition == SessionCondition::kWhole ? 0 : 1;
  return refused;
}

uint64_t RocksdbTurnStore::SessionsFree() const {
  const std::shared_lock lock(mutex_);
  return options_.sessions_max - std::min<uint64_t>(options_.sessions_max, sessions_.size());
}

std::vector<StoredSession> RocksdbTurnStore::ListEmptySessions() const {
  const std::shared_lock lock(mutex_);
  std::vector<StoredSession> sessions;
  for (const auto& [id, session] : sessions_)
    if (session.condition == SessionCondition::kWhole && session.head.turn() == 0)
      sessions.push_back(session);
  return sessions;
}

std::vector<StoredSession> RocksdbTurnStore::ListSessions(std::string_view tenant) const {
  const std::shared_lock lock(mutex_);
  std::vector<StoredSession> sessions;
  for (const auto& [id, session] : sessions_)
    if (session.record.tenant() == tenant) sessions.push_back(session);
  return sessions;
}

Error RocksdbTurnStore::Met(const Error& error, SessionId session, TurnNumber turn) const {
  if (error.code() != ErrorCode::kCorruption) return error;
  const std::unique_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.condition != SessionCondition::kWhole) return error;
  found->second.condition = SessionCondition::kDamaged;
  MNEME_LOG(kWarning, "session_damaged", "session={} first_bad_turn={} head={} why=\"{}\"",
            session.value, turn.value, found->second.head.turn(), error.message());
  return error;
}

Result<StoredTurn> RocksdbTurnStore::ReadTurn(SessionId session, TurnNumber turn) const {
  const auto found = GetSession(session);
  MNEME_TRY(found);
  const std::string what = TurnName(*found, turn);
  const auto value = Get(log_keys::Turn(session, turn), what);
  if (!value) return Fail(Met(value.error(), session, turn));
  if (!*value) return Fail(ErrorCode::kNotFound, "{}: there is none", what);
  auto parsed = ParseTurn(what, **value);
  if (!parsed) return Fail(Met(parsed.error(), session, turn));
  return parsed;
}

Status RocksdbTurnStore::ReadTurns(SessionId session, TurnNumber first, TurnNumber last,
                                   const std::function<bool(const StoredTurn&)>& visit) const {
  const auto found = GetSession(session);
  MNEME_TRY(found);
  if (first.value == 0 || last.value > found->head.turn())
    return Fail(ErrorCode::kNotFound, "session {}: turns {} to {} of {}", found->record.name(),
                first.value, last.value, found->head.turn());
  const std::string end = log_keys::Turn(session, {last.value + 1});
  const rocksdb::Slice bound(end);
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(ScanOptions(&bound)));
  std::optional<ChainHash> previous;
  TurnNumber next = first;
  const auto bad = [&](std::string_view why) {
    return Fail(
        Met(Error(ErrorCode::kCorruption, fmt::format("{}: {}", TurnName(*found, next), why)),
            session, next));
  };
  for (at->Seek(log_keys::Turn(session, first)); at->Valid(); at->Next(), ++next.value) {
    if (at->key() != rocksdb::Slice(log_keys::Turn(session, next))) return bad("missing");
    auto turn = ParseTurn(TurnName(*found, next), at->value().ToStringView());
    if (!turn) return Fail(Met(turn.error(), session, next));
    if (previous && DigestFrom(turn->record.previous_chain_hash()) != previous->bytes)
      return bad("does not follow the turn before it");
    previous = turn->chain;
    if (!visit(*turn)) return {};
  }
  if (!at->status().ok())
    return Fail(Met(ErrorFrom(at->status(), TurnName(*found, next), path_), session, next));
  if (next.value != last.value + 1) return bad("missing");
  return {};
}

Result<std::optional<v1::IdempotencyRecord>> RocksdbTurnStore::FindKey(SessionId session,
                                                                       std::string_view key) const {
  const auto found = GetSession(session);
  // It may be made by the commit that asks.
  if (!found) return std::optional<v1::IdempotencyRecord>();
  const std::string what = fmt::format("idempotency record of session {}", found->record.name());
  const auto value = Get(log_keys::Idempotency(session, key), what);
  if (!value) return Fail(Met(value.error(), session, {}));
  if (!*value) return std::optional<v1::IdempotencyRecord>();
  v1::IdempotencyRecord record;
  if (!record.ParseFromString(**value)) {
    return Fail(
        Met(Error(ErrorCode::kCorruption, fmt::format("{}: cannot be parsed", what)), session, {}));
  }
  return std::optional<v1::IdempotencyRecord>(std::move(record));
}

Result<v1::ChunkNodeRecord> RocksdbTurnStore::GetNode(const NodeKey& key) const {
  const std::string what = fmt::format("chunk node {}", ShortHex(key.bytes));
  const auto value = Get(log_keys::Node(key), what);
  MNEME_TRY(value);
  if (!*value) return Fail(ErrorCode::kNotFound, "{}: there is none", what);
  v1::ChunkNodeRecord node;
  if (!node.ParseFromString(**value) || DigestFrom(node.key()) != key.bytes)
    return Fail(ErrorCode::kCorruption, "{}: cannot be parsed", what);
  return node;
}

Result<bool> RocksdbTurnStore::HasNode(const NodeKey& key) const {
  const auto value = Get(log_keys::Node(key), fmt::format("chunk node {}", ShortHex(key.bytes)));
  MNEME_TRY(value);
  return value->has_value();
}

Receipt RocksdbTurnStore::ReceiptOf(SessionId session, const StoredTurn& turn) const {
  Receipt receipt{.session = session,
                  .turn = {turn.record.number()},
                  .chain = turn.chain,
                  .store = folder_.store_id(),
                  .epoch = turn.record.epoch(),
                  .commit_counter = turn.record.commit_counter(),
                  .position = turn.record.first_position(),
                  .durability = turn.record.durability()};
  for (const auto& part : turn.record.parts())
    receipt.position += static_cast<uint64_t>(part.token_ids_size());
  return receipt;
}

Status RocksdbTurnStore::CheckReceipt(const Receipt& receipt) const {
  if (receipt.store != folder_.store_id())
    return Fail(Reason::kStoreBehindReceipt, "the receipt is another store's");
  const auto session = GetSession(receipt.session);
  if (!session || receipt.turn.value > session->head.turn())
    return Fail(Reason::kStoreBehindReceipt,
                "session {}: the receipt is for turn {}, the head is {}", receipt.session.value,
                receipt.turn.value, session ? session->head.turn() : 0);
  if (receipt.turn.value == 0) return {};
  const auto turn = ReadTurn(receipt.session, receipt.turn);
  MNEME_TRY(turn);
  if (turn->chain != receipt.chain)
    return Fail(Reason::kStoreBehindReceipt, "session {}: turn {} is not the receipt's",
                receipt.session.value, receipt.turn.value);
  return {};
}

Status RocksdbTurnStore::AcceptRegression() {
  if (failed()) return Fail(ErrorCode::kUnavailable, "accept regression: a flush failed before");
  rocksdb::WriteBatch batch;
  batch.DeleteRange(log_keys::Regression(0), log_keys::Regression(UINT64_MAX));
  MNEME_TRY(WriteBatch(&batch, "accept regression"));
  const std::unique_lock lock(mutex_);
  for (auto& [id, session] : sessions_) {
    if (session.condition != SessionCondition::kRegressed) continue;
    session.condition = SessionCondition::kWhole;
    MNEME_LOG(kWarning, "loss_accepted", "session={} turns_left={}", id.value, session.head.turn());
  }
  report_.regressions.clear();
  return {};
}

Status RocksdbTurnStore::Compact() { return CompactDatabase(*db_, path_); }

}  // namespace mneme::memory
