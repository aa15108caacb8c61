// A session's memory with the real kernels, its open rows written as a step would write them: what
// comes back from a boundary, a fork or a full cache seals to the same bytes as what never left;
// folded states equal the pages they stand for, read in order.
#include "memory/session_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "kernels/dtype.h"
#include "tests/support/layouts.h"
#include "tests/support/map_page_source.h"
#include "tests/support/random_floats.h"

namespace mneme::memory {
namespace {

using support::MapPageSource;
using support::RandomFloats;

// Fixed mixing: every pair of chunks has a weight of its own.
float Weight(int paged_layer, uint32_t query, uint32_t key) {
  return 0.125f *
         static_cast<float>(1 + (static_cast<uint32_t>(paged_layer) + 2 * query + key) % 7);
}

// Whatever a session's memory lives in, and ways to write into it.
struct SessionMemoryCase {
  static constexpr uint64_t kSlotBytes = 4096;  // of one group in the cache

  void Make(Reader reader, uint64_t bytes_max) {
    layout_ = support::SmallLayout(reader);
    layout_.page_dtype = page_dtype_;
    if (reader == Reader::kMhla) layout_.paged_layers = {0, 1, 2};
    cache_ =
        std::move(*PageCache::Make({.group_bytes = layout_.group_bytes(), .bytes_max = bytes_max}));
    stream_ = std::move(*kernels::CpuKernels().make_stream(1));
    source_ = std::make_unique<MapPageSource>(layout_.group_bytes());
    pool_.clear();
    pool_floats_.clear();
    RandomFloats random(9);
    const int64_t weights = int64_t{2} * 6 * 6;
    for (size_t layer = 0; layer < layout_.routed_layers.size() * 3; ++layer)
      pool_floats_.push_back(random.Many(weights, 0.4f));
    for (size_t layer = 0; layer < layout_.routed_layers.size(); ++layer) {
      pool_.push_back({.key = pool_floats_[3 * layer].data(),
                       .value = pool_floats_[3 * layer + 1].data(),
                       .output = pool_floats_[3 * layer + 2].data()});
    }
  }

  Sealing sealing() {
    return {.kernels = &kernels::CpuKernels(),
            .stream = stream_.get(),
            .pool = pool_,
            .mixing = weight_,
            .source = source_.get()};
  }

  // Rows [from, to) of the open chunk of chunk `index`, as a step would write them: their contents
  // follow from (index, row).
  void Write(SessionMemory& memory, int from, int to) {
    const kernels::SessionView view = memory.view();
    const auto chunk = static_cast<uint64_t>(view.chunk_count);
    for (int row = from; row < to; ++row) {
      RandomFloats random(chunk * 1000 + static_cast<uint64_t>(row) + 1);
      for (size_t layer = 0; layer < layout_.linear_layers.size(); ++layer)
        WriteRow(view.open[layer], row, random);
      for (size_t layer = 0; layer < layout_.attention_layers.size(); ++layer) {
        for (int head = 0; head < 2; ++head) {
          for (int e = 0; e < 8; ++e) {
            view.open_kv[layer].key[(head * 128 + row) * 8 + e] = random.Next();
            view.open_kv[layer].value[(head * 128 + row) * 8 + e] = random.Next();
          }
        }
      }
    }
    RandomFloats random(chunk * 1000 + static_cast<uint64_t>(to));
    for (size_t layer = 0; layer < layout_.linear_layers.size(); ++layer) {
      float* tail = view.open[layer].conv +
                    static_cast<size_t>(1 - view.conv_read) * layout_.conv_tail_floats();
      for (size_t i = 0; i < layout_.conv_tail_floats(); ++i) tail[i] = random.Next();
    }
    memory.Commit(to - from, random.Many(layout_.hidden).data());
  }

  void WriteRow(const kernels::OpenRows& rows, int row, RandomFloats& random) {
    for (int head = 0; head < 2; ++head) {
      for (int k = 0; k < 6; ++k) {
        rows.k[(head * 128 + row) * 6 + k] = random.Next(0.4f);
        const float route_key = random.Next();
        if (rows.route_key != nullptr) rows.route_key[(head * 128 + row) * 6 + k] = route_key;
      }
    }
    for (int head = 0; head < 4; ++head) {
      for (int d = 0; d < 16; ++d) rows.u[(head * 128 + row) * 16 + d] = random.Next(0.2f);
      rows.c[head * 128 + row] = -0.01f * static_cast<float>(row + 1);
    }
  }

  // Seals the full open chunk under a key that follows from its number.
  std::shared_ptr<ClosedChunk> Seal(SessionMemory& memory) {
    auto sealed = memory.Seal(KeyOf(memory.chunk_count()), sealing());
    EXPECT_TRUE(sealed) << sealed.error().message();
    if (!sealed) return nullptr;
    source_->Save(**sealed);
    return *sealed;
  }

  static ChunkKey KeyOf(uint32_t index) {
    ChunkKey key{};
    key[0] = static_cast<std::byte>(index + 1);
    return key;
  }

