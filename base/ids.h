// One type per kind of id, so that they cannot be mixed up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace mneme {

// Names a session for as long as it exists; the store gives them out and never twice.
struct SessionId {
  uint64_t value = 0;  // 0 names none
  auto operator<=>(const SessionId&) const = default;
};

// Number of a turn in its session: 1 for the first, 0 before it.
struct TurnNumber {
  uint64_t value = 0;
  auto operator<=>(const TurnNumber&) const = default;
};

// Index of a chunk in its session: its tokens start at position value * chunk_tokens.
struct ChunkIndex {
  uint32_t value = 0;
  auto operator<=>(const ChunkIndex&) const = default;
};

// Index of a layer in its model.
struct LayerIndex {
  uint32_t value = 0;
  auto operator<=>(const LayerIndex&) const = default;
};

}  // namespace mneme

template <>
struct std::hash<mneme::SessionId> {
  size_t operator()(mneme::SessionId id) const { return std::hash<uint64_t>()(id.value); }
};
