// The mover against its promises, over a page store in memory that fills up and loses what a test
// says: orders in order, receipts for all of them, reads that name what is missed, a full disk that
// only waits, deletions that go ahead of it.
#include "memory/page_mover.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "kernels/page_codec.h"
#include "tests/support/fake_page_store.h"
#include "tests/support/layouts.h"

namespace mneme::memory {
namespace {

using support::FakePageStore;

class PageMoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ =
        std::move(*PageCache::Make({.group_bytes = layout_.group_bytes(), .bytes_max = 1 << 22}));
    mover_ = std::make_unique<PageMover>(layout_, store_,
                                         PageMoverOptions{.readers = 3, .retry_us = 1'000},
                                         RealClock(), [this](SaveReceipt receipt) {
                                           const std::lock_guard lock(mutex_);
                                           receipts_.push_back(std::move(receipt));
                                         });
  }
  void TearDown() override { mover_.reset(); }

  // Chunk `index` with all its groups in memory.
  std::shared_ptr<ClosedChunk> Make(unsigned char index) {
    ChunkKey key{};
    key[0] = std::byte{static_cast<unsigned char>(index + 1)};
    auto chunk = *ClosedChunk::Make(layout_, *cache_, key, index * uint64_t{128});
    for (int group = 0; group < chunk->groups(); ++group) {
      std::byte* bytes = *cache_->Take(*chunk, group, false);
      std::fill_n(bytes, layout_.group_bytes(), std::byte{static_cast<unsigned char>(group)});
      const PageKey page = GroupKeyOf(layout_, *chunk, group);
      const kernels::PageGroupHeader header = kernels::MakePageGroupHeader(
          layout_.linear, layout_.page_dtype, page.layer, page.key_head, chunk->first_position());
      std::memcpy(bytes, &header, sizeof(header));
    }
    return chunk;
  }

  SaveOrder OrderOf(ClosedChunk& chunk, uint64_t ticket) {
    SaveOrder order = {
        .ticket = ticket, .node = NodeKeyFrom(chunk.key()), .groups = {}, .values = {}};
    for (int group = 0; group < chunk.groups(); ++group) {
      order.groups.emplace_back(GroupKeyOf(layout_, chunk, group),
                                ByteSpan(chunk.group(group), layout_.group_bytes()));
    }
    order.values.push_back(IndexValue(layout_, chunk));
    return order;
  }

  bool Whole(const ClosedChunk& chunk) { return *store_.Has(NodeKeyFrom(chunk.key())); }

  std::vector<SaveReceipt> WaitForReceipts(size_t count) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < until) {
      {
        const std::lock_guard lock(mutex_);
        if (receipts_.size() >= count) return receipts_;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ADD_FAILURE() << "fewer than " << count << " receipts";
    return {};
  }
  size_t receipt_count() {
    const std::lock_guard lock(mutex_);
    return receipts_.size();
  }
  void WaitUntilStuck() {
    for (int i = 0; i < 10'000 && !mover_->stuck(); ++i)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    ASSERT_TRUE(mover_->stuck());
  }

  MemoryLayout layout_ = support::SmallLayout();
  FakePageStore store_;
  std::unique_ptr<PageCache> cache_;
  std::mutex mutex_;
  std::vector<SaveReceipt> receipts_;
  std::unique_ptr<PageMover> mover_;
};

TEST_F(PageMoverTest, WhatIsSavedIsReadBackAsItWas) {
  const auto chunk = Make(0);
  mover_->Save(OrderOf(*chunk, 7));
  const auto receipts = WaitForReceipts(1);
  ASSERT_EQ(receipts.size(), 1u);
  EXPECT_EQ(receipts[0].ticket, 7u);
  ASSERT_TRUE(receipts[0].status) << receipts[0].status.error().message();
  EXPECT_TRUE(Whole(*chunk));
  std::vector<std::vector<std::byte>> read(6, std::vector<std::byte>(layout_.group_bytes()));
  std::vector<GroupRead> reads;
  for (int group = 0; group < 6; ++group) {
    reads.push_back({.chunk = chunk.get(),
                     .group = group,
                     .destination = read[static_cast<size_t>(group)].data(),
                     .status = {}});
  }
  mover_->Read(reads);
  for (int group = 0; group < 6; ++group) {
    EXPECT_TRUE(reads[static_cast<size_t>(group)].status);
    EXPECT_EQ(read[static_cast<size_t>(group)].back(), std::byte(group));
  }
  EXPECT_EQ(mover_->TakeReads().at(chunk.get()), 6u);
  EXPECT_TRUE(mover_->TakeReads().empty());
  EXPECT_TRUE(mover_->TakeMisses().empty());
  std::vector<std::byte> index(IndexValueBytes(layout_));
  ValueRead value = {IndexKeyOf(NodeKeyFrom(chunk->key())), index, {}};
  mover_->ReadValues({&value, 1});
  EXPECT_TRUE(value.status);
}

TEST_F(PageMoverTest, NamesWhatItCouldNotRead) {
  const auto chunk = Make(2);
  mover_->Save(OrderOf(*chunk, 1));
  WaitForReceipts(1);
  store_.Damage(GroupKeyOf(layout_, *chunk, 4));
  std::vector<std::byte> read(layout_.group_bytes());
  GroupRead damaged = {.chunk = chunk.get(), .group = 4, .destination = read.data(), .status = {}};
  mover_->Read({&damaged, 1});
  ASSERT_FALSE(damaged.status);
  EXPECT_EQ(damaged.status.error().code(), ErrorCode::kCorruption);
  const auto misses = mover_->TakeMisses();
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0].node, NodeKeyFrom(chunk->key()));
  EXPECT_EQ(misses[0].first_position, 256u);
  EXPECT_TRUE(mover_->TakeMisses().empty());
  EXPECT_TRUE(mover_->TakeReads().empty());
}