  // A chunk in two portions.
  void WriteChunk(SessionMemory& memory) {
    Write(memory, 0, 50);
    Write(memory, 50, 128);
  }

  // Everything stored of a chunk but its name.
  std::vector<std::byte> BytesOf(ClosedChunk& chunk) {
    std::vector<std::byte> bytes;
    const auto add = [&bytes](const void* from, size_t count) {
      const auto* first = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), first, first + count);
    };
    for (int group = 0; group < chunk.groups(); ++group) {
      const auto& stored = source_->Saved(chunk, group);
      add(stored.data(), stored.size());
    }
    add(chunk.representatives(), 2 * layout_.representatives_count());
    add(chunk.centroid(), layout_.centroid_count());
    add(chunk.centroid_scale(), 4 * layout_.radius_count());
    add(chunk.radius(), 4 * layout_.radius_count());
    add(chunk.kv_page(0), layout_.kv_page_bytes());
    return bytes;
  }

  std::function<float(int, uint32_t, uint32_t)> weight_ = Weight;
  kernels::Dtype page_dtype_ = kernels::Dtype::kF16;
  MemoryLayout layout_;
  std::unique_ptr<PageCache> cache_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<MapPageSource> source_;
  std::vector<std::vector<float>> pool_floats_;
  std::vector<kernels::PoolWeights> pool_;
  std::vector<std::shared_ptr<ClosedChunk>> kept_;
};

class SessionMemoryTest : public SessionMemoryCase, public ::testing::TestWithParam<Reader> {
 protected:
  void SetUp() override { Make(GetParam(), 1 << 24); }
};

TEST_P(SessionMemoryTest, CountsTokensAsTheyAreCommitted) {
  SessionMemory memory(layout_, *cache_);
  Write(memory, 0, 50);
  EXPECT_EQ(memory.position(), 50u);
  EXPECT_FALSE(memory.full());
  Write(memory, 50, 128);
  EXPECT_TRUE(memory.full());
  Seal(memory);
  EXPECT_EQ(memory.position(), 128u);
  EXPECT_EQ(memory.open_tokens(), 0);
  EXPECT_EQ(memory.chunk_count(), 1u);
  EXPECT_EQ(memory.chunk(0).first_position(), 0u);
  EXPECT_EQ(memory.view().chunk_count, 1);
}

TEST_P(SessionMemoryTest, GoesOnFromABoundaryAsIfItHadNeverLeft) {
  SessionMemory whole(layout_, *cache_);
  std::vector<std::shared_ptr<ClosedChunk>> chunks;
  for (int chunk = 0; chunk < 2; ++chunk) {
    WriteChunk(whole);
    chunks.push_back(Seal(whole));
  }
  const auto boundary = Boundary::Decode(layout_, whole.boundary().Encode());
  ASSERT_TRUE(boundary);
  SessionMemory again(layout_, *cache_, chunks, *boundary);
  EXPECT_EQ(again.position(), whole.position());
  EXPECT_EQ(again.boundary().Encode(), whole.boundary().Encode());
  for (int i = 0; i < layout_.hidden; ++i)
    ASSERT_EQ(again.last_hidden()[i], whole.last_hidden()[i]);
  for (SessionMemory* memory : {&whole, &again}) {
    WriteChunk(*memory);
    kept_.push_back(Seal(*memory));
  }
  EXPECT_EQ(BytesOf(*kept_[0]), BytesOf(*kept_[1]));
  EXPECT_EQ(again.boundary().Encode(), whole.boundary().Encode());
}

TEST_P(SessionMemoryTest, AForkSharesWhatIsClosedAndCopiesWhatIsOpen) {
  SessionMemory parent(layout_, *cache_);
  WriteChunk(parent);
  Seal(parent);
  Write(parent, 0, 50);
  SessionMemory fork = parent.Fork();
  const uint64_t charged = cache_->charged_bytes();
  EXPECT_EQ(&fork.chunk(0), &parent.chunk(0));
  // The parent goes another way first; the fork must not notice.
  Write(parent, 50, 60);
  parent.view().open[0].k[0] = 77.0f;
  Write(fork, 50, 128);
  kept_.push_back(Seal(fork));
  SessionMemory whole(layout_, *cache_);
  WriteChunk(whole);
  Seal(whole);
  WriteChunk(whole);
  kept_.push_back(Seal(whole));
  EXPECT_EQ(BytesOf(*kept_[0]), BytesOf(*kept_[1]));
  EXPECT_EQ(fork.boundary().Encode(), whole.boundary().Encode());
  EXPECT_GE(cache_->charged_bytes(), charged);
}

