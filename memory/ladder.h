// Ladder: the chunk ends of a history that a session can start from, its rungs. A rung has what a
// start needs beside the pages that any query may choose: the chunk's boundary record and, of
// layers that read recent chunks only, the pages of those chunks. The newest chunks are rungs, and
// older ones the further apart the older they are:
//
//   age in chunks   0 1   2 .. 64   .. 128   .. 256   .. 512
//   a rung every     1       16       32       64      128
//
// So a start `age` chunks back computes at most max(16, 2/3 age) chunks again, and a history of any
// length has a few dozen rungs. A rung that goes never has to come back.
//
// Threads:  any
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "memory/memory_layout.h"
#include "memory/page_store.h"

namespace mneme::memory {

inline constexpr uint32_t kNewestRungs = 2;  // chunks; one that is damaged costs one more to replay
inline constexpr uint32_t kRungSpacing = 16;  // chunks, up to four times this age

// Whether chunk `chunk` of the first `chunks` is a rung.
bool IsRung(uint32_t chunk, uint32_t chunks);

// All of them, newest first.
std::vector<uint32_t> RungsOf(uint32_t chunks);

// Those of `chunks` - 1 that are none of `chunks`.
std::vector<uint32_t> RungsDroppedAt(uint32_t chunks);

// Whether a layout keeps more in rungs than in other chunks, so that thinning them pays. Where it
// does not, every chunk stays a rung.
bool HasLadder(const MemoryLayout& layout);

// A session's chunks, oldest first.
struct Chain {
  uint32_t chunks = 0;
  std::function<NodeKey(uint32_t)> key;
  // Whether somebody else may start at the chunk's end.
  std::function<bool(uint32_t)> shared;
};

// What the page store need not hold any more when these chunks are no rungs. Shared ones stay.
std::vector<ThinnedNode> ThinnedBy(const MemoryLayout& layout, const Chain& chain,
                                   std::span<const uint32_t> rungs);

// Bytes in the page store of a history of so many chunks that nobody shares.
uint64_t HistoryBytes(const MemoryLayout& layout, uint64_t chunks);
// Of one chunk: what it holds only as a rung.
uint64_t RungBytes(const MemoryLayout& layout);

}  // namespace mneme::memory
