// A closed chunk in memory: its view shows what it holds, and its bytes count against the cap.
#include "memory/closed_chunk.h"

#include <gtest/gtest.h>

#include "tests/support/layouts.h"

namespace mneme::memory {
namespace {

TEST(ClosedChunkTest, ChargesItsIndexAndKvPagesWhileItLives) {
  const MemoryLayout layout = support::SmallLayout();
  auto cache = PageCache::Make({.group_bytes = layout.group_bytes(), .bytes_max = 1 << 20});
  ASSERT_TRUE(cache);
  {
    auto chunk = ClosedChunk::Make(layout, **cache, {}, 128);
    ASSERT_TRUE(chunk);
    // Two routed layers of 2 key heads: 8 representatives of 6 f16, a centroid of 6 bytes, two f32.
    EXPECT_EQ(ClosedChunk::IndexBytes(layout), 2u * 2u * (8u * 6u * 2u + 6u + 8u));
    // One attention layer: keys and values of 2 heads, 128 tokens, 8 f16.
    EXPECT_EQ(ClosedChunk::KvBytes(layout), 2u * 2u * 128u * 8u * 2u);
    EXPECT_EQ((*cache)->charged_bytes(),
              ClosedChunk::IndexBytes(layout) + ClosedChunk::KvBytes(layout));
    EXPECT_EQ((*chunk)->groups(), 6);
    EXPECT_EQ((*chunk)->first_position(), 128u);
    EXPECT_FALSE((*chunk)->saved());
  }
  EXPECT_EQ((*cache)->charged_bytes(), 0u);
}

TEST(ClosedChunkTest, ItsViewFollowsTheGroupsItHolds) {
  const MemoryLayout layout = support::SmallLayout();
  auto cache = PageCache::Make({.group_bytes = layout.group_bytes(), .bytes_max = 1 << 20});
  ASSERT_TRUE(cache);
  auto chunk = ClosedChunk::Make(layout, **cache, {}, 0);
  ASSERT_TRUE(chunk);
  const int group = (*chunk)->GroupOf(/*paged_layer=*/2, /*key_head=*/1);
  EXPECT_EQ(group, 5);
  EXPECT_EQ((*chunk)->view()->groups[group], nullptr);
  auto taken = (*cache)->Take(**chunk, group, false);
  ASSERT_TRUE(taken);
  EXPECT_EQ((*chunk)->view()->groups[group], *taken);
}

TEST(ClosedChunkTest, IsRefusedWhenTheCapIsTooSmall) {
  const MemoryLayout layout = support::SmallLayout();
  auto cache = PageCache::Make({.group_bytes = layout.group_bytes(), .bytes_max = 4096});
  ASSERT_TRUE(cache);
  const auto chunk = ClosedChunk::Make(layout, **cache, {}, 0);
  ASSERT_FALSE(chunk);
  EXPECT_EQ(chunk.error().code(), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace mneme::memory
