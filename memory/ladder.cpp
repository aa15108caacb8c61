#include "memory/ladder.h"

#include <algorithm>

#include "memory/chunk_value.h"

namespace mneme::memory {
namespace {

// Chunks from one rung to the next at this age; each is a multiple of those before it.
uint64_t SpacingAt(uint64_t age) {
  if (age < kNewestRungs) return 1;
  uint64_t spacing = kRungSpacing;
  while (age > 4 * spacing) spacing *= 2;
  return spacing;
}

// Chunks whose pages of a layer that reads `recent` chunks are kept, rungs newest first.
uint64_t ChunksKeptFor(std::span<const uint32_t> rungs, uint64_t recent) {
  uint64_t kept = 0;
  for (size_t at = 0; at < rungs.size(); ++at) {
    const uint64_t to_next = at + 1 < rungs.size() ? rungs[at] - rungs[at + 1] : rungs[at] + 1;
    kept += std::min<uint64_t>(to_next, recent);
  }
  return kept;
}

uint64_t RecentOf(const MemoryLayout& layout, int paged_layer) {
  return static_cast<uint64_t>(layout.recent_chunks[static_cast<size_t>(paged_layer)]);
}

}  // namespace

bool IsRung(uint32_t chunk, uint32_t chunks) {
  return (uint64_t{chunk} + 1) % SpacingAt(chunks - 1 - chunk) == 0;
}

std::vector<uint32_t> RungsOf(uint32_t chunks) {
  std::vector<uint32_t> rungs;
  for (uint64_t end = chunks; end > 0;) {
    const auto chunk = static_cast<uint32_t>(end - 1);
    if (IsRung(chunk, chunks)) rungs.push_back(chunk);
    const uint64_t spacing = SpacingAt(chunks - end + 1);
    end = chunk / spacing * spacing;
  }
  return rungs;
}

std::vector<uint32_t> RungsDroppedAt(uint32_t chunks) {
  std::vector<uint32_t> dropped;
  const auto look_at = [&](uint64_t age) {
    if (age >= chunks) return;
    const auto chunk = static_cast<uint32_t>(chunks - 1 - age);
    if (IsRung(chunk, chunks - 1) && !IsRung(chunk, chunks)) dropped.push_back(chunk);
  };
  look_at(kNewestRungs);
  for (uint64_t spacing = kRungSpacing; 4 * spacing < chunks; spacing *= 2)
    look_at(4 * spacing + 1);
  return dropped;
}

bool HasLadder(const MemoryLayout& layout) {
  return layout.folds() || !layout.closed_layers.empty();
}

std::vector<ThinnedNode> ThinnedBy(const MemoryLayout& layout, const Chain& chain,
                                   std::span<const uint32_t> rungs) {
  std::vector<ThinnedNode> thinned;
  const auto kept = [&](uint64_t first, uint64_t last) {
    for (uint64_t chunk = first; chunk <= std::min<uint64_t>(last, chain.chunks - 1); ++chunk) {
      const auto index = static_cast<uint32_t>(chunk);
      if (IsRung(index, chain.chunks) || chain.shared(index)) return true;
    }
    return false;
  };
  for (const uint32_t rung : rungs) {
    if (kept(rung, rung)) continue;
    ThinnedNode node = {.node = chain.key(rung), .values = {BoundaryKeyOf(chain.key(rung))}};
    for (const int paged : layout.closed_layers) {
      const uint64_t recent = RecentOf(layout, paged);
      for (uint64_t chunk = rung + 1 - std::min<uint64_t>(recent, rung + 1); chunk <= rung;
           ++chunk) {
        if (kept(chunk, chunk + recent - 1)) continue;
        const NodeKey key = chain.key(static_cast<uint32_t>(chunk));
        const int first = paged * layout.linear.key_heads;
        for (int head = 0; head < layout.linear.key_heads; ++head)
          node.values.push_back(GroupKeyOf(layout, key, first + head));
      }
    }
    thinned.push_back(std::move(node));
  }
  return thinned;
}

uint64_t RungBytes(const MemoryLayout& layout) {
  return BoundaryValueBytes(layout) + layout.closed_layers.size() *
                                          static_cast<uint64_t>(layout.linear.key_heads) *
                                          layout.group_bytes();
}

uint64_t HistoryBytes(const MemoryLayout& layout, uint64_t chunks) {
  if (!HasLadder(layout)) return chunks * ChunkValueBytes(layout);
  const std::vector<uint32_t> rungs = RungsOf(static_cast<uint32_t>(chunks));
  uint64_t bytes = chunks * (ChunkValueBytes(layout) - RungBytes(layout)) +
                   rungs.size() * BoundaryValueBytes(layout);
  for (const int paged : layout.closed_layers) {
    bytes += ChunksKeptFor(rungs, RecentOf(layout, paged)) *
             static_cast<uint64_t>(layout.linear.key_heads) * layout.group_bytes();
  }
  return bytes;
}

}  // namespace mneme::memory
