// The parts of a closed chunk as values: what is taken back is what was given, sizes are those that
// are promised, and bytes of other sizes are refused.
#include "memory/chunk_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/layouts.h"
#include "tests/support/random_floats.h"

namespace mneme::memory {
namespace {

class ChunkValueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ =
        std::move(*PageCache::Make({.group_bytes = layout_.group_bytes(), .bytes_max = 1 << 22}));
    chunk_ = Make(1);
    support::RandomFloats random(3);
    Fill(chunk_->representatives(), layout_.representatives_count(), random);
    Fill(chunk_->centroid(), layout_.centroid_count(), random);
    Fill(chunk_->centroid_scale(), layout_.radius_count(), random);
    Fill(chunk_->radius(), layout_.radius_count(), random);
    Fill(chunk_->kv_page(0), layout_.kv_page_bytes(), random);
  }

  std::shared_ptr<ClosedChunk> Make(unsigned char name) {
    ChunkKey key{};
    key[0] = std::byte{name};
    return *ClosedChunk::Make(layout_, *cache_, key, 256);
  }

  template <typename T>
  static void Fill(T* to, size_t count, support::RandomFloats& random) {
    auto* bytes = reinterpret_cast<unsigned char*>(to);
    for (size_t at = 0; at < count * sizeof(T); ++at)
      bytes[at] = static_cast<unsigned char>(random.Bits());
  }

  template <typename T>
  static bool Same(const T* one, const T* other, size_t count) {
    return std::memcmp(one, other, count * sizeof(T)) == 0;
  }

  MemoryLayout layout_ = support::SmallLayout();
  std::unique_ptr<PageCache> cache_;
  std::shared_ptr<ClosedChunk> chunk_;
};

TEST_F(ChunkValueTest, TheIndexComesBackAsItWas) {
  ChunkValue value = IndexValue(layout_, *chunk_);
  EXPECT_EQ(value.bytes.size(), IndexValueBytes(layout_));
  ASSERT_TRUE(SealValue(value.key, value.bytes));
  EXPECT_TRUE(CheckValue(value.key, value.bytes));
  const auto again = Make(2);
  ASSERT_TRUE(TakeIndex(layout_, value.bytes, *again));
  EXPECT_TRUE(
      Same(again->representatives(), chunk_->representatives(), layout_.representatives_count()));
  EXPECT_TRUE(Same(again->centroid(), chunk_->centroid(), layout_.centroid_count()));
  EXPECT_TRUE(Same(again->centroid_scale(), chunk_->centroid_scale(), layout_.radius_count()));
  EXPECT_TRUE(Same(again->radius(), chunk_->radius(), layout_.radius_count()));
  value.bytes.pop_back();
  const Status refused = TakeIndex(layout_, value.bytes, *again);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorruption);
}

TEST_F(ChunkValueTest, AKvPageComesBackAsItWas) {
  ChunkValue value = KvValue(layout_, *chunk_, 0);
  EXPECT_EQ(value.bytes.size(), KvValueBytes(layout_));
  EXPECT_EQ(value.key.layer, 3) << "as the model counts it";
  ASSERT_TRUE(SealValue(value.key, value.bytes));
  const auto again = Make(2);
  ASSERT_TRUE(TakeKv(layout_, value.bytes, 0, *again));
  EXPECT_TRUE(Same(again->kv_page(0), chunk_->kv_page(0), layout_.kv_page_bytes()));
  value.bytes.push_back(std::byte{0});
  EXPECT_FALSE(TakeKv(layout_, value.bytes, 0, *again));
}

TEST_F(ChunkValueTest, ABoundaryComesBackAsItWas) {
  support::RandomFloats random(4);
  const auto floats = [&random](size_t count) { return random.Many(static_cast<int64_t>(count)); };
  const Boundary boundary = {
      .conv_tails = floats(layout_.linear_layers.size() * layout_.conv_tail_floats()),
      .last_hidden = floats(static_cast<size_t>(layout_.hidden)),
      .folded = {}};
  ChunkValue value = BoundaryValue(layout_, *chunk_, boundary);
  EXPECT_EQ(value.bytes.size(), BoundaryValueBytes(layout_));
  ASSERT_TRUE(SealValue(value.key, value.bytes));
  const auto again = TakeBoundary(layout_, value.bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->Encode(), boundary.Encode());
  EXPECT_FALSE(TakeBoundary(layout_, ByteSpan(value.bytes).first(value.bytes.size() - 4)));
  EXPECT_FALSE(TakeBoundary(layout_, {}));
}

TEST_F(ChunkValueTest, KeysDifferAndNameTheModelsLayers) {
  std::vector<PageKey> keys = {IndexKeyOf(NodeKeyFrom(chunk_->key())),
                               KvKeyOf(layout_, NodeKeyFrom(chunk_->key()), 0),
                               BoundaryKeyOf(NodeKeyFrom(chunk_->key()))};
  for (int group = 0; group < chunk_->groups(); ++group) {
    keys.push_back(GroupKeyOf(layout_, *chunk_, group));
    EXPECT_EQ(keys.back().layer, group / 2);
    EXPECT_EQ(keys.back().key_head, group % 2);
    EXPECT_EQ(keys.back().node, NodeKeyFrom(chunk_->key()));
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST_F(ChunkValueTest, TheNodesRecordSaysWhatIsStored) {
  NodeKey parent;
  parent.bytes[5] = std::byte{9};
  const v1::ChunkNodeRecord record = NodeRecordOf(layout_, *chunk_, parent);
  EXPECT_EQ(record.first_position(), 256u);
  EXPECT_EQ(record.tokens(), 128u);
  EXPECT_EQ(record.group_layers_size(), 3);
  EXPECT_EQ(record.groups_per_layer(), 2u);
  ASSERT_EQ(record.kv_layers_size(), 1);
  EXPECT_EQ(record.kv_layers(0), 3u);
  EXPECT_TRUE(record.has_boundary());
  EXPECT_EQ(NodeKey{DigestFrom(record.parent())}, parent);
  EXPECT_TRUE(NodeRecordOf(layout_, *chunk_, {}).parent().empty());
  const uint64_t groups = static_cast<uint64_t>(chunk_->groups()) * layout_.group_bytes();
  EXPECT_EQ(record.stored_bytes(), groups + IndexValueBytes(layout_) + KvValueBytes(layout_) +
                                       BoundaryValueBytes(layout_));
}

}  // namespace
}  // namespace mneme::memory