TEST_P(SessionMemoryTest, ASealThatFindsNoRoomChangesNothingAndWorksLater) {
  const uint64_t index = ClosedChunk::IndexBytes(layout_) + ClosedChunk::KvBytes(layout_);
  const auto groups = static_cast<uint64_t>(layout_.groups_per_chunk());
  Make(GetParam(), (3 * groups + 1) * kSlotBytes + 3 * index);
  SessionMemory memory(layout_, *cache_);
  for (uint32_t chunk = 0; chunk < 2; ++chunk) {
    WriteChunk(memory);
    auto sealed = memory.Seal(KeyOf(chunk), sealing());
    ASSERT_TRUE(sealed) << sealed.error().message();
    kept_.push_back(*sealed);
  }
  WriteChunk(memory);
  // Somebody else takes all but half an index, then all but an index and two groups.
  for (const uint64_t left : {index / 2, index + 2 * kSlotBytes}) {
    if (left > index && groups == 0) continue;
    const uint64_t taken =
        cache_->bytes_max() - cache_->charged_bytes() - cache_->group_bytes_used() - left;
    ASSERT_TRUE(cache_->Charge(taken));
    const uint64_t charged = cache_->charged_bytes();
    const uint64_t used = cache_->group_bytes_used();
    const auto refused = memory.Seal(KeyOf(2), sealing());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
    EXPECT_TRUE(memory.full());
    EXPECT_EQ(memory.chunk_count(), 2u);
    EXPECT_EQ(memory.view().chunk_count, 2);
    EXPECT_EQ(cache_->charged_bytes(), charged);
    EXPECT_EQ(cache_->group_bytes_used(), used);
    cache_->Uncharge(taken);
  }
  for (auto& chunk : kept_) source_->Save(*chunk);
  kept_.push_back(Seal(memory));
  ASSERT_NE(kept_[2], nullptr);
  SessionMemoryCase roomy;
  roomy.Make(GetParam(), 1 << 24);
  SessionMemory whole(roomy.layout_, *roomy.cache_);
  for (int chunk = 0; chunk < 3; ++chunk) {
    roomy.WriteChunk(whole);
    roomy.kept_.push_back(roomy.Seal(whole));
  }
  EXPECT_EQ(BytesOf(*kept_[2]), roomy.BytesOf(*roomy.kept_[2]));
  EXPECT_EQ(memory.boundary().Encode(), whole.boundary().Encode());
}

INSTANTIATE_TEST_SUITE_P(Readers, SessionMemoryTest,
                         ::testing::Values(Reader::kNative, Reader::kMhla, Reader::kHla),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

class HeldGroupTest : public SessionMemoryCase, public ::testing::Test {
 protected:
  void SetUp() override { Make(Reader::kHla, 1 << 24); }
};

TEST_F(HeldGroupTest, ADroppedGroupComesBackAsItWas) {
  SessionMemory memory(layout_, *cache_);
  WriteChunk(memory);
  const auto chunk = Seal(memory);
  for (int group = 0; group < chunk->groups(); ++group) {
    ASSERT_TRUE(HoldGroup(*cache_, *chunk, group, source_.get()));
    EXPECT_EQ(source_->reads(), group) << "it is there already";
    cache_->Release(*chunk, group);
    ASSERT_EQ(chunk->group(group), nullptr);
    ASSERT_TRUE(HoldGroup(*cache_, *chunk, group, source_.get()));
    ASSERT_NE(chunk->group(group), nullptr);
    const auto& saved = source_->Saved(*chunk, group);
    EXPECT_TRUE(std::equal(saved.begin(), saved.end(), chunk->group(group)));
  }
}

TEST_F(HeldGroupTest, ALostGroupIsAnErrorAndHoldsNothing) {
  SessionMemory memory(layout_, *cache_);
  WriteChunk(memory);
  const auto chunk = Seal(memory);
  cache_->Release(*chunk, 3);
  source_->Lose(*chunk, 3);
  const uint64_t used = cache_->group_bytes_used();
  const Status held = HoldGroup(*cache_, *chunk, 3, source_.get());
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(chunk->group(3), nullptr);
  EXPECT_EQ(cache_->group_bytes_used(), used);
}

// The native state, advanced at each seal, against the pages read in order with all weights one.
TEST(FoldedStateTest, EqualsThePagesInOrder) {
  SessionMemoryCase folding;
  folding.Make(Reader::kNative, 1 << 24);
  SessionMemoryCase paging;
  paging.weight_ = [](int, uint32_t, uint32_t) { return 1.0f; };
  paging.page_dtype_ = kernels::Dtype::kF32;
  paging.Make(Reader::kMhla, 1 << 24);
  SessionMemory folded(folding.layout_, *folding.cache_);
  SessionMemory paged(paging.layout_, *paging.cache_);
  for (int chunk = 0; chunk < 3; ++chunk) {
    folding.WriteChunk(folded);
    folding.Seal(folded);
    paging.WriteChunk(paged);
    paging.Seal(paged);
  }
  const std::vector<float> expected = folded.boundary().folded;
  const std::vector<float> found = paged.boundary().folded;
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0;
  for (size_t at = 0; at < expected.size(); ++at) {
    largest = std::max(largest, std::fabs(expected[at]));
    ASSERT_NEAR(found[at], expected[at], 1e-5f * std::max(1.0f, std::fabs(expected[at]))) << at;
  }
  EXPECT_GT(largest, 0.1f) << "states of zeros would show nothing";
}

}  // namespace
}  // namespace mneme::memory
