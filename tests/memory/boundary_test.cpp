// The boundary record: what is encoded comes back, and bytes of another size are refused.
#include "memory/boundary.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/layouts.h"

namespace mneme::memory {
namespace {

Boundary Counting(const MemoryLayout& layout) {
  Boundary boundary;
  boundary.conv_tails.resize(layout.linear_layers.size() * layout.conv_tail_floats());
  boundary.last_hidden.resize(static_cast<size_t>(layout.hidden));
  if (layout.folds()) boundary.folded.resize(layout.linear_layers.size() * layout.folded_floats());
  float next = 0.5f;
  for (auto* part : {&boundary.conv_tails, &boundary.last_hidden, &boundary.folded})
    for (float& value : *part) value = next++;
  return boundary;
}

TEST(BoundaryTest, ComesBackAsItWas) {
  for (const Reader reader : {Reader::kHla, Reader::kNative}) {
    const MemoryLayout layout = support::SmallLayout(reader);
    const Boundary written = Counting(layout);
    const std::vector<std::byte> bytes = written.Encode();
    EXPECT_EQ(bytes.size(), Boundary::Bytes(layout));
    const auto read = Boundary::Decode(layout, bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->conv_tails, written.conv_tails);
    EXPECT_EQ(read->last_hidden, written.last_hidden);
    EXPECT_EQ(read->folded, written.folded);
  }
}

TEST(BoundaryTest, HasNoTailsWithoutConvolutions) {
  MemoryLayout layout = support::SmallLayout(Reader::kNative);
  const size_t with = Boundary::Bytes(layout);
  layout.linear.conv_taps = 0;
  const Boundary written = Counting(layout);
  EXPECT_TRUE(written.conv_tails.empty());
  const std::vector<std::byte> bytes = written.Encode();
  EXPECT_EQ(bytes.size(), Boundary::Bytes(layout));
  EXPECT_LT(bytes.size(), with);
  const auto read = Boundary::Decode(layout, bytes);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->conv_tails.empty());
  EXPECT_EQ(read->folded, written.folded);
}

TEST(BoundaryTest, RefusesBytesOfAnotherSize) {
  const MemoryLayout layout = support::SmallLayout();
  std::vector<std::byte> bytes = Counting(layout).Encode();
  bytes.pop_back();
  const auto read = Boundary::Decode(layout, bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorruption);
}

}  // namespace
}  // namespace mneme::memory
