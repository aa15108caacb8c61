// The bytes of a page group's header, field by field, against docs/formats.md: files of this
// version must stay readable, so no field may move.
#include "kernels/page_group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace mneme::kernels {
namespace {

uint64_t Number(const std::vector<uint8_t>& bytes, size_t offset, size_t count) {
  uint64_t number = 0;
  for (size_t at = count; at-- > 0;) number = number << 8 | bytes[offset + at];
  return number;
}

TEST(PageGroupTest, EveryFieldLiesWhereItAlwaysLay) {
  PageGroupHeader header;
  header.heads = 3;
  header.layer = 0x0102;
  header.key_head = 0x0304;
  header.key_dim = 0x0506;
  header.value_dim = 0x0708;
  header.tokens = 0x090a0b0c;
  header.transition = TransitionKind::kDiagonal;
  header.first_position = 0x1112131415161718;
  header.b_exponent[1] = -2;
  header.a_exponent[7] = 5;
  header.log_gamma[2] = -1.5f;
  header.a_stored[6] = 1;
  header.checksum[0] = 0x2122232425262728;
  header.checksum[1] = 0x3132333435363738;
  std::vector<uint8_t> bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  EXPECT_EQ(bytes.size(), 128u);
  EXPECT_EQ(std::string(bytes.begin(), bytes.begin() + 4), "MNPG");
  EXPECT_EQ(Number(bytes, 4, 2), 1u);
  EXPECT_EQ(Number(bytes, 7, 1), 3u);
  EXPECT_EQ(Number(bytes, 8, 2), 0x0102u);
  EXPECT_EQ(Number(bytes, 10, 2), 0x0304u);
  EXPECT_EQ(Number(bytes, 12, 2), 0x0506u);
  EXPECT_EQ(Number(bytes, 14, 2), 0x0708u);
  EXPECT_EQ(Number(bytes, 16, 4), 0x090a0b0cu);
  EXPECT_EQ(Number(bytes, 20, 4), 3u);
  EXPECT_EQ(Number(bytes, 24, 8), 0x1112131415161718u);
  EXPECT_EQ(Number(bytes, 34, 2), 0xfffeu);
  EXPECT_EQ(Number(bytes, 62, 2), 5u);
  EXPECT_EQ(Number(bytes, 72, 4), 0xbfc00000u);
  EXPECT_EQ(Number(bytes, 102, 1), 1u);
  EXPECT_EQ(Number(bytes, 112, 8), 0x2122232425262728u);
  EXPECT_EQ(Number(bytes, 120, 8), 0x3132333435363738u);
}

TEST(PageGroupTest, SizesAreOfBAndAOfEveryHead) {
  EXPECT_EQ(PageBytes(128, 128, Dtype::kF16), 65'536u);
  EXPECT_EQ(PageBytes(18, 10, Dtype::kF32), 18u * 28u * 4u);
  EXPECT_EQ(PageGroupBytes(2, 128, 128, Dtype::kF16), 128u + 131'072u);
  // B in the page's type and no more of A than its kind needs, in f32.
  EXPECT_EQ(PageBytes(128, 64, Dtype::kF16, TransitionKind::kIdentity), 16'384u);
  EXPECT_EQ(PageBytes(128, 64, Dtype::kF16, TransitionKind::kScalar), 16'384u + 4u);
  EXPECT_EQ(PageBytes(128, 64, Dtype::kF16, TransitionKind::kDiagonal), 16'384u + 512u);
  EXPECT_EQ(PageBytes(128, 64, Dtype::kF16, TransitionKind::kDense), 16'384u + 32'768u);
  EXPECT_EQ(PageBytes(3, 5, Dtype::kF32, TransitionKind::kDiagonal), 72u);
}

}  // namespace
}  // namespace mneme::kernels
