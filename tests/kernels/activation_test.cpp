// exp, sigmoid and SiLU against the standard library in double, over the whole range of f32, and
// against themselves at every place of an array.
#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/dense_reference.h"
#include "tests/support/near.h"

namespace mneme::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Range(float from, float to, int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i)
    x.push_back(from + (to - from) * static_cast<float>(i) / static_cast<float>(count - 1));
  return x;
}

// Relative, down to the smallest normal number.
void ExpectRelative(const std::vector<float>& x, const std::vector<float>& y,
                    double (*definition)(double), double tolerance) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = definition(static_cast<double>(x[i]));
    ASSERT_NEAR(static_cast<double>(y[i]), expected, tolerance * std::abs(expected) + 1.2e-38)
        << "at " << x[i];
  }
}

TEST(ActivationTest, ExpIsWithinTwoUnitsInTheLastPlace) {
  const std::vector<float> x = Range(-104.0f, 88.7f, 100'003);
  std::vector<float> y(x.size());
  Exp(x.data(), static_cast<int64_t>(x.size()), 0.0f, y.data());
  ExpectRelative(
      x, y, [](double v) { return std::exp(v); }, 2.4e-7);
}

TEST(ActivationTest, SigmoidIsNearItsDefinitionEverywhere) {
  const std::vector<float> x = Range(-87.0f, 87.0f, 100'003);
  std::vector<float> y(x.size());
  Sigmoid(x.data(), static_cast<int64_t>(x.size()), y.data());
  ExpectRelative(x, y, support::SigmoidOf, 4e-7);
}

TEST(ActivationTest, SiluIsNearItsDefinitionEverywhere) {
  const std::vector<float> x = Range(-80.0f, 200.0f, 100'003);
  std::vector<float> y(x.size());
  Silu(x.data(), static_cast<int64_t>(x.size()), y.data());
  ExpectRelative(x, y, support::SiluOf, 5e-7);
}

TEST(ActivationTest, KeepsNanAndTheEndsOfTheRange) {
  const std::vector<float> x = {kNan, kInfinity, -kInfinity, 1000.0f, -1000.0f, 0.0f};
  std::vector<float> y(x.size());
  Exp(x.data(), 6, 0.0f, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(y[5], 1.0f);
  Sigmoid(x.data(), 6, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(y[5], 0.5f);
}

TEST(ActivationTest, AnElementHasTheSameBitsAtEveryPlace) {
  const float value = 1.2345f;
  float alone = 0;
  Silu(&value, 1, &alone);
  for (int64_t size = 1; size <= 40; ++size) {
    const std::vector<float> x(static_cast<size_t>(size), value);
    std::vector<float> y(x.size());
    Silu(x.data(), size, y.data());
    support::ExpectSameBits(y, std::vector<float>(x.size(), alone));
  }
}

TEST(ActivationTest, SiluTimesIsTheProductAndMayWriteOverEither) {
  for (const int64_t size : {1, 7, 16, 33}) {
    const std::vector<float> x = Range(-5.0f, 5.0f, static_cast<int>(size) + 1);
    const std::vector<float> factor = Range(2.0f, -3.0f, static_cast<int>(size) + 1);
    std::vector<float> silu(x.size());
    Silu(x.data(), size, silu.data());
    std::vector<float> over_x = x;
    std::vector<float> over_factor = factor;
    SiluTimes(over_x.data(), factor.data(), size, over_x.data());
    SiluTimes(x.data(), over_factor.data(), size, over_factor.data());
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
      ASSERT_EQ(over_x[i], silu[i] * factor[i]);
      ASSERT_EQ(over_factor[i], silu[i] * factor[i]);
    }
    EXPECT_EQ(over_x[static_cast<size_t>(size)], x.back()) << "wrote past the end";
  }
}

TEST(ActivationTest, ExpSubtractsTheShiftFirst) {
  const std::vector<float> x = {3.0f, 2.0f};
  std::vector<float> y(2);
  Exp(x.data(), 2, 3.0f, y.data());
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_NEAR(y[1], std::exp(-1.0), 1e-7);
}

}  // namespace
}  // namespace mneme::kernels::cpu
