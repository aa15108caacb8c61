#include "memory/turn_commit_rocksdb.h"

#include <algorithm>
#include <mutex>

#include "base/log.h"
#include "memory/log_keys.h"
#include "memory/page_value.h"

namespace mneme::memory {
namespace {

constexpr uint32_t kSessionFormat = 1;
constexpr uint32_t kHeadFormat = 1;
constexpr uint32_t kNodeFormat = 1;
constexpr size_t kSessionRecordBytesMax = 256 * kKiB;
constexpr size_t kNodeRecordBytesMax = 64 * kKiB;
// Old commit hashes removed with each commit: more than one, so that they do not pile up.
constexpr int kCommitsForgottenAtOnce = 4;

uint64_t TokensOf(const v1::TurnRecord& turn) {
  uint64_t tokens = 0;
  for (const auto& part : turn.parts()) tokens += static_cast<uint64_t>(part.token_ids_size());
  return tokens;
}

Status CheckName(std::string_view tenant, std::string_view name) {
  if (tenant.size() > kTenantBytesMax)
    return Fail(ErrorCode::kInvalidArgument, "a tenant of {} bytes, at most {}", tenant.size(),
                kTenantBytesMax);
  if (name.empty() || name.size() > kSessionNameBytesMax)
    return Fail(ErrorCode::kInvalidArgument, "a session name of {} bytes, expected 1 to {}",
                name.size(), kSessionNameBytesMax);
  return {};
}

}  // namespace

std::vector<Result<Committed>> RocksdbTurnStore::Commit(std::span<const LogEntry> entries) {
  std::vector<Result<Committed>> results;
  results.reserve(entries.size());
  if (failed()) {
    for (size_t i = 0; i < entries.size(); ++i)
      results.emplace_back(Fail(ErrorCode::kUnavailable,
                                "not tried: a flush of the log failed before; open it again"));
    return results;
  }
  CommitStage stage(*this);
  for (const LogEntry& entry : entries) results.push_back(stage.Stage(entry));
  if (stage.empty()) return results;
  if (const Status written = stage.Write(); !written) {
    const bool full = written.error().reason() == Reason::kStoreFull;
    if (!full) {
      failed_.store(true, std::memory_order_release);
      MNEME_LOG(kError, "log_write", "error=\"{}\"", written.error().message());
    }
    const Error error = full ? written.error()
                             : Error(Reason::kOutcomeUnknown,
                                     written.error().message() + "; ask again after a reopen");
    for (Result<Committed>& result : results)
      if (result && result->receipt.commit_counter >= stage.counter())
        result = Result<Committed>(Fail(error));
    return results;
  }
  stage.Publish();
  if (clock_.MonotonicUs() - watermark_at_us_ >= kWatermarkPeriodUs)
    if (const Status flushed = FlushWatermark(); !flushed)
      MNEME_LOG(kError, "watermark_write", "error=\"{}\"", flushed.error().message());
  return results;
}

CommitStage::CommitStage(RocksdbTurnStore& store)
    : store_(store),
      counter_(store.commit_counter() + 1),
      next_session_id_(store.next_session_id_),
      session_count_(static_cast<int64_t>(store.sessions_.size())),
      oldest_commit_kept_(store.oldest_commit_kept_) {}

Result<Committed> CommitStage::Stage(const LogEntry& entry) {
  if (batch_.GetDataSize() > kCommitBytesMax)
    return Fail(ErrorCode::kResourceExhausted, "the commit has {} bytes; put it into the next one",
                batch_.GetDataSize());
  Result<Committed> result = std::visit([this](const auto& what) { return Add(what); }, entry);
  if (result && !result->repeated) staged_ += 1;
  return result;
}

Status CommitStage::Write() {
  AddRecordsToBatch();
  return store_.WriteBatch(&batch_, "commit");
}

void CommitStage::Publish() {
  store_.commit_chain_ = chain_;
  store_.oldest_commit_kept_ = oldest_commit_kept_;
  store_.next_session_id_ = next_session_id_;
  for (const auto& [id, session] : sessions_) {
    const TurnNumber turn{session ? session->head.turn() : 0};
    store_.watermark_.Note({.session = id, .turn = turn, .removed = !session}, counter_);
  }
  const std::unique_lock lock(store_.mutex_);
  for (auto& [id, session] : sessions_) {
    if (session) {
      StoredSession& there = store_.sessions_[id];
      // A read may have met damage since this was staged.
      session->condition = std::max(session->condition, there.condition);
      there = std::move(*session);
    } else {
      store_.sessions_.erase(id);
    }
  }
  for (const auto& [name, id] : names_) {
    if (id) {
      store_.names_[name] = *id;
    } else {
      store_.names_.erase(name);
    }
  }
  store_.counter_.store(counter_, std::memory_order_release);
}

void CommitStage::AddRecordsToBatch() {
  for (const auto& [id, session] : sessions_) {
    if (!session) continue;
    batch_.Put(log_keys::Head(id), session->head.SerializeAsString());
    if (records_changed_.contains(id))
      batch_.Put(log_keys::Session(id), session->record.SerializeAsString());
  }
  for (const auto& [key, node] : nodes_) {
    if (node) {
      batch_.Put(log_keys::Node(key), node->SerializeAsString());
    } else {
      batch_.Delete(log_keys::Node(key));
    }
  }
  if (next_session_id_ != store_.next_session_id_) {
    v1::StoreRecord record;
    record.set_format(1);
    record.set_store_id(store_.folder_.store_id().bytes.data(), sizeof(StoreId::bytes));
    record.set_epoch(store_.folder_.epoch());
    record.set_next_session_id(next_session_id_);
    batch_.Put(log_keys::Store(), record.SerializeAsString());
  }
  chain_ = NextChainHash(store_.commit_chain_, AsBytes(batch_.Data()));
  v1::CommitRecord commit;
  commit.set_counter(counter_);
  commit.set_chain_hash(std::string(TextOf(chain_.bytes)));
  batch_.Put(log_keys::LastCommit(), commit.SerializeAsString());
  batch_.Put(log_keys::Commit(counter_), TextOf(chain_.bytes));
  for (int i = 0; i < kCommitsForgottenAtOnce; ++i)
    if (oldest_commit_kept_ < store_.watermark_.older_counter())
      batch_.Delete(log_keys::Commit(oldest_commit_kept_++));
}

Result<StoredSession> CommitStage::Find(SessionId id) const {
  if (const auto staged = sessions_.find(id); staged != sessions_.end()) {
    if (staged->second) return *staged->second;
    return Fail(ErrorCode::kNotFound, "there is no session {}", id.value);
  }
  return store_.GetSession(id);
}

Result<StoredSession> CommitStage::FindServable(SessionId id) const {
  auto session = Find(id);
  MNEME_TRY(session);
  switch (session->condition) {
    case SessionCondition::kWhole:
      return session;
    case SessionCondition::kRegressed:
      return Fail(ErrorCode::kCorruption,
                  "session {}: turns that were acknowledged may be missing; nothing is added until "
                  "the loss is accepted",
                  session->record.name());
    case SessionCondition::kDamaged:
      break;
  }
  return Fail(ErrorCode::kCorruption, "session {}: its chain of turns is damaged",
              session->record.name());
}

std::optional<SessionId> CommitStage::FindName(const std::string& name_key) const {
  if (const auto staged = names_.find(name_key); staged != names_.end()) return staged->second;
  const auto found = store_.names_.find(name_key);
  return found == store_.names_.end() ? std::nullopt : std::optional(found->second);
}

Status CommitStage::CheckRoom(DiskRoom worst) const {
  if (store_.folder_.room() <= worst) return {};
  return Fail(Error(Reason::kStoreFull, store_.folder_.RoomText()).RetryAfter(5'000));
}

Receipt CommitStage::HeadReceipt(SessionId id, const v1::HeadRecord& head) const {
  return {.session = id,
          .turn = {head.turn()},
          .chain = {DigestFrom(head.chain_hash())},
          .store = store_.folder_.store_id(),
          .epoch = store_.folder_.epoch(),
          .commit_counter = counter_,
          .position = head.position(),
          .durability = store_.durability()};
}

void CommitStage::Put(const StoredSession& session, bool record_too) {
  const SessionId id{session.record.id()};
  sessions_[id] = session;
  sessions_[id]->head.set_commit_counter(counter_);
  if (record_too) records_changed_.insert(id);
}

Result<Committed> CommitStage::Add(const CreateSession& entry) {
  MNEME_TRY(CheckName(entry.record.tenant(), entry.record.name()));
  if (entry.record.identity().size() > kIdentityBytesMax ||
      entry.record.ByteSizeLong() > kSessionRecordBytesMax)
    return Fail(Reason::kTooLarge, "a session record of {} bytes, at most {}, identity {}",
                entry.record.ByteSizeLong(), kSessionRecordBytesMax, kIdentityBytesMax);
  if (entry.record.has_parent())
    return Fail(Reason::kNotBuilt, "sessions cannot be made from others yet");
  if (session_count_ >= static_cast<int64_t>(store_.options_.sessions_max))
    return Fail(ErrorCode::kResourceExhausted, "there are {} sessions, as many as allowed",
                session_count_);
  MNEME_TRY(CheckRoom(DiskRoom::kEnough));
  const std::string name = log_keys::Name(entry.record.tenant(), entry.record.name());
  if (FindName(name)) return Fail(ErrorCode::kConflict, "a session of that name is there already");
  const SessionId id{next_session_id_++};
  StoredSession session{.record = entry.record, .head = {}};
  session.record.set_format(kSessionFormat);
  session.record.set_id(id.value);
  session.record.set_created_commit(counter_);
  session.head.set_format(kHeadFormat);
  session.head.set_chain_hash(std::string(sizeof(Digest), '\0'));
  session.head.set_last_used_wall_us(entry.record.created_wall_us());
  std::string id_bytes;
  log_keys::AppendNumber(&id_bytes, id.value);
  batch_.Put(name, id_bytes);
  names_[name] = id;
  session_count_ += 1;
  Put(session, /*record_too=*/true);
  return Committed{.receipt = HeadReceipt(id, session.head)};
}

Result<std::optional<Committed>> CommitStage::FindRepeated(SessionId id,
                                                           const v1::TurnRecord& turn) const {
  const std::string key = log_keys::Idempotency(id, turn.idempotency_key());
  std::optional<Committed> done;
  std::string request_hash;
  if (const auto staged = keys_.find(key); staged != keys_.end()) {
    request_hash = staged->second.first;
    done = staged->second.second;
  } else {
    const auto record = store_.FindKey(id, turn.idempotency_key());
    MNEME_TRY(record);
    if (!*record) return std::optional<Committed>();
    request_hash = (*record)->request_hash();
    const auto stored = store_.ReadTurn(id, {(*record)->turn()});
    MNEME_TRY(stored);
    done = Committed{.receipt = store_.ReceiptOf(id, *stored)};
  }
  if (request_hash != turn.request_hash())
    return Fail(Reason::kKeyReused, "session {}: the key was used for another request, turn {}",
                id.value, done->receipt.turn.value);
  done->repeated = true;
  return done;
}

Status CommitStage::CheckTurn(const StoredSession& session, const v1::TurnRecord& turn) const {
  const uint64_t id = session.record.id();
  if (turn.kind() != v1::TURN_KIND_APPEND && turn.kind() != v1::TURN_KIND_GENERATE)
    return Fail(ErrorCode::kInvalidArgument, "session {}: a turn of kind {}", id,
                static_cast<int>(turn.kind()));
  if (turn.has_expected_head() && turn.expected_head() != session.head.turn())
    return Fail(Reason::kHeadMoved, "session {}: expected head {}, the head is {}", id,
                turn.expected_head(), session.head.turn());
  if (turn.ByteSizeLong() > kTurnBytesMax)
    return Fail(Reason::kTooLarge, "session {}: a turn of {} bytes, at most {}", id,
                turn.ByteSizeLong(), kTurnBytesMax);
  if (session.head.turn() >= kSessionTurnsMax)
    return Fail(ErrorCode::kResourceExhausted, "session {}: it has {} turns, as many as allowed",
                id, session.head.turn());
  if (session.head.position() + TokensOf(turn) > kSessionTokensMax)
    return Fail(Reason::kContextLimit, "session {}: {} tokens and {} more, at most {}", id,
                session.head.position(), TokensOf(turn), kSessionTokensMax);
  return {};
}

Result<Committed> CommitStage::Add(const AppendTurn& entry) {
  auto session = FindServable(entry.session);
  MNEME_TRY(session);
  const bool keyed = !entry.record.idempotency_key().empty();
  if (keyed) {
    if (entry.record.idempotency_key().size() > kIdempotencyKeyBytesMax ||
        entry.record.request_hash().size() != sizeof(Digest))
      return Fail(ErrorCode::kInvalidArgument,
                  "an idempotency key of {} bytes, at most {}, with a request hash of {}, not 32",
                  entry.record.idempotency_key().size(), kIdempotencyKeyBytesMax,
                  entry.record.request_hash().size());
    auto repeated = FindRepeated(entry.session, entry.record);
    MNEME_TRY(repeated);
    if (*repeated) return **repeated;
  }
  MNEME_TRY(CheckRoom(DiskRoom::kBelowSoft));
  MNEME_TRY(CheckTurn(*session, entry.record));

  v1::HeadRecord& head = session->head;
  v1::TurnRecord turn = entry.record;
  turn.set_format(kTurnFormat);
  turn.set_session_id(entry.session.value);
  turn.set_number(head.turn() + 1);
  turn.set_first_position(head.position());
  turn.set_previous_chain_hash(head.chain_hash());
  turn.set_store_id(store_.folder_.store_id().bytes.data(), sizeof(StoreId::bytes));
  turn.set_epoch(store_.folder_.epoch());
  turn.set_commit_counter(counter_);
  turn.set_durability(store_.durability());
  const std::string record = turn.SerializeAsString();
  const ChainHash chain = NextChainHash({DigestFrom(head.chain_hash())}, AsBytes(record));
  const rocksdb::Slice parts[] = {{TextOf(chain.bytes).data(), sizeof(Digest)}, record};
  const std::string key = log_keys::Turn(entry.session, {turn.number()});
  const rocksdb::Slice key_slice(key);
  batch_.Put(rocksdb::SliceParts(&key_slice, 1), rocksdb::SliceParts(parts, 2));

  head.set_turn(turn.number());
  head.set_position(head.position() + TokensOf(turn));
  head.set_chain_hash(std::string(TextOf(chain.bytes)));
  head.set_last_used_wall_us(std::max(head.last_used_wall_us(), turn.wall_us()));
  const Committed committed{.receipt = HeadReceipt(entry.session, head)};
  if (keyed) {
    RememberKey(*session, turn, committed);
    head.set_keyed_turns(head.keyed_turns() + 1);
  }
  Put(*session, /*record_too=*/false);
  return committed;
}

void CommitStage::RememberKey(const StoredSession& session, const v1::TurnRecord& turn,
                              const Committed& committed) {
  const SessionId id{session.record.id()};
  const std::string key = log_keys::Idempotency(id, turn.idempotency_key());
  v1::IdempotencyRecord record;
  record.set_turn(turn.number());
  record.set_request_hash(turn.request_hash());
  record.set_wall_us(turn.wall_us());
  batch_.Put(key, record.SerializeAsString());
  keys_[key] = {turn.request_hash(), committed};
  const uint64_t order = session.head.keyed_turns();
  batch_.Put(log_keys::KeyOrder(id, order), turn.idempotency_key());
  if (order < kIdempotencyKeysMax) return;
  const std::string oldest = log_keys::KeyOrder(id, order - kIdempotencyKeysMax);
  // Gone where it is of this same commit; then it stays one commit longer than promised.
  const auto forgotten = store_.Get(oldest, "oldest idempotency key");
  if (!forgotten || !*forgotten) return;
  batch_.Delete(log_keys::Idempotency(id, **forgotten));
  batch_.Delete(oldest);
}

Result<v1::ChunkNodeRecord> CommitStage::GetNode(const Nodes& edit, const NodeKey& key) const {
  for (const Nodes* nodes : {&edit, &nodes_}) {
    const auto found = nodes->find(key);
    if (found == nodes->end()) continue;
    if (found->second) return *found->second;
    return Fail(ErrorCode::kNotFound, "chunk node {}: there is none", ShortHex(key.bytes));
  }
  return store_.GetNode(key);
}

Status CommitStage::Release(Nodes* edit, NodeKey key, std::vector<NodeKey>* freed) const {
  while (!key.empty()) {
    auto node = GetNode(*edit, key);
    MNEME_TRY(node);
    node->set_references(node->references() - std::min<uint64_t>(1, node->references()));
    if (node->references() > 0) {
      (*edit)[key] = std::move(*node);
      return {};
    }
    (*edit)[key] = std::nullopt;
    freed->push_back(key);
    key.bytes = DigestFrom(node->parent());
  }
  return {};
}

Status CommitStage::MoveNewest(Nodes* edit, v1::HeadRecord* head, const NodeKey& to,
                               std::vector<NodeKey>* freed) const {
  if (!to.empty()) {
    auto node = GetNode(*edit, to);
    MNEME_TRY(node);
    node->set_references(node->references() + 1);
    (*edit)[to] = std::move(*node);
  }
  MNEME_TRY(Release(edit, {DigestFrom(head->newest_node())}, freed));
  head->set_newest_node(to.empty() ? std::string() : std::string(TextOf(to.bytes)));
  return {};
}

Result<Committed> CommitStage::Add(const AddNode& entry) {
  auto session = FindServable(entry.session);
  MNEME_TRY(session);
  const v1::ChunkNodeRecord& node = entry.node;
  if (node.key().size() != sizeof(Digest) || node.tokens() == 0 ||
      (!node.parent().empty() && node.parent().size() != sizeof(Digest)) ||
      node.ByteSizeLong() > kNodeRecordBytesMax)
    return Fail(ErrorCode::kInvalidArgument,
                "a chunk node with a key of {} bytes, a parent of {}, {} tokens, {} bytes in all",
                node.key().size(), node.parent().size(), node.tokens(), node.ByteSizeLong());
  if (node.first_position() + node.tokens() > session->head.position())
    return Fail(ErrorCode::kInvalidArgument,
                "a chunk node up to position {} of session {}, whose log ends at {}",
                node.first_position() + node.tokens(), entry.session.value,
                session->head.position());
  MNEME_TRY(CheckRoom(DiskRoom::kBelowSoft));
  const NodeKey key{DigestFrom(node.key())};
  Nodes edit;
  const auto there = GetNode(edit, key);
  if (!there) {
    if (there.error().code() != ErrorCode::kNotFound) return Fail(there.error());
    if (!node.parent().empty()) {
      const NodeKey parent_key{DigestFrom(node.parent())};
      auto parent = GetNode(edit, parent_key);
      MNEME_TRY(parent);
      parent->set_references(parent->references() + 1);
      edit[parent_key] = std::move(*parent);
    }
    v1::ChunkNodeRecord stored = node;
    stored.set_format(kNodeFormat);
    stored.set_references(0);
    stored.set_commit_counter(counter_);
    edit[key] = std::move(stored);
  }
  Committed committed;
  MNEME_TRY(MoveNewest(&edit, &session->head, key, &committed.freed));
  for (auto& [edited, record] : edit) nodes_[edited] = std::move(record);
  Put(*session, /*record_too=*/false);
  committed.receipt = HeadReceipt(entry.session, session->head);
  return committed;
}

Result<Committed> CommitStage::Add(const MoveToNode& entry) {
  auto session = FindServable(entry.session);
  MNEME_TRY(session);
  Nodes edit;
  Committed committed;
  MNEME_TRY(MoveNewest(&edit, &session->head, entry.node, &committed.freed));
  for (auto& [edited, record] : edit) nodes_[edited] = std::move(record);
  Put(*session, /*record_too=*/false);
  committed.receipt = HeadReceipt(entry.session, session->head);
  return committed;
}

Result<Committed> CommitStage::Add(const UpdateSession& entry) {
  auto session = FindServable(entry.session);
  MNEME_TRY(session);
  v1::SessionRecord& record = session->record;
  if (entry.name && *entry.name != record.name()) {
    MNEME_TRY(CheckName(record.tenant(), *entry.name));
    const std::string name = log_keys::Name(record.tenant(), *entry.name);
    if (FindName(name))
      return Fail(ErrorCode::kConflict, "a session of that name is there already");
    const std::string old_name = log_keys::Name(record.tenant(), record.name());
    std::string id_bytes;
    log_keys::AppendNumber(&id_bytes, entry.session.value);
    batch_.Delete(old_name);
    batch_.Put(name, id_bytes);
    names_[old_name] = std::nullopt;
    names_[name] = entry.session;
    record.set_name(*entry.name);
  }
  if (entry.settings) *record.mutable_settings() = *entry.settings;
  if (entry.pinned) record.set_pinned(*entry.pinned);
  if (entry.last_used_wall_us) session->head.set_last_used_wall_us(*entry.last_used_wall_us);
  Put(*session, /*record_too=*/entry.name || entry.settings || entry.pinned);
  return Committed{.receipt = HeadReceipt(entry.session, session->head)};
}

Result<Committed> CommitStage::Add(const DeleteSession& entry) {
  const auto session = Find(entry.session);
  MNEME_TRY(session);
  const SessionId id = entry.session;
  Committed committed{.receipt = HeadReceipt(id, session->head)};
  Nodes edit;
  if (const Status released =
          Release(&edit, {DigestFrom(session->head.newest_node())}, &committed.freed);
      !released)  // damage below a session must not keep it alive; what is left is orphaned
    MNEME_LOG(kWarning, "delete_session", "session={} error=\"{}\"", id.value,
              released.error().message());
  for (auto& [edited, record] : edit) nodes_[edited] = std::move(record);
  const std::string name = log_keys::Name(session->record.tenant(), session->record.name());
  for (const char kind : {'T', 'I', 'O'})
    batch_.DeleteRange(log_keys::Numbered(kind, id.value), log_keys::Numbered(kind, id.value + 1));
  for (const std::string& key : {log_keys::Session(id), log_keys::Head(id), name})
    batch_.Delete(key);
  names_[name] = std::nullopt;
  std::erase_if(
      keys_, [&](const auto& key) { return key.first.starts_with(log_keys::Idempotency(id, "")); });
  sessions_[id] = std::nullopt;
  session_count_ -= 1;
  committed.freed.push_back(TailKeyOf(id));
  return committed;
}

}  // namespace mneme::memory
