// Stored bytes against the rounding written out: x / 2^e to the nearest f16, e from the largest
// magnitude, nothing rounded in between.
#include "kernels/page_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/affine_chunk.h"
#include "kernels/page_read.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::RandomFloats;

constexpr LinearShape kShape = {.key_heads = 2,
                                .value_heads = 4,
                                .key_dim = 18,
                                .value_dim = 10,
                                .chunk_tokens = 128,
                                .window_tokens = 16,
                                .pages_max = 4};
constexpr int K = 18, V = 10, kWidth = K + V;

struct Group {
  PageGroupHeader header;
  std::vector<std::byte> bytes;

  explicit Group(Dtype dtype)
      : header(MakePageGroupHeader(kShape, dtype, 5, 1, 1024)),
        bytes(PageGroupBytes(2, K, V, dtype), std::byte{0x5a}) {}

  Status Pack(const std::vector<float>& transition, int head, float log_gamma = -2.0f) {
    return cpu::PackPage({.a = transition.data(),
                          .b = transition.data() + K,
                          .a_stride = kWidth,
                          .b_stride = kWidth,
                          .log_gamma = log_gamma,
                          .head = head},
                         header, bytes.data());
  }
  void Finish() { std::memcpy(bytes.data(), &header, sizeof(header)); }

  template <typename T>
  T At(int head, int index) const {
    T value;
    std::memcpy(&value,
                bytes.data() + PageOffset(header, head) + static_cast<size_t>(index) * sizeof(T),
                sizeof(T));
    return value;
  }
};

// [K, K+V] numbers of magnitude up to `scale`, one of them exactly so large in A and in B.
std::vector<float> Numbers(float a_scale, float b_scale) {
  RandomFloats random(5);
  std::vector<float> x;
  for (int i = 0; i < K; ++i) {
    for (int d = 0; d < kWidth; ++d) x.push_back(random.Next(d < K ? a_scale : b_scale));
  }
  x[3] = a_scale;
  x[K + 2] = -b_scale;
  return x;
}

TEST(PageCodecTest, EveryNumberIsRoundedOnceFromItsF32) {
  for (const auto& [a_scale, b_scale] : std::vector<std::pair<float, float>>{
           {1.0f, 1.0f}, {0x1p-60f, 0x1p90f}, {3e-38f, 3e38f}, {1e-43f, 0.3f}}) {
    const std::vector<float> x = Numbers(a_scale, b_scale);
    Group group(Dtype::kF16);
    ASSERT_TRUE(group.Pack(x, 1));
    const int a_exponent = group.header.a_exponent[1], b_exponent = group.header.b_exponent[1];
    EXPECT_EQ(b_exponent, std::ilogb(b_scale) - 14);
    EXPECT_EQ(a_exponent, std::max(std::ilogb(a_scale) - 14, -126));
    for (int i = 0; i < K; ++i) {
      for (int d = 0; d < kWidth; ++d) {
        const double value = static_cast<double>(x[static_cast<size_t>(i * kWidth + d)]);
        const bool in_a = d < K;
        // The quotient is exact in double and in f32, so one conversion is one rounding.
        const double quotient = std::ldexp(value, -(in_a ? a_exponent : b_exponent));
        const uint16_t expected = F32ToF16(static_cast<float>(quotient));
        ASSERT_EQ(static_cast<double>(static_cast<float>(quotient)), quotient);
        const int index = in_a ? K * V + i * K + d : i * V + d - K;
        ASSERT_EQ(group.At<uint16_t>(1, index), expected) << i << "," << d;
        // Half an ulp of numbers near the largest, 2^-25 of the largest for the smallest.
        const double scale = static_cast<double>(in_a ? a_scale : b_scale);
        ASSERT_NEAR(
            std::ldexp(static_cast<double>(F16ToF32(expected)), in_a ? a_exponent : b_exponent),
            value, std::max(std::abs(value) * 0x1p-11, std::max(scale * 0x1p-38, 1e-45)));
      }
    }
  }
}

TEST(PageCodecTest, F32PagesAreTheNumbersThemselves) {
  const std::vector<float> x = Numbers(2.0f, 0.5f);
  Group group(Dtype::kF32);
  ASSERT_TRUE(group.Pack(x, 0));
  EXPECT_EQ(group.header.a_exponent[0], 0);
  EXPECT_EQ(group.At<float>(0, 0), x[K]);
  EXPECT_EQ(group.At<float>(0, K * V), x[0]);
  EXPECT_EQ(group.At<float>(0, K * V + K * K - 1),
            x[static_cast<size_t>((K - 1) * kWidth + K - 1)]);
}

TEST(PageCodecTest, PackingOneHeadLeavesTheOthersAlone) {
  Group group(Dtype::kF16);
  ASSERT_TRUE(group.Pack(Numbers(1.0f, 1.0f), 1));
  for (size_t i = sizeof(PageGroupHeader); i < PageOffset(group.header, 1); ++i)
    ASSERT_EQ(group.bytes[i], std::byte{0x5a});
}

