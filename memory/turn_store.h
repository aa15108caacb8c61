// TurnStore is the log: turns, heads, idempotency records, chunk nodes and session names. It is the
// truth; everything else a server keeps can be computed again from it.
//
// A commit takes the entries of many sessions and makes them durable with one flush. Each entry is
// answered on its own: one that is refused changes nothing and holds up no other.
//
// A chunk node may be added only after its values are in the page store: the page store is written
// first, then the log. A node in the log whose values are missing is replayed, never trusted.
//
// Threads:  Commit, FlushWatermark, AcceptRegression and Compact: the log thread. The rest: any.
// Order:    FlushWatermark at least once a second while there were commits, and before closing (the
//           destructor does): the watermark is how a later open notices that turns are missing.
// Errors:   see Commit; reads answer kNotFound and kCorruption, naming session and turn
// Bugs:     a turn number, position, chain hash or receipt field set by the caller is overwritten
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "memory/hash.h"
#include "memory/store_folder.h"
#include "proto/mneme/v1/store.pb.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace mneme::memory {

inline constexpr uint32_t kTurnFormat = 1;
inline constexpr size_t kTurnBytesMax = 64 * kMiB;     // of one turn record
inline constexpr size_t kCommitBytesMax = 256 * kMiB;  // of one commit, all entries
inline constexpr uint64_t kSessionTurnsMax = 1'000'000;
inline constexpr uint64_t kSessionTokensMax = 16'000'000;
inline constexpr size_t kSessionNameBytesMax = 256;
inline constexpr size_t kTenantBytesMax = 64;
inline constexpr size_t kIdentityBytesMax = 64 * kKiB;
inline constexpr size_t kIdempotencyKeyBytesMax = 64;
// Keys remembered in a session: the newest. They do not age, so no clock can lose one.
inline constexpr uint64_t kIdempotencyKeysMax = 1'024;
inline constexpr int64_t kWatermarkPeriodUs = 1'000'000;

// What an acknowledged entry left behind. `durability` is what was done, not what was asked.
struct Receipt {
  SessionId session;
  TurnNumber turn;
  ChainHash chain;
  StoreId store;
  uint64_t epoch = 0;
  uint64_t commit_counter = 0;
  uint64_t position = 0;  // tokens logged in the session, this turn's included
  v1::Durability durability = v1::DURABILITY_UNSPECIFIED;
};

// Makes a session; its id is in the receipt. name and tenant must be free together.
struct CreateSession {
  v1::SessionRecord record;
};

// Adds a turn. An expected_head that is not the head is refused (head_moved). An idempotency_key
// that is known gives the recorded receipt, with `repeated`, if request_hash is the same, else
// key_reused.
struct AppendTurn {
  SessionId session;
  v1::TurnRecord record;
};

// Adds a chunk node and makes it the session's newest. Its parent must be there. A node that is
// there already, from another session with the same prefix, is shared.
struct AddNode {
  SessionId session;
  v1::ChunkNodeRecord node;
};

// Makes an older node, or none, the session's newest, and frees what nothing refers to any more.
struct MoveToNode {
  SessionId session;
  NodeKey node;
};

// Changes what is set; the rest stays.
struct UpdateSession {
  SessionId session;
  std::optional<std::string> name = {};
  std::optional<v1::GenerationSettings> settings = {};
  std::optional<bool> pinned = {};
  std::optional<uint64_t> last_used_wall_us = {};
};

// Removes the session with its turns and keys, and every node that nothing refers to any more.
struct DeleteSession {
  SessionId session;
};

using LogEntry =
    std::variant<CreateSession, AppendTurn, AddNode, MoveToNode, UpdateSession, DeleteSession>;

struct Committed {
  Receipt receipt;
  bool repeated = false;            // nothing was done: the key had done it before
  std::vector<NodeKey> freed = {};  // nodes that are gone: delete their values from the page store
};

// What an open, or a read since, found out about a session. Only kWhole may be served.
enum class SessionCondition : uint8_t {
  kWhole,
  kRegressed,  // turns that were promised are missing
  kDamaged,    // its chain breaks: a turn is missing or cannot be read
};
// "" for kWhole, "regressed", "damaged".
std::string_view NameOf(SessionCondition condition);

struct StoredSession {
  v1::SessionRecord record;
  v1::HeadRecord head;
  SessionCondition condition = SessionCondition::kWhole;
};

struct StoredTurn {
  v1::TurnRecord record;
  ChainHash chain;
};

struct DamagedSession {
  SessionId session;
  TurnNumber first_bad;
  TurnNumber head;
  std::string why;
};

enum class RegressionCause : uint8_t {
  kNone,
  kBehindWatermark,   // fewer commits than were promised
  kDifferentHistory,  // as many, but not the same
  kWatermarkMissing,  // commits, and nothing to compare them with
};

