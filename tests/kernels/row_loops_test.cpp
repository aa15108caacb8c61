// The vector loops against the same sums in double, at widths that no vector divides, and the
// number conversions against the compiler's own, bit for bit.
#include "kernels/cpu/row_loops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dtype.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

using support::ExpectNear;
using support::RandomFloats;
using Doubles = std::vector<double>;

constexpr double kTolerance = 1e-5;

struct Size {
  int count;
  int width;
};

class RowLoopsTest : public ::testing::TestWithParam<Size> {
 protected:
  const int count_ = GetParam().count;
  const int width_ = GetParam().width;
  const int64_t stride_ = width_ + 3;
  RandomFloats random_{7};
  const std::vector<float> rows_ = random_.Many((count_ + 1) * stride_);
  const std::vector<float> x0_ = random_.Many(width_ + 1);
  const std::vector<float> x1_ = random_.Many(width_ + 1);
  const std::vector<float> w0_ = random_.Many(count_ + 1);
  const std::vector<float> w1_ = random_.Many(count_ + 1);

  float row(int j, int d) const { return rows_[static_cast<size_t>(j * stride_ + d)]; }

  Doubles Dots(const std::vector<float>& x) const {
    Doubles out(static_cast<size_t>(count_));
    for (int j = 0; j < count_; ++j) {
      for (int d = 0; d < width_; ++d)
        out[static_cast<size_t>(j)] +=
            static_cast<double>(row(j, d)) * static_cast<double>(x[static_cast<size_t>(d)]);
    }
    return out;
  }

  // x + sum_j w_j rows_j
  Doubles Sums(const std::vector<float>& x, const std::vector<float>& w) const {
    Doubles out(x.begin(), x.begin() + width_);
    for (int j = 0; j < count_; ++j) {
      for (int d = 0; d < width_; ++d)
        out[static_cast<size_t>(d)] +=
            static_cast<double>(row(j, d)) * static_cast<double>(w[static_cast<size_t>(j)]);
    }
    return out;
  }

  // The rows in f16 without gaps, and what they then are.
  std::vector<uint16_t> Halves(std::vector<float>* rounded) const {
    std::vector<uint16_t> halves;
    rounded->clear();
    for (int j = 0; j < count_; ++j) {
      for (int d = 0; d < width_; ++d) {
        halves.push_back(F32ToF16(row(j, d)));
        rounded->push_back(F16ToF32(halves.back()));
      }
    }
    return halves;
  }
};

TEST_P(RowLoopsTest, DotRowsIsTheSumOfProducts) {
  std::vector<float> out(static_cast<size_t>(count_)), out0 = out, out1 = out;
  DotRows(rows_.data(), stride_, count_, width_, x0_.data(), out.data());
  DotRowsTwice(rows_.data(), stride_, count_, width_, x0_.data(), x1_.data(), out0.data(),
               out1.data());
  ExpectNear(out, Dots(x0_), kTolerance);
  ExpectNear(out1, Dots(x1_), kTolerance);
  support::ExpectSameBits(out, out0);
}

TEST_P(RowLoopsTest, AddRowsAddsTheWeightedRows) {
  std::vector<float> sum(x0_.begin(), x0_.begin() + width_), sum0 = sum;
  std::vector<float> sum1(x1_.begin(), x1_.begin() + width_);
  AddRows(rows_.data(), stride_, count_, width_, w0_.data(), sum.data());
  AddRowsTwice(rows_.data(), stride_, count_, width_, w0_.data(), w1_.data(), sum0.data(),
               sum1.data());
  ExpectNear(sum, Sums(x0_, w0_), kTolerance);
  ExpectNear(sum0, Sums(x0_, w0_), kTolerance);
  ExpectNear(sum1, Sums(x1_, w1_), kTolerance);
}

TEST_P(RowLoopsTest, RowsInF16AreReadExactly) {
  std::vector<float> rounded;
  const std::vector<uint16_t> halves = Halves(&rounded);
  std::vector<float> out(static_cast<size_t>(count_)), same = out;
  DotRowsF16(halves.data(), count_, width_, x0_.data(), out.data());
  DotRows(rounded.data(), width_, count_, width_, x0_.data(), same.data());
  support::ExpectSameBits(out, same);
  std::vector<float> sum(static_cast<size_t>(width_)), same_sum = sum;
  AddRowsF16(halves.data(), count_, width_, w0_.data(), sum.data());
  AddRows(rounded.data(), width_, count_, width_, w0_.data(), same_sum.data());
  support::ExpectSameBits(sum, same_sum);
}

TEST_P(RowLoopsTest, DotI8IsTheSumOfProducts) {
  std::vector<int8_t> row8;
  double expected = 0.0;
  for (int d = 0; d < width_; ++d) {
    row8.push_back(static_cast<int8_t>(random_.Bits()));
    expected += row8.back() * static_cast<double>(x0_[static_cast<size_t>(d)]);
  }
  EXPECT_NEAR(static_cast<double>(DotI8(row8.data(), width_, x0_.data())), expected, 1e-2);
}

