// The open chunk's arrays: none overlap, a reset one starts from zeros, and a copy has the same
// rows.
#include "memory/open_chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/support/layouts.h"
#include "tests/support/sanitizers.h"

namespace mneme::memory {
namespace {

uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

TEST(OpenChunkTest, ArraysDoNotOverlapAndFillItsBytes) {
  const MemoryLayout layout = support::SmallLayout();
  OpenChunk chunk(layout);
  std::vector<std::pair<const float*, size_t>> arrays;
  for (size_t layer = 0; layer < layout.linear_layers.size(); ++layer) {
    const kernels::OpenRows& rows = chunk.rows()[layer];
    arrays.emplace_back(rows.k, 2 * 128 * 6);
    arrays.emplace_back(rows.u, 4 * 128 * 16);
    arrays.emplace_back(rows.c, 4 * 128);
    arrays.emplace_back(rows.conv, 2 * layout.conv_tail_floats());
    if (layer == 0) {
      EXPECT_EQ(rows.route_key, nullptr) << "the closed layer has no router";
    } else {
      arrays.emplace_back(rows.route_key, 2 * 128 * 6);
    }
  }
  arrays.emplace_back(chunk.kv()[0].key, 2 * 128 * 8);
  arrays.emplace_back(chunk.kv()[0].value, 2 * 128 * 8);
  arrays.emplace_back(chunk.last_hidden(), 24);
  std::sort(arrays.begin(), arrays.end());
  size_t floats = 0;
  for (size_t array = 0; array < arrays.size(); ++array) {
    if (array > 0) {
      EXPECT_LE(arrays[array - 1].first + arrays[array - 1].second, arrays[array].first);
    }
    floats += arrays[array].second;
  }
  EXPECT_GE(OpenChunk::Bytes(layout), floats * sizeof(float));
  EXPECT_LE(OpenChunk::Bytes(layout), floats * sizeof(float) + arrays.size() * 64);
  const size_t without_rows = layout.linear_layers.size() * 2 * layout.conv_tail_floats() + 24;
  EXPECT_EQ(OpenChunk::RowBytes(layout, 128), (floats - without_rows) * sizeof(float));
  EXPECT_EQ(OpenChunk::RowBytes(layout, 1) * 128, OpenChunk::RowBytes(layout, 128));
}

TEST(OpenChunkTest, StartsWithTailsOfZeros) {
  const MemoryLayout layout = support::SmallLayout();
  OpenChunk chunk(layout);
  const auto all_zero = [&](int layer) {
    const float* tail = chunk.conv_tail(layer);
    return std::all_of(tail, tail + layout.conv_tail_floats(), [](float x) { return x == 0; });
  };
  EXPECT_TRUE(all_zero(0));
  chunk.SwapConv();
  std::fill_n(chunk.conv_tail(2), layout.conv_tail_floats(), 3.0f);
  EXPECT_FALSE(all_zero(2));
  chunk.Reset();
  EXPECT_TRUE(all_zero(2));
  EXPECT_EQ(chunk.conv_read(), 0);
}

TEST(OpenChunkTest, ACopyHasTheRowsTailsAndHiddenRow) {
  const MemoryLayout layout = support::SmallLayout();
  OpenChunk from(layout);
  OpenChunk to(layout);
  from.SwapConv();
  std::fill_n(from.conv_tail(1), layout.conv_tail_floats(), 2.0f);
  std::fill_n(from.last_hidden(), layout.hidden, 4.0f);
  const auto row = [](const float* rows, int head, int token, int width) {
    return rows + (head * 128 + token) * width;
  };
  std::fill_n(const_cast<float*>(row(from.rows()[1].u, 3, 4, 16)), 16, 5.0f);
  std::fill_n(const_cast<float*>(row(from.kv()[0].value, 1, 4, 8)), 8, 6.0f);
  to.CopyFrom(from, 5);
  EXPECT_EQ(to.conv_tail(1)[7], 2.0f);
  EXPECT_EQ(to.last_hidden()[23], 4.0f);
  EXPECT_EQ(row(to.rows()[1].u, 3, 4, 16)[15], 5.0f);
  EXPECT_EQ(row(to.kv()[0].value, 1, 4, 8)[7], 6.0f);
}

TEST(OpenChunkTest, ReleasedRowsHaveNoMemoryAndTheOthersStay) {
  MemoryLayout layout = support::SmallLayout();
  layout.attention.head_dim = 4096;  // 2 MiB a head
  OpenChunk chunk(layout);
  const kernels::OpenKv& kv = chunk.kv()[0];
  const size_t floats = size_t{2} * 128 * 4096;
  std::fill_n(kv.key, floats, 1.0f);
  std::fill_n(kv.value, floats, 2.0f);
  std::fill_n(chunk.last_hidden(), layout.hidden, 3.0f);
  std::fill_n(chunk.conv_tail(2), layout.conv_tail_floats(), 4.0f);
  const uint64_t before = ResidentBytes();
  chunk.ReleaseRows(32);
  EXPECT_LT(ResidentBytes(), before - 5 * kMiB);  // of 8 MiB, three quarters
  const auto all = [](const float* from, size_t count, float value) {
    return std::all_of(from, from + count, [value](float x) { return x == value; });
  };
  for (size_t head = 0; head < 2; ++head) {
    const size_t first = head * 128 * 4096;
    EXPECT_TRUE(all(kv.key + first, size_t{32} * 4096, 1.0f)) << head;
    EXPECT_TRUE(all(kv.value + first, size_t{32} * 4096, 2.0f)) << head;
  }
  EXPECT_TRUE(all(chunk.last_hidden(), static_cast<size_t>(layout.hidden), 3.0f));
  EXPECT_TRUE(all(chunk.conv_tail(2), layout.conv_tail_floats(), 4.0f));
  std::fill_n(kv.key, floats, 5.0f);
  EXPECT_TRUE(all(kv.key, floats, 5.0f)) << "released rows can be written again";
}

// As sessions do: large chunks come and go, and each leaves something small behind.
TEST(OpenChunkTest, SessionsThatCameAndWentLeaveNoMemoryBehind) {
  if (support::kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer's shadow of memory is resident too";
  MemoryLayout layout = support::SmallLayout();
  layout.hidden = 1 << 20;  // 4 MiB each
  const size_t bytes = OpenChunk::Bytes(layout);
  std::vector<std::unique_ptr<std::string>> left;
  std::vector<std::unique_ptr<OpenChunk>> open;
  const uint64_t before = ResidentBytes();
  for (int session = 0; session < 200; ++session) {
    open.push_back(std::make_unique<OpenChunk>(layout));
    std::fill_n(open.back()->last_hidden(), layout.hidden, 1.0f);
    if (open.size() == 8) open.erase(open.begin());
    left.push_back(std::make_unique<std::string>(2000, 'x'));
  }
  EXPECT_GT(ResidentBytes(), before + 6 * bytes);
  EXPECT_LT(ResidentBytes(), before + 12 * bytes);
  open.clear();
  EXPECT_LT(ResidentBytes(), before + 4 * bytes);
}

}  // namespace
}  // namespace mneme::memory
