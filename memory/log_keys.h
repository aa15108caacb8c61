// LogKeys: the keys of the log's records. Numbers are big endian, so that order is their order.
//
//   key := 'M' "store"                                StoreRecord
//        | 'M' "commit"                               CommitRecord, the last
//        | 'C' counter:u64                            chain hash[32] of that commit; the latest few
//        | 'R' epoch:u64                              RegressionRecord nobody accepted yet
//        | 'S' session:u64                            SessionRecord
//        | 'H' session:u64                            HeadRecord
//        | 'N' tenant_bytes:u8 tenant name            session:u64
//        | 'T' session:u64 turn:u64                   chain hash[32] TurnRecord
//        | 'I' session:u64 idempotency key            IdempotencyRecord
//        | 'O' session:u64 order:u64                  idempotency key, in order of use
//        | 'K' node[32]                               ChunkNodeRecord
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "memory/hash.h"

namespace mneme::memory::log_keys {

inline void AppendNumber(std::string* key, uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) key->push_back(static_cast<char>(number >> shift));
}

inline uint64_t NumberFrom(std::string_view bytes) {
  uint64_t number = 0;
  for (const char c : bytes.substr(0, 8)) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

inline std::string Numbered(char kind, uint64_t number) {
  std::string key(1, kind);
  AppendNumber(&key, number);
  return key;
}

inline std::string Numbered(char kind, uint64_t first, uint64_t second) {
  std::string key = Numbered(kind, first);
  AppendNumber(&key, second);
  return key;
}

inline std::string Store() { return "Mstore"; }
inline std::string LastCommit() { return "Mcommit"; }
inline std::string Commit(uint64_t counter) { return Numbered('C', counter); }
inline std::string Regression(uint64_t epoch) { return Numbered('R', epoch); }
inline std::string Session(SessionId id) { return Numbered('S', id.value); }
inline std::string Head(SessionId id) { return Numbered('H', id.value); }
inline std::string Turn(SessionId id, TurnNumber turn) {
  return Numbered('T', id.value, turn.value);
}
inline std::string KeyOrder(SessionId id, uint64_t order) { return Numbered('O', id.value, order); }

inline std::string Idempotency(SessionId id, std::string_view key) {
  return Numbered('I', id.value).append(key);
}

inline std::string Name(std::string_view tenant, std::string_view name) {
  std::string key = "N";
  key.push_back(static_cast<char>(tenant.size()));
  return key.append(tenant).append(name);
}

inline std::string Node(const NodeKey& node) { return std::string("K").append(TextOf(node.bytes)); }

}  // namespace mneme::memory::log_keys
