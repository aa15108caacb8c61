// Sealed values: any changed bit is noticed, and a value is only good under its own key.
#include "memory/page_value.h"

#include <gtest/gtest.h>

#include "tests/support/store_case.h"

namespace mneme::memory {
namespace {

TEST(PageValueTest, AnyChangedByteOfAGroupIsNoticed) {
  const PageKey key = support::CaseGroupKey(support::CaseNodeKey("a", 0), 1, 1);
  std::vector<std::byte> group = support::MakeGroup(key, 4);
  ASSERT_TRUE(SealValue(key, group));
  ASSERT_TRUE(CheckValue(key, group));
  for (size_t at = 0; at < group.size(); ++at) {
    group[at] ^= std::byte{0x10};
    const Status checked = CheckValue(key, group);
    ASSERT_FALSE(checked) << "byte " << at;
    EXPECT_EQ(checked.error().code(), ErrorCode::kCorruption);
    group[at] ^= std::byte{0x10};
  }
}

TEST(PageValueTest, AValueIsBadUnderAnotherLayerOrHead) {
  const PageKey key = support::CaseGroupKey(support::CaseNodeKey("a", 0), 1, 1);
  std::vector<std::byte> group = support::MakeGroup(key, 4);
  ASSERT_TRUE(SealValue(key, group));
  PageKey other = key;
  other.layer = 0;
  EXPECT_FALSE(CheckValue(other, group));
  other = key;
  other.kind = ValueKind::kKeyValue;
  EXPECT_FALSE(CheckValue(other, group));
}

TEST(PageValueTest, HostileSizesAreRefused) {
  const PageKey key = support::CaseGroupKey(support::CaseNodeKey("a", 0), 0, 0);
  std::vector<std::byte> group = support::MakeGroup(key, 4);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{127}, group.size() - 1})
    EXPECT_FALSE(CheckValue(key, std::span(group).first(bytes))) << bytes;
  group[7] = std::byte{255};  // heads
  EXPECT_FALSE(CheckValue(key, group));
}

TEST(PageValueTest, AGroupIsAsLongAsItsTransitionNeeds) {
  const PageKey key = support::CaseGroupKey(support::CaseNodeKey("a", 0), 0, 0);
  std::vector<std::byte> group = support::MakeGroup(key, 4);
  constexpr size_t kTransitionAt = 20;
  group[kTransitionAt] = std::byte{static_cast<uint8_t>(kernels::TransitionKind::kScalar)};
  EXPECT_FALSE(SealValue(key, group)) << "still with a dense A";
  group.resize(
      kernels::PageGroupBytes(2, 4, 4, kernels::Dtype::kF16, kernels::TransitionKind::kScalar));
  ASSERT_TRUE(SealValue(key, group));
  EXPECT_TRUE(CheckValue(key, group));
  group[kTransitionAt] = std::byte{4};  // no kind
  EXPECT_FALSE(SealValue(key, group));
}

TEST(PageValueTest, TailKeysNameTheirSessionAndNoChunkDoes) {
  EXPECT_EQ(TailSessionOf(TailKeyOf({0x0102030405060708})).value, 0x0102030405060708U);
  EXPECT_EQ(TailSessionOf(support::CaseNodeKey("a", 0)).value, 0U);
}

}  // namespace
}  // namespace mneme::memory
