// Opening the log: what is there, whether every chain is whole, and whether it is all that was
// promised.
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "memory/log_damage_rocksdb.h"
#include "memory/log_keys.h"
#include "memory/turn_store_rocksdb.h"

namespace mneme::memory {
namespace {

constexpr uint32_t kStoreFormat = 1;
// Ids left out where nobody knows which sessions were lost: more than a store may hold.
constexpr uint64_t kLostSessionIds = 1'000'000;

// Calls visit(key, value) for each record of one kind; leaves with its error.
template <typename Visit>
Status ForEachOf(rocksdb::DB& db, char kind, const std::string& path, const Visit& visit) {
  const std::string first(1, kind);
  const std::string end(1, static_cast<char>(kind + 1));
  const rocksdb::Slice bound(end);
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = &bound;
  options.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> at(db.NewIterator(options));
  for (at->Seek(first); at->Valid(); at->Next())
    MNEME_TRY(visit(at->key().ToStringView(), at->value().ToStringView()));
  if (!at->status().ok())
    return Fail(ErrorFrom(at->status(), fmt::format("read records of kind {}", kind), path));
  return {};
}

// A log that cannot be opened, with what it should have held.
Error WithPromise(const Error& error, const Watermark& watermark) {
  if (error.code() != ErrorCode::kCorruption || !watermark.found()) return error;
  return {ErrorCode::kCorruption, fmt::format("{} ({} commits were acknowledged)", error.message(),
                                              watermark.found()->commit_counter())};
}

template <typename Record>
Status Parse(std::string_view value, std::string_view what, Record* record) {
  if (!record->ParseFromArray(value.data(), static_cast<int>(value.size())))
    return Fail(ErrorCode::kCorruption, "{}: cannot be parsed", what);
  return {};
}

Regression RegressionFrom(const v1::RegressionRecord& record) {
  return {.cause = static_cast<RegressionCause>(record.cause()),
          .commits_present = record.commits_present(),
          .commits_promised = record.commits_promised(),
          .sessions_known = record.sessions_known(),
          .missing = {record.missing().begin(), record.missing().end()}};
}

v1::RegressionRecord RecordFrom(const Regression& regression, uint64_t epoch) {
  v1::RegressionRecord record;
  record.set_commits_present(regression.commits_present);
  record.set_commits_promised(regression.commits_promised);
  record.set_cause(static_cast<uint32_t>(regression.cause));
  record.set_sessions_known(regression.sessions_known);
  record.set_epoch(epoch);
  for (const auto& missing : regression.missing) *record.add_missing() = missing;
  return record;
}

}  // namespace

Result<std::unique_ptr<RocksdbTurnStore>> RocksdbTurnStore::Open(StoreFolder& folder,
                                                                 const TurnStoreOptions& options,
                                                                 Clock& clock) {
  const int64_t began_us = clock.MonotonicUs();
  auto watermark = Watermark::Open(folder);
  MNEME_TRY(watermark);
  auto opened = OpenDatabase({.path = folder.log_path(),
                              .use = DatabaseOptions::Use::kLog,
                              .env = options.env,
                              .write_buffer_bytes = options.write_buffer_bytes,
                              .block_cache_bytes = options.block_cache_bytes,
                              .accept_damage = options.accept_damage});
  if (!opened) return Fail(WithPromise(opened.error(), *watermark));
  std::unique_ptr<RocksdbTurnStore> store(
      new RocksdbTurnStore(folder, options, clock, std::move(*opened), std::move(*watermark)));
  if (const Status loaded = store->Load(); !loaded) {
    const auto damage = ExplainTableDamage(folder.log_path(), loaded.error());
    return Fail(damage ? WithPromise(*damage, store->watermark_) : loaded.error());
  }
  const auto regression = store->CompareWithWatermark();
  MNEME_TRY(regression);
  MNEME_TRY(folder.RaiseEpoch(store->found_store_, store->found_epoch_));
  MNEME_TRY(store->BeginEpoch(*regression));
  store->open_ = true;
  OpenReport& report = store->report_;
  if (report.watermark_slots_damaged > 0)
    MNEME_LOG(kWarning, "watermark_damaged", "slots={}", report.watermark_slots_damaged);
  report.elapsed_us = clock.MonotonicUs() - began_us;
  MNEME_LOG(kInfo, "log_open",
            "epoch={} sessions={} turns={} commits={} damaged={} regressions={} ms={}",
            folder.epoch(), report.sessions, report.turns, store->commit_counter(),
            report.damaged.size(), report.regressions.size(), report.elapsed_us / 1000);
  return store;
}

Status RocksdbTurnStore::Load() {
  MNEME_TRY(LoadStore());
  MNEME_TRY(LoadSessions());
  CheckChains();
  return LoadRegressions();
}

Status RocksdbTurnStore::LoadStore() {
  const auto stored = Get(log_keys::Store(), "store record");
  MNEME_TRY(stored);
  if (*stored) {
    v1::StoreRecord record;
    MNEME_TRY(Parse(**stored, "store record", &record));
    if (record.format() > kStoreFormat)
      return Fail(ErrorCode::kUnavailable, "the log has format {}, this server reads up to {}",
                  record.format(), kStoreFormat);
    if (record.store_id().size() != sizeof(StoreId::bytes))
      return Fail(ErrorCode::kCorruption, "store record: an id of {} bytes",
                  record.store_id().size());
    found_store_.emplace();
    std::memcpy(found_store_->bytes.data(), record.store_id().data(), sizeof(StoreId::bytes));
    found_epoch_ = record.epoch();
    next_session_id_ = record.next_session_id();
  }
  const auto commit = Get(log_keys::LastCommit(), "commit record");
  MNEME_TRY(commit);
  if (*commit) {
    v1::CommitRecord record;
    MNEME_TRY(Parse(**commit, "commit record", &record));
    counter_.store(record.counter(), std::memory_order_release);
    commit_chain_.bytes = DigestFrom(record.chain_hash());
  }
  oldest_commit_kept_ = commit_counter() + 1;
  return ForEachOf(*db_, 'C', path_, [&](std::string_view key, std::string_view) -> Status {
    oldest_commit_kept_ = std::min(oldest_commit_kept_, log_keys::NumberFrom(key.substr(1)));
    return {};
  });
}

Status RocksdbTurnStore::LoadSessions() {
  const auto load_record = [&](std::string_view key, std::string_view value) -> Status {
    const SessionId id{log_keys::NumberFrom(key.substr(1))};
    StoredSession& session = sessions_[id];
    MNEME_TRY(Parse(value, fmt::format("session {}", id.value), &session.record));
    names_[log_keys::Name(session.record.tenant(), session.record.name())] = id;
    return {};
  };
  const auto load_head = [&](std::string_view key, std::string_view value) -> Status {
    const SessionId id{log_keys::NumberFrom(key.substr(1))};
    const auto session = sessions_.find(id);
    if (session == sessions_.end())
      return Fail(ErrorCode::kCorruption, "a head without its session {}", id.value);
    return Parse(value, fmt::format("head of session {}", id.value), &session->second.head);
  };
  MNEME_TRY(ForEachOf(*db_, 'S', path_, load_record));
  MNEME_TRY(ForEachOf(*db_, 'H', path_, load_head));
  report_.sessions = sessions_.size();
  return {};
}

void RocksdbTurnStore::CheckChains() {
  for (auto& [id, session] : sessions_) {
    const TurnKeysCheck check = CheckChain(id, session.head);
    report_.turns += check.turns;
    report_.turn_bytes += check.bytes;
    if (check.first_bad.value == 0) continue;
    session.condition = SessionCondition::kDamaged;
    report_.damaged.push_back({.session = id,
                               .first_bad = check.first_bad,
                               .head = {session.head.turn()},
                               .why = check.why});
    MNEME_LOG(kWarning, "session_damaged", "session={} first_bad_turn={} head={} why=\"{}\"",
              id.value, check.first_bad.value, session.head.turn(), check.why);
  }
}

RocksdbTurnStore::TurnKeysCheck RocksdbTurnStore::CheckChain(SessionId session,
                                                             const v1::HeadRecord& head) const {
  TurnKeysCheck check;
  const auto bad = [&](std::string why) {
    check.first_bad.value = check.turns + 1;
    check.why = std::move(why);
    return check;
  };
  const std::string end = log_keys::Turn({session.value + 1}, {0});
  const rocksdb::Slice bound(end);
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = &bound;
  options.fill_cache = false;
  options.readahead_size = 2 * kMiB;
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
  ChainHash previous;
  for (at->Seek(log_keys::Turn(session, {1})); at->Valid(); at->Next()) {
    const std::string_view value = at->value().ToStringView();
    if (at->key() != rocksdb::Slice(log_keys::Turn(session, {check.turns + 1})))
      return bad("missing");
    if (value.size() < sizeof(Digest) ||
        NextChainHash(previous, AsBytes(value.substr(sizeof(Digest)))).bytes !=
            DigestFrom(value.substr(0, sizeof(Digest))))
      return bad("does not follow the turn before it");
    previous.bytes = DigestFrom(value.substr(0, sizeof(Digest)));
    check.turns += 1;
    check.bytes += value.size();
  }
  if (!at->status().ok()) return bad(ErrorFrom(at->status(), "read turns", path_).message());
  if (check.turns < head.turn()) return bad("missing");
  if (check.turns > head.turn()) return bad("is beyond the head");
  if (previous.bytes != DigestFrom(head.chain_hash()) && check.turns > 0)
    return bad("the head has another chain hash");
  return check;
}

Status RocksdbTurnStore::LoadRegressions() {
  return ForEachOf(*db_, 'R', path_, [&](std::string_view, std::string_view value) -> Status {
    v1::RegressionRecord record;
    MNEME_TRY(Parse(value, "regression record", &record));
    RefuseRegressed(RegressionFrom(record));
    return {};
  });
}

Result<std::optional<Regression>> RocksdbTurnStore::CompareWithWatermark() const {
  const std::optional<Regression> none;
  const auto& promised = watermark_.found();
  const uint64_t present = commit_counter();
  Regression regression{.commits_present = present};
  if (!promised) {
    if (present == 0 && watermark_.damaged_slots() < 2) return none;
    regression.cause = RegressionCause::kWatermarkMissing;
    return std::optional(regression);
  }
  regression.commits_promised = promised->commit_counter();
  // Found at an earlier open that was stopped before it could renew the watermark.
  for (const Regression& known : report_.regressions)
    if (known.commits_promised == promised->commit_counter()) return none;
  if (promised->commit_counter() > present) {
    regression.cause = RegressionCause::kBehindWatermark;
    regression.sessions_known = promised->complete_since() <= present;
    for (const auto& head : promised->heads()) {
      if (head.commit_counter() <= present) continue;
      const auto found = sessions_.find(SessionId{head.session_id()});
      const uint64_t turns = found == sessions_.end() ? 0 : found->second.head.turn();
      v1::MissingTurns missing;
      missing.set_session_id(head.session_id());
      missing.set_first_turn(head.removed() ? 0 : std::min(turns + 1, head.turn()));
      missing.set_last_turn(head.removed() ? 0 : head.turn());
      regression.missing.push_back(std::move(missing));
    }
    return std::optional(regression);
  }
  ChainHash here = commit_chain_;
  if (promised->commit_counter() != present) {
    const auto stored = Get(log_keys::Commit(promised->commit_counter()), "commit hash");
    MNEME_TRY(stored);
    here.bytes = *stored ? DigestFrom(**stored) : Digest{};
  }
  if (here.bytes == DigestFrom(promised->chain_hash())) return none;
  regression.cause = RegressionCause::kDifferentHistory;
  return std::optional(regression);
}

void RocksdbTurnStore::RefuseRegressed(const Regression& regression) {
  const auto refuse = [](StoredSession& session) {
    if (session.condition == SessionCondition::kWhole)
      session.condition = SessionCondition::kRegressed;
  };
  if (regression.sessions_known) {
    for (const auto& missing : regression.missing)
      if (const auto found = sessions_.find(SessionId{missing.session_id()});
          found != sessions_.end())
        refuse(found->second);
  } else {
    // Sessions made after the loss was found miss nothing: their first commit is beyond both
    // numbers.
    const uint64_t last = std::max(regression.commits_present, regression.commits_promised);
    for (auto& [id, session] : sessions_)
      if (session.record.created_commit() <= last) refuse(session);
  }
  report_.regressions.push_back(regression);
}

Status RocksdbTurnStore::BeginEpoch(const std::optional<Regression>& regression) {
  rocksdb::WriteBatch batch;
  if (regression) {
    RefuseRegressed(*regression);
    batch.Put(log_keys::Regression(folder_.epoch()),
              RecordFrom(*regression, folder_.epoch()).SerializeAsString());
    // Numbers that were promised are never given again.
    const uint64_t counter = std::max(commit_counter(), regression->commits_promised) + 1;
    const std::string salt = fmt::format("regression at epoch {}", folder_.epoch());
    commit_chain_ = NextChainHash(commit_chain_, AsBytes(salt));
    counter_.store(counter, std::memory_order_release);
    v1::CommitRecord commit;
    commit.set_counter(counter);
    commit.set_chain_hash(std::string(TextOf(commit_chain_.bytes)));
    batch.Put(log_keys::LastCommit(), commit.SerializeAsString());
    batch.Put(log_keys::Commit(counter), TextOf(commit_chain_.bytes));
    for (const auto& missing : regression->missing)
      next_session_id_ = std::max(next_session_id_, missing.session_id() + 1);
    if (!regression->sessions_known) next_session_id_ += kLostSessionIds;
    MNEME_LOG(kError, "log_regressed",
              "cause={} commits_present={} commits_promised={} sessions={}",
              NameOf(regression->cause), regression->commits_present, regression->commits_promised,
              regression->sessions_known ? std::to_string(regression->missing.size()) : "unknown");
    for (const auto& missing : regression->missing) {
      if (missing.last_turn() == 0) {
        MNEME_LOG(kError, "deletion_missing", "session={}", missing.session_id());
      } else {
        MNEME_LOG(kError, "turns_missing", "session={} first_turn={} last_turn={}",
                  missing.session_id(), missing.first_turn(), missing.last_turn());
      }
    }
  }
  v1::StoreRecord record;
  record.set_format(kStoreFormat);
  record.set_store_id(folder_.store_id().bytes.data(), folder_.store_id().bytes.size());
  record.set_epoch(folder_.epoch());
  record.set_next_session_id(next_session_id_);
  batch.Put(log_keys::Store(), record.SerializeAsString());
  MNEME_TRY(WriteBatch(&batch, "begin epoch"));
  watermark_.Continue(commit_counter());
  watermark_at_us_ = clock_.MonotonicUs();
  return watermark_.Flush(folder_.store_id(), commit_counter(), commit_chain_);
}

}  // namespace mneme::memory