std::string_view NameOf(RegressionCause cause);  // "watermark_missing", as in the log

// Promised turns that are not there. Kept in the log until AcceptRegression.
struct Regression {
  RegressionCause cause = RegressionCause::kNone;
  uint64_t commits_present = 0;
  uint64_t commits_promised = 0;
  bool sessions_known = false;  // false: every session of that time is refused
  std::vector<v1::MissingTurns> missing = {};
};

struct OpenReport {
  uint64_t sessions = 0;
  uint64_t turns = 0;
  uint64_t turn_bytes = 0;
  bool torn_tail_dropped = false;  // an unacknowledged batch at the end: nothing was lost
  bool damage_accepted = false;
  int watermark_slots_damaged = 0;
  std::vector<Regression> regressions;
  std::vector<DamagedSession> damaged;
  int64_t elapsed_us = 0;
};

struct TurnStoreOptions {
  uint64_t sessions_max = 10'000;
  size_t write_buffer_bytes = 16 * kMiB;
  size_t block_cache_bytes = 8 * kMiB;
  // Opens with what is before damage in the middle of the log; the rest is reported as regressed.
  bool accept_damage = false;
  // false promises no more than `os` and says so in every receipt; for tests that must lose.
  bool sync = true;
  rocksdb::Env* env = nullptr;  // nullptr: the machine's; tests bring faults
};

class TurnStore {
 public:
  virtual ~TurnStore() = default;

  // One answer per entry, in order. Later entries see earlier ones, refused ones excepted.
  //   kInvalidArgument        a field is out of its limits (too_large: longer than a turn may be)
  //   kNotFound               no such session or parent node
  //   kConflict               head_moved; or the name is taken
  //   kInvalidArgument        key_reused, context_limit
  //   kCorruption             the session is regressed or damaged, or a needed node cannot be read
  //   kResourceExhausted      sessions_max, or the turn limit; store_full: nothing was written, and
  //                           it goes on by itself when there is room
  //   outcome_unknown         the flush failed: it may or may not be there after a reopen
  //   kUnavailable            a flush failed earlier: not tried; open the store again
  virtual std::vector<Result<Committed>> Commit(std::span<const LogEntry> entries) = 0;

  // Promises everything committed so far to the next open. Cheap when nothing changed.
  virtual Status FlushWatermark() = 0;

  virtual Result<StoredSession> GetSession(SessionId session) const = 0;
  virtual Result<StoredSession> FindSession(std::string_view tenant,
                                            std::string_view name) const = 0;
  // How many are not kWhole.
  virtual uint64_t SessionsRefused() const = 0;
  // How many may be made until sessions_max is reached.
  virtual uint64_t SessionsFree() const = 0;
  // Those that are kWhole and hold no turn: as good as not there. In order of their ids.
  virtual std::vector<StoredSession> ListEmptySessions() const = 0;
  // In order of their ids.
  virtual std::vector<StoredSession> ListSessions(std::string_view tenant) const = 0;

  // A read of a session's turns or keys that answers kCorruption makes the session kDamaged.
  //
  // kCorruption where the stored bytes do not have the chain hash stored with them.
  virtual Result<StoredTurn> ReadTurn(SessionId session, TurnNumber turn) const = 0;

  // Turns first..last in order, until `visit` says false. Checks the chain between them as well.
  virtual Status ReadTurns(SessionId session, TurnNumber first, TurnNumber last,
                           const std::function<bool(const StoredTurn&)>& visit) const = 0;

  virtual Result<std::optional<v1::IdempotencyRecord>> FindKey(SessionId session,
                                                               std::string_view key) const = 0;

  virtual Result<v1::ChunkNodeRecord> GetNode(const NodeKey& key) const = 0;
  virtual Result<bool> HasNode(const NodeKey& key) const = 0;

  // store_behind_receipt where a client holds a receipt that this store does not know.
  virtual Status CheckReceipt(const Receipt& receipt) const = 0;

  // An operator's yes: the sessions refused as regressed are served from what is there.
  virtual Status AcceptRegression() = 0;

  // Drops the bytes of what was deleted.
  virtual Status Compact() = 0;

  virtual const OpenReport& report() const = 0;  // changes only with AcceptRegression
  virtual uint64_t commit_counter() const = 0;
  virtual bool failed() const = 0;  // a flush failed: acknowledges nothing any more
};

// Opens DIR/log, checks every session's chain and compares with the watermark. The folder must
// outlive the store.
//   kCorruption   damage in the middle of the log, or records that cannot be read at all
//   kUnavailable  a format above ours, or the file system refused; nothing was changed
Result<std::unique_ptr<TurnStore>> OpenTurnStore(StoreFolder& folder,
                                                 const TurnStoreOptions& options = {},
                                                 Clock& clock = RealClock());

}  // namespace mneme::memory
