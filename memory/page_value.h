// PageValue: what the page store holds under a key, and how it notices damage. A page group has its
// own header (kernels/page_group.h); every other kind begins with ValueHeader.
//
//   key    := node[32] kind:u8 layer:u16 key_head:u16        (big endian, so a node's values are
//                                                             neighbours, in order)
//   value  := PageGroupHeader pages | ValueHeader payload    (little endian)
//
// The header lies in the same buffer as the payload, so what was sealed in memory is written as it
// is.
//
// Threads:  any
// Errors:   kInvalidArgument  SealValue: sizes that do not agree
//           kCorruption       CheckValue: names node, kind, layer and head
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "kernels/dtype.h"
#include "kernels/page_group.h"
#include "memory/hash.h"

namespace mneme::memory {

// Numbers are stored; never renumber.
enum class ValueKind : uint8_t {
  kMark = 0,       // the store's own: which nodes there are, and which are whole
  kPageGroup = 1,  // B and A of one key head's value heads
  kIndex = 2,      // representatives, centroids and radii of all routed layers; layer and head 0
  kKeyValue = 3,   // keys and values of one attention layer; head 0
  kBoundary = 4,   // what layers need to start at the chunk's end; layer and head 0
  kTail = 5,       // reserved for the open chunk of a parked session, under TailKeyOf(session)
};

struct PageKey {
  NodeKey node;
  ValueKind kind = ValueKind::kPageGroup;
  uint16_t layer = 0;
  uint16_t key_head = 0;
  auto operator<=>(const PageKey&) const = default;
};

inline constexpr uint32_t kValueMagic = 0x4c564e4d;  // "MNVL"
inline constexpr uint16_t kValueVersion = 1;
inline constexpr size_t kValueBytesMax = 64 * kMiB;

struct ValueHeader {
  uint32_t magic = kValueMagic;
  uint16_t version = kValueVersion;
  ValueKind kind = ValueKind::kIndex;
  kernels::Dtype dtype = kernels::Dtype::kF32;
  uint16_t layer = 0;
  uint16_t key_head = 0;
  uint32_t tokens = 0;  // of the chunk, or of the open part of it
  uint32_t rows = 0;    // what they mean is the kind's own
  uint32_t columns = 0;
  uint64_t first_position = 0;
  uint64_t payload_bytes = 0;  // after this header
  uint64_t reserved = 0;       // 0
  uint64_t checksum[2] = {};   // XXH3-128 of the value with this field zero; low word first
};
static_assert(sizeof(ValueHeader) == 64);

// Fills in the checksum. The header must be there already and agree with the key and the size.
Status SealValue(const PageKey& key, MutableByteSpan value);

// Whether `value` is what was sealed under `key`, to the last bit.
Status CheckValue(const PageKey& key, ByteSpan value);

// `node 0123456789abcdef kind 1 layer 3 head 2`
std::string NameOf(const PageKey& key);

// Keys of sessions that are no chunk's: no SHA-256 begins with 24 bytes of ones.
NodeKey TailKeyOf(SessionId session);
// The session of such a key; 0 for a chunk's.
SessionId TailSessionOf(const NodeKey& key);

}  // namespace mneme::memory