TEST_F(PageMoverTest, CarriesOutOrdersInTheirOrder) {
  const auto chunk = Make(0);
  const auto other = Make(1);
  mover_->Save(OrderOf(*chunk, 1));
  mover_->Delete({NodeKeyFrom(chunk->key())});
  mover_->Save(OrderOf(*chunk, 2));
  mover_->Save(OrderOf(*other, 3));
  mover_->Delete({NodeKeyFrom(other->key())});
  mover_->Stop(/*drain=*/true);
  EXPECT_TRUE(Whole(*chunk)) << "deleted, then saved again";
  EXPECT_FALSE(Whole(*other));
  const auto receipts = WaitForReceipts(3);
  for (size_t i = 0; i < receipts.size(); ++i) {
    EXPECT_EQ(receipts[i].ticket, i + 1);
    EXPECT_TRUE(receipts[i].status);
  }
}

TEST_F(PageMoverTest, AFullDiskIsWaitedFor) {
  store_.SetFull(true);
  const auto chunk = Make(0);
  mover_->Save(OrderOf(*chunk, 1));
  ASSERT_NO_FATAL_FAILURE(WaitUntilStuck());
  EXPECT_EQ(mover_->stuck()->reason(), Reason::kStoreFull);
  EXPECT_EQ(receipt_count(), 0u);
  store_.SetFull(false);
  EXPECT_TRUE(WaitForReceipts(1).at(0).status);
  EXPECT_TRUE(Whole(*chunk));
  EXPECT_FALSE(mover_->stuck());
}

TEST_F(PageMoverTest, DeletionsGoAheadOfWhatWaitsForRoom) {
  const auto kept = Make(3);
  mover_->Save(OrderOf(*kept, 9));
  WaitForReceipts(1);
  store_.SetFull(true);
  const auto first = Make(0);
  const auto second = Make(1);
  mover_->Save(OrderOf(*first, 1));
  ASSERT_NO_FATAL_FAILURE(WaitUntilStuck());
  mover_->Save(OrderOf(*second, 2));
  mover_->Delete({NodeKeyFrom(kept->key()), NodeKeyFrom(second->key())});
  // The second will never be written; the first still waits.
  const auto receipts = WaitForReceipts(2);
  EXPECT_EQ(receipts[1].ticket, 2u);
  ASSERT_FALSE(receipts[1].status);
  EXPECT_EQ(receipts[1].status.error().code(), ErrorCode::kCancelled);
  mover_->Delete({NodeKeyFrom(first->key())});
  const auto all = WaitForReceipts(3);
  EXPECT_EQ(all[2].ticket, 1u);
  EXPECT_EQ(all[2].status.error().code(), ErrorCode::kCancelled);
  EXPECT_FALSE(Whole(*kept));
  EXPECT_TRUE(store_.List()->empty());
}

TEST_F(PageMoverTest, ThinningGoesAheadOfWhatWaitsForRoom) {
  const auto thick = Make(3);
  mover_->Save(OrderOf(*thick, 9));
  WaitForReceipts(1);
  EXPECT_FALSE(mover_->IsThin(NodeKeyFrom(thick->key())));
  store_.SetFull(true);
  const auto waiting = Make(0);
  mover_->Save(OrderOf(*waiting, 1));
  ASSERT_NO_FATAL_FAILURE(WaitUntilStuck());
  const PageKey group = GroupKeyOf(layout_, *thick, 2);
  mover_->Thin({{.node = NodeKeyFrom(thick->key()), .values = {group}}});
  for (int i = 0; i < 10'000 && !mover_->IsThin(NodeKeyFrom(thick->key())); ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  std::vector<std::byte> value(layout_.group_bytes());
  EXPECT_EQ(store_.Read(group, value).error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(store_.Read(GroupKeyOf(layout_, *thick, 3), value));
  EXPECT_EQ(receipt_count(), 1u) << "still waits";
}

TEST_F(PageMoverTest, ThinnedBytesAreDroppedWhenTheyAreHalfOfTheFiles) {
  mover_ = std::make_unique<PageMover>(
      layout_, store_,
      PageMoverOptions{.sync_period_us = 4'000, .compact_after_bytes = 3 * layout_.group_bytes()},
      RealClock(), [](SaveReceipt) {});
  const auto thin = [&](unsigned char index) {
    const PageKey group = GroupKeyOf(layout_, *Make(index), 0);
    mover_->Thin({{.node = group.node, .values = {group}}});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  store_.file_bytes = 8 * layout_.group_bytes();
  for (unsigned char index = 0; index < 3; ++index) thin(index);
  EXPECT_EQ(store_.compactions(), 0);
  thin(3);
  for (int i = 0; i < 10'000 && store_.compactions() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  EXPECT_EQ(store_.compactions(), 1);
  thin(4);
  EXPECT_EQ(store_.compactions(), 1);
}

TEST_F(PageMoverTest, AStopAtOnceAnswersWhatIsLeft) {
  store_.SetFull(true);
  std::vector<std::shared_ptr<ClosedChunk>> chunks;
  for (unsigned char index = 0; index < 4; ++index) {
    chunks.push_back(Make(index));
    mover_->Save(OrderOf(*chunks.back(), index));
  }
  mover_->Stop(/*drain=*/false);
  const auto receipts = WaitForReceipts(4);
  for (const SaveReceipt& receipt : receipts) {
    ASSERT_FALSE(receipt.status);
    EXPECT_EQ(receipt.status.error().code(), ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace mneme::memory
