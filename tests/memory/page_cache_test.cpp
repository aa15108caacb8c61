// The host cache of page groups against its one promise: bytes stay under the cap, only what is
// safe on disk and not in use is dropped, oldest first, and a full cache is an answer.
#include "memory/page_cache.h"

#include <gtest/gtest.h>

#include "memory/closed_chunk.h"
#include "tests/support/layouts.h"

namespace mneme::memory {
namespace {

class PageCacheTest : public ::testing::Test {
 protected:
  // Room for the index entries of two chunks and `groups` groups of one machine page each.
  void MakeCache(int groups) {
    const uint64_t charged = 2 * (ClosedChunk::IndexBytes(layout_) + ClosedChunk::KvBytes(layout_));
    auto cache =
        PageCache::Make({.group_bytes = layout_.group_bytes(),
                         .bytes_max = static_cast<uint64_t>(groups) * kSlotBytes + charged});
    ASSERT_TRUE(cache);
    cache_ = std::move(*cache);
    for (uint64_t chunk = 0; chunk < 2; ++chunk) {
      auto made = ClosedChunk::Make(layout_, *cache_, {}, chunk * 128);
      ASSERT_TRUE(made) << made.error().message();
      chunks_.push_back(*made);
    }
  }

  // Groups are small enough for one machine page in this layout.
  static constexpr uint64_t kSlotBytes = 4096;
  MemoryLayout layout_ = support::SmallLayout();
  std::unique_ptr<PageCache> cache_;
  std::vector<std::shared_ptr<ClosedChunk>> chunks_;
};

TEST_F(PageCacheTest, DropsTheOldestSavedGroupForAFreshOne) {
  MakeCache(2);
  ASSERT_TRUE(cache_->Take(*chunks_[0], 0, true));
  ASSERT_TRUE(cache_->Take(*chunks_[0], 1, true));
  cache_->BeginStep();
  cache_->Touch(*chunks_[0], 0);
  ASSERT_TRUE(cache_->Take(*chunks_[1], 0, true));
  EXPECT_NE(chunks_[0]->group(0), nullptr);
  EXPECT_EQ(chunks_[0]->group(1), nullptr) << "unused for longest";
  EXPECT_EQ(chunks_[0]->view()->groups[1], nullptr);
  EXPECT_EQ(cache_->dropped_groups(), 1u);
  EXPECT_LE(cache_->group_bytes_used() + cache_->charged_bytes(), cache_->bytes_max());
}

TEST_F(PageCacheTest, KeepsWhatIsNotOnDiskAndSaysItIsFull) {
  MakeCache(2);
  ASSERT_TRUE(cache_->Take(*chunks_[0], 0, false));
  ASSERT_TRUE(cache_->Take(*chunks_[0], 1, false));
  cache_->BeginStep();
  const auto refused = cache_->Take(*chunks_[1], 0, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(chunks_[1]->group(0), nullptr);
  cache_->MarkSaved(*chunks_[0], 0);
  EXPECT_TRUE(cache_->Take(*chunks_[1], 0, false));
  EXPECT_EQ(chunks_[0]->group(0), nullptr);
}

TEST_F(PageCacheTest, KeepsWhatTheStepInProgressUses) {
  MakeCache(1);
  cache_->BeginStep();
  ASSERT_TRUE(cache_->Take(*chunks_[0], 0, true));
  EXPECT_FALSE(cache_->Take(*chunks_[0], 1, true));
  cache_->BeginStep();
  EXPECT_TRUE(cache_->Take(*chunks_[0], 1, true));
}

TEST_F(PageCacheTest, MakesRoomForBytesThatLieElsewhere) {
  MakeCache(3);
  for (int group = 0; group < 3; ++group) ASSERT_TRUE(cache_->Take(*chunks_[0], group, true));
  cache_->BeginStep();
  ASSERT_TRUE(cache_->Charge(kSlotBytes + 1));
  EXPECT_EQ(cache_->group_bytes_used(), kSlotBytes) << "two groups had to go";
  EXPECT_FALSE(cache_->Charge(3 * kSlotBytes)) << "more than the cap holds";
  cache_->Uncharge(kSlotBytes + 1);
  EXPECT_TRUE(cache_->Take(*chunks_[1], 0, true));
}

TEST_F(PageCacheTest, AChunkThatGoesGivesItsGroupsBack) {
  MakeCache(1);
  ASSERT_TRUE(cache_->Take(*chunks_[0], 0, false));
  chunks_[0].reset();
  EXPECT_EQ(cache_->group_bytes_used(), 0u);
  EXPECT_TRUE(cache_->Take(*chunks_[1], 0, false));
}

TEST_F(PageCacheTest, RefusesACapBelowOneGroup) {
  const auto cache = PageCache::Make({.group_bytes = 10'000, .bytes_max = 9'000});
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace mneme::memory