TEST(PageCodecTest, AForgottenTransitionIsZeroAndSaysSo) {
  for (const float log_gamma : {-16.5f, -15.5f}) {
    Group group(Dtype::kF16);
    ASSERT_TRUE(group.Pack(Numbers(1e-7f, 1.0f), 0, log_gamma));
    const bool stored = log_gamma >= kLogGammaDrop;
    EXPECT_EQ(group.header.a_stored[0] != 0, stored);
    EXPECT_EQ(group.header.log_gamma[0], log_gamma);
    EXPECT_EQ(group.At<uint16_t>(0, K * V + 3) != 0, stored);
    EXPECT_EQ(PageOf(group.bytes.data(), group.header, 0).a != nullptr, stored);
  }
}

// Each channel decays to nothing, but in a token of its own: what the first erases from channel 1
// it writes to channel 0 after that one's decay, so half of a row comes through.
TEST(PageCodecTest, AKdaChunkWhoseChannelsDecayApartKeepsItsTransition) {
  LinearShape shape = kShape;
  shape.key_dim = shape.value_dim = 2;
  const AffineShape affine = {.rule = kKdaRule, .key_dim = 2, .value_dim = 2};
  std::vector<float> a(4), b(4);
  AffineWorkspace<float> workspace(2, 2);
  cpu::StartChunk<float>(affine, {a.data(), b.data()});
  const float half = std::sqrt(0.5f);
  const float k[2][2] = {{half, half}, {0, 0}}, decay[2][2] = {{-20, 0}, {0, -20}}, v[2] = {};
  for (const int t : {0, 1}) {
    ASSERT_TRUE(cpu::StepToken<float>({.shape = affine,
                                       .token = {.k = k[t], .v = v, .log_decay = decay[t]},
                                       .chunk = {a.data(), b.data()},
                                       .workspace = &workspace}));
  }
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
    PageGroupHeader header = MakePageGroupHeader(shape, dtype, 0, 0, 0);
    std::vector<std::byte> group(PageGroupBytes(2, 2, 2, dtype));
    ASSERT_TRUE(cpu::PackPage(
        {.a = a.data(), .b = b.data(), .a_stride = 2, .b_stride = 2, .log_gamma = -20, .head = 0},
        header, group.data()));
    const std::vector<float> q = {1, 0}, gate = {1};
    const int32_t row = 0;
    std::vector<float> carry = q, output(2), square(1), scratch(PageReadScratch(2, 2));
    cpu::ReadPage({.page = PageOf(group.data(), header, 0),
                   .key_dim = 2,
                   .value_dim = 2,
                   .count = 1,
                   .row = &row,
                   .gate = gate.data(),
                   .carry = carry.data(),
                   .output = output.data(),
                   .square = square.data(),
                   .scratch = scratch.data()});
    EXPECT_NEAR(carry[0], 0.0f, 1e-6f);
    EXPECT_NEAR(carry[1], -0.5f, 1e-3f);
  }
}

TEST(PageCodecTest, AllZerosPackToZerosWithExponentZero) {
  Group group(Dtype::kF16);
  ASSERT_TRUE(group.Pack(std::vector<float>(K * kWidth, 0.0f), 0));
  EXPECT_EQ(group.header.b_exponent[0], 0);
  EXPECT_EQ(group.At<uint16_t>(0, 7), 0);
}

TEST(PageCodecTest, RefusesWhatIsNotFiniteAndNamesThePlace) {
  std::vector<float> x = Numbers(1.0f, 1.0f);
  x[40] = std::numeric_limits<float>::infinity();
  Group group(Dtype::kF16);
  const Status status = group.Pack(x, 1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message(),
            "pack page: layer 5 key head 1 value head 1 of it: a number is not finite");
}

TEST(PageCodecTest, TheHeaderSaysWhatTheGroupIsAndIsCheckedWhenRead) {
  Group group(Dtype::kF16);
  ASSERT_TRUE(group.Pack(Numbers(1.0f, 4.0f), 0));
  ASSERT_TRUE(group.Pack(Numbers(1.0f, 4.0f), 1));
  group.Finish();
  const Result<PageGroupHeader> header = ReadPageGroupHeader(group.bytes.data(), kShape);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->layer, 5);
  EXPECT_EQ(header->key_head, 1);
  EXPECT_EQ(header->heads, 2);
  EXPECT_EQ(header->tokens, 128u);
  EXPECT_EQ(header->first_position, 1024u);
  const PageView page = PageOf(group.bytes.data(), *header, 1);
  EXPECT_EQ(page.b, group.bytes.data() + 128 + K * kWidth * 2);
  EXPECT_EQ(page.b_scale, 0x1p-12f);

  const auto refused = [&](size_t at, std::byte value) {
    std::vector<std::byte> bytes = group.bytes;
    bytes[at] = value;
    const Result<PageGroupHeader> read = ReadPageGroupHeader(bytes.data(), kShape);
    return !read && read.error().code() == ErrorCode::kCorruption;
  };
  EXPECT_TRUE(refused(0, std::byte{0}));   // magic
  EXPECT_TRUE(refused(4, std::byte{9}));   // version
  EXPECT_TRUE(refused(6, std::byte{3}));   // type
  EXPECT_TRUE(refused(7, std::byte{9}));   // heads
  EXPECT_TRUE(refused(12, std::byte{9}));  // K
  EXPECT_TRUE(refused(14, std::byte{9}));  // V
  EXPECT_TRUE(refused(20, std::byte{1}));  // transition
}

}  // namespace
}  // namespace mneme::kernels