TEST_P(RowLoopsTest, DecayWeightsNeverExponentiateAPositiveNumber) {
  std::vector<float> c(static_cast<size_t>(count_)), out = c;
  float sum = 0.0f;
  for (float& each : c) each = sum -= 20.0f * std::abs(random_.Next());
  const float last = sum - 1.0f;
  Doubles expected;
  for (size_t j = 0; j < c.size(); ++j)
    expected.push_back(std::exp(static_cast<double>(last) - static_cast<double>(c[j])) *
                       static_cast<double>(w0_[j]));
  DecayWeights(c.data(), count_, last, w0_.data(), out.data());
  ExpectNear(out, expected, 1e-6);
}

TEST_P(RowLoopsTest, LogMeanExpAndSoftmaxSurviveLargeScores) {
  if (count_ == 0) return;
  for (const float level : {0.0f, 3e4f, -3e4f}) {
    std::vector<float> score(w0_.begin(), w0_.begin() + count_);
    for (float& each : score) each += level;
    double sum = 0.0;
    Doubles weight;
    for (const float each : score) {
      weight.push_back(std::exp(0.5 * static_cast<double>(each - level)));
      sum += weight.back();
    }
    for (double& each : weight) each /= sum;
    const double expected = 0.5 * static_cast<double>(level) + std::log(sum / count_);
    EXPECT_NEAR(static_cast<double>(LogMeanExp(score.data(), count_, 0.5f)), expected,
                1e-5 + 1e-6 * std::abs(expected));
    Softmax(score.data(), count_, 0.5f);
    ExpectNear(score, weight, level == 0.0f ? 1e-6 : 2e-3);  // the scores themselves were rounded
  }
}

TEST_P(RowLoopsTest, ConvSiluAndGateRowFollowTheirFormulas) {
  const std::vector<float> weight = random_.Many(4 * width_), a = random_.Many(width_, 3.0f),
                           b = random_.Many(width_, 40.0f);
  const float* taps[4] = {x0_.data(), x1_.data(), a.data(), b.data()};
  std::vector<float> out(static_cast<size_t>(width_)), gated = out;
  ConvSilu(weight.data(), taps, width_, out.data());
  GateRow(a.data(), 0.75f, x0_.data(), b.data(), width_, gated.data());
  const auto silu = [](double x) { return x / (1.0 + std::exp(-x)); };
  Doubles expected, expected_gated;
  for (size_t d = 0; d < static_cast<size_t>(width_); ++d) {
    double sum = 0.0;
    for (size_t tap = 0; tap < 4; ++tap)
      sum += static_cast<double>(weight[4 * d + tap]) * static_cast<double>(taps[tap][d]);
    expected.push_back(silu(sum));
    expected_gated.push_back(0.75 * static_cast<double>(a[d]) * static_cast<double>(x0_[d]) *
                             silu(static_cast<double>(b[d])));
  }
  ExpectNear(out, expected, kTolerance);
  ExpectNear(gated, expected_gated, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RowLoopsTest,
                         ::testing::Values(Size{0, 5}, Size{1, 1}, Size{2, 16}, Size{5, 18},
                                           Size{7, 63}, Size{16, 64}, Size{33, 128}, Size{9, 257}));

TEST(RowLoopsConversionTest, EveryF16NumberConvertsExactly) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  F16ToF32Row(halves.data(), 65536, floats.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = F16ToF32(halves[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(floats[i]));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST(RowLoopsConversionTest, RoundsToTheNearestF16TiesToEven) {
  RandomFloats random(3);
  std::vector<float> floats;
  for (int i = 0; i < 20001; ++i)
    floats.push_back(std::ldexp(random.Next(), static_cast<int>(random.Bits() % 44) - 27));
  for (int i = 0; i < 2048; ++i)  // exact ties, at normal and subnormal sizes
    floats.push_back(static_cast<float>(2 * i + 1) * 0x1p-25f);
  for (const float each : {0.0f, -0.0f, 65504.0f, 65519.0f, 65520.0f, 0x1p-25f, 0x1.8p-25f})
    floats.push_back(each);
  std::vector<uint16_t> halves(floats.size());
  F32ToF16Row(floats.data(), static_cast<int64_t>(floats.size()), 1.0f, halves.data());
  for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(halves[i], F32ToF16(floats[i])) << floats[i];
}

TEST(RowLoopsConversionTest, MagnitudeMaxSeesWhatIsNotFinite) {
  std::vector<float> x = {1.0f, -3.0f, 2.0f, 0.0f, 1.0f};
  EXPECT_EQ(MagnitudeMax(x.data(), 5), 3.0f);
  EXPECT_EQ(MagnitudeMax(x.data(), 0), 0.0f);
  x[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(MagnitudeMax(x.data(), 5)));
  x[4] = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(MagnitudeMax(x.data(), 5)));
}

}  // namespace
}  // namespace mneme::kernels::cpu
