// Hashes that stored formats are made of: SHA-256 for what names or chains content, XXH3-128 for
// what only has to notice damage, CRC32C for reading RocksDB's own files.
//
// Threads:  any
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace mneme::memory {

using Digest = std::array<std::byte, 32>;

// The hash that chains a turn to all turns before it.
struct ChainHash {
  Digest bytes = {};  // zeros before the first turn
  auto operator<=>(const ChainHash&) const = default;
};

// Names a chunk node; the first 32 bytes of its values' keys in the page store.
struct NodeKey {
  Digest bytes = {};  // zeros name none
  auto operator<=>(const NodeKey&) const = default;
  bool empty() const { return *this == NodeKey{}; }
};

Digest Sha256(ByteSpan bytes);

// SHA-256 of (previous, record): the chain hash of a turn with these record bytes, as stored.
ChainHash NextChainHash(const ChainHash& previous, ByteSpan record);

// SHA-256 over identity, tenant, parent and token ids, each with its length before it, so that no
// two different lists give the same bytes.
NodeKey NodeKeyOf(ByteSpan identity, std::string_view tenant, const NodeKey& parent,
                  std::span<const int32_t> token_ids);

struct Checksum128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Checksum128&) const = default;
};

Checksum128 Xxh3(ByteSpan bytes);

// The same of `bytes` with the 16 bytes from `offset` read as zeros: where the checksum itself
// lies.
Checksum128 Xxh3Without(ByteSpan bytes, size_t offset);

uint32_t Crc32c(ByteSpan bytes);

// First 16 hexadecimal digits, for people.
std::string ShortHex(const Digest& digest);

// A digest from the bytes of a Protobuf field; zeros where the field has not exactly 32 bytes.
Digest DigestFrom(std::string_view bytes);

inline std::string_view TextOf(const Digest& digest) {
  return AsText(ByteSpan(digest.data(), digest.size()));
}

}  // namespace mneme::memory

template <>
struct std::hash<mneme::memory::NodeKey> {
  size_t operator()(const mneme::memory::NodeKey& key) const {
    size_t first = 0;
    std::memcpy(&first, key.bytes.data(), sizeof(first));  // already a hash
    return first;
  }
};
