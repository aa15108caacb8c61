// The ladder against its definition: a history that grows chunk by chunk keeps, at every length,
// exactly what a start at each of its rungs needs, and no rung that went is ever asked for again.
#include "memory/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "memory/chunk_value.h"
#include "tests/support/layouts.h"

namespace mneme::memory {
namespace {

NodeKey KeyOf(uint32_t chunk) {
  NodeKey key;
  std::memcpy(key.bytes.data(), &chunk, sizeof(chunk));
  key.bytes[31] = std::byte{1};
  return key;
}

// Three paged layers, of which 0 and 2 are closed and read `first` and `last` recent chunks.
MemoryLayout ClosedLayout(int first, int last) {
  MemoryLayout layout = support::SmallLayout();
  layout.recent_chunks = {first, 0, last};
  layout.closed_layers = {0, 2};
  layout.routed_layers = {1};
  return layout;
}

std::set<PageKey> ClosedGroupsOf(const MemoryLayout& layout, int paged, uint32_t chunk) {
  std::set<PageKey> groups;
  for (int head = 0; head < layout.linear.key_heads; ++head)
    groups.insert(GroupKeyOf(layout, KeyOf(chunk), paged * layout.linear.key_heads + head));
  return groups;
}

// What chunk `chunk` has only for starts.
std::set<PageKey> StartValuesOf(const MemoryLayout& layout, uint32_t chunk) {
  std::set<PageKey> values = {BoundaryKeyOf(KeyOf(chunk))};
  for (const int paged : layout.closed_layers) values.merge(ClosedGroupsOf(layout, paged, chunk));
  return values;
}

// The definition: what starts at these chunks read.
std::set<PageKey> NeededBy(const MemoryLayout& layout, const std::set<uint32_t>& starts) {
  std::set<PageKey> needed;
  for (const uint32_t start : starts) {
    needed.insert(BoundaryKeyOf(KeyOf(start)));
    for (const int paged : layout.closed_layers) {
      const int recent = layout.recent_chunks[static_cast<size_t>(paged)];
      for (int back = 0; back < recent && static_cast<uint32_t>(back) <= start; ++back)
        needed.merge(ClosedGroupsOf(layout, paged, start - static_cast<uint32_t>(back)));
    }
  }
  return needed;
}

TEST(LadderTest, AStartAnyChunksBackReplaysLittleMore) {
  for (uint32_t chunks = 1; chunks <= 3000; chunks += chunks < 300 ? 1 : 37) {
    const std::vector<uint32_t> rungs = RungsOf(chunks);
    ASSERT_EQ(rungs.front(), chunks - 1);
    const auto octaves = static_cast<size_t>(std::bit_width(chunks / 64));
    EXPECT_LE(rungs.size(), 2 + 4 + 2 * octaves) << chunks;
    std::vector<bool> is_rung(chunks);
    for (const uint32_t rung : rungs) is_rung[rung] = true;
    uint32_t again = 0;  // chunks after the last rung so far
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      EXPECT_EQ(IsRung(chunk, chunks), is_rung[chunk]) << chunk << " of " << chunks;
      again = is_rung[chunk] ? 0 : again + 1;
      const uint32_t age = chunks - 1 - chunk;
      ASSERT_LE(again, std::max(kRungSpacing, 2 * age / 3)) << chunk << " of " << chunks;
    }
  }
}

TEST(LadderTest, ARungThatGoesNeverComesBack) {
  std::set<uint32_t> rungs;
  for (uint32_t chunks = 1; chunks <= 5000; ++chunks) {
    rungs.insert(chunks - 1);
    for (const uint32_t gone : RungsDroppedAt(chunks)) EXPECT_EQ(rungs.erase(gone), 1u) << gone;
    const std::vector<uint32_t> expected = RungsOf(chunks);
    ASSERT_TRUE(std::equal(rungs.rbegin(), rungs.rend(), expected.begin(), expected.end()))
        << chunks;
  }
}

TEST(LadderTest, KeepsWhatStartsNeedAndNothingElse) {
  for (const auto& [first, last] : {std::pair(1, 1), std::pair(1, 3), std::pair(5, 2)}) {
    const MemoryLayout layout = ClosedLayout(first, last);
    const std::set<uint32_t> shared = {7, 40, 41};
    std::set<PageKey> stored;
    Chain chain = {.key = KeyOf, .shared = [&](uint32_t chunk) { return shared.contains(chunk); }};
    for (chain.chunks = 1; chain.chunks <= 300; ++chain.chunks) {
      stored.merge(StartValuesOf(layout, chain.chunks - 1));
      for (const ThinnedNode& node : ThinnedBy(layout, chain, RungsDroppedAt(chain.chunks)))
        for (const PageKey& key : node.values) EXPECT_EQ(stored.erase(key), 1u) << NameOf(key);
      std::set<uint32_t> starts = {shared.begin(), shared.lower_bound(chain.chunks)};
      for (const uint32_t rung : RungsOf(chain.chunks)) starts.insert(rung);
      ASSERT_TRUE(stored == NeededBy(layout, starts))
          << chain.chunks << " chunks, recent " << first << " " << last;
    }
  }
}

TEST(LadderTest, CountsWhatAHistoryTakes) {
  const MemoryLayout layout = ClosedLayout(1, 3);
  std::set<PageKey> stored;
  const Chain always = {.chunks = 0, .key = KeyOf, .shared = [](uint32_t) { return false; }};
  Chain chain = always;
  for (chain.chunks = 1; chain.chunks <= 200; ++chain.chunks) {
    stored.merge(StartValuesOf(layout, chain.chunks - 1));
    for (const ThinnedNode& node : ThinnedBy(layout, chain, RungsDroppedAt(chain.chunks)))
      for (const PageKey& key : node.values) stored.erase(key);
    uint64_t bytes = chain.chunks * (ChunkValueBytes(layout) - RungBytes(layout));
    for (const PageKey& key : stored)
      bytes += key.kind == ValueKind::kBoundary ? BoundaryValueBytes(layout) : layout.group_bytes();
    ASSERT_EQ(HistoryBytes(layout, chain.chunks), bytes) << chain.chunks;
  }
  EXPECT_EQ(HistoryBytes(layout, 0), 0u);
}

TEST(LadderTest, EveryChunkStaysAStartWhereThatCostsLittle) {
  MemoryLayout layout = support::SmallLayout();
  EXPECT_TRUE(HasLadder(layout));
  EXPECT_TRUE(HasLadder(support::SmallLayout(Reader::kNative)));
  layout.closed_layers.clear();
  EXPECT_FALSE(HasLadder(layout));
  EXPECT_EQ(HistoryBytes(layout, 100), 100 * ChunkValueBytes(layout));
}

}  // namespace
}  // namespace mneme::memory
