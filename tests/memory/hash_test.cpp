// The hashes against published vectors and against each other: a digest that changed would orphan
// every stored byte, so the values are written out.
#include "memory/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace mneme::memory {
namespace {

TEST(HashTest, Sha256IsTheStandardsOne) {
  EXPECT_EQ(ShortHex(Sha256(AsBytes("abc"))), "ba7816bf8f01cfea");  // FIPS 180-2, B.1
}

TEST(HashTest, Crc32cIsTheStandardsOne) {
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xe3069283U);  // RFC 3720, B.4 polynomial
}

TEST(HashTest, ChainHashDependsOnEveryTurnBefore) {
  const ChainHash one = NextChainHash({}, AsBytes("one"));
  const ChainHash two = NextChainHash(one, AsBytes("two"));
  EXPECT_NE(two, NextChainHash({}, AsBytes("two")));
  EXPECT_EQ(two, NextChainHash(NextChainHash({}, AsBytes("one")), AsBytes("two")));
}

TEST(HashTest, NodeKeyTellsEveryPartFromEveryOther) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  const NodeKey key = NodeKeyOf(AsBytes("id"), "tenant", {}, tokens);
  EXPECT_EQ(key, NodeKeyOf(AsBytes("id"), "tenant", {}, tokens));
  EXPECT_NE(key, NodeKeyOf(AsBytes("idt"), "enant", {}, tokens));
  EXPECT_NE(key, NodeKeyOf(AsBytes("id"), "tenant", key, tokens));
  EXPECT_NE(key, NodeKeyOf(AsBytes("id"), "tenant", {}, std::span(tokens).first(2)));
  EXPECT_FALSE(key.empty());
}

TEST(HashTest, ChecksumWithoutItselfIgnoresOnlyItsOwnPlace) {
  std::vector<std::byte> bytes(100, std::byte{7});
  const Checksum128 before = Xxh3Without(bytes, 16);
  bytes[16] = bytes[31] = std::byte{9};
  EXPECT_EQ(Xxh3Without(bytes, 16), before);
  bytes[32] = std::byte{9};
  EXPECT_NE(Xxh3Without(bytes, 16), before);
  bytes[32] = std::byte{7};
  bytes[15] = std::byte{9};
  EXPECT_NE(Xxh3Without(bytes, 16), before);

  std::vector<std::byte> zeroed(100, std::byte{7});
  for (size_t i = 0; i < 16; ++i) zeroed[i] = std::byte{0};
  EXPECT_EQ(Xxh3Without(zeroed, 0), Xxh3(zeroed));
}

}  // namespace
}  // namespace mneme::memory
