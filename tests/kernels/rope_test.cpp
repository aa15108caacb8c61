// Rotation against complex multiplication in double, and its two properties: lengths stay, and a
// dot product of two turned heads depends on their distance alone.
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

std::vector<float> Turned(std::vector<float> head, int rotary, double theta, int64_t position) {
  const int pairs = rotary / 2;
  std::vector<double> frequency(static_cast<size_t>(pairs));
  std::vector<float> cosine(static_cast<size_t>(pairs));
  std::vector<float> sine(static_cast<size_t>(pairs));
  RotaryFrequencies(rotary, theta, frequency.data());
  RotaryAngles(frequency.data(), pairs, position, cosine.data(), sine.data());
  Rotate(cosine.data(), sine.data(), pairs, head.data());
  return head;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(RopeTest, TurnsPairsOfTheTwoHalvesAndLeavesTheRest) {
  support::RandomFloats random(1);
  const int rotary = 6;
  for (const int64_t position : {0, 1, 1000, 16'000'000}) {
    const std::vector<float> head = random.Many(18);
    const std::vector<float> turned = Turned(head, rotary, 1e7, position);
    for (size_t i = 0; i < 3; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(1e7, -2.0 * static_cast<double>(i) / rotary);
      const auto expected = std::complex<double>(head[i], head[i + 3]) * std::polar(1.0, angle);
      EXPECT_NEAR(turned[i], expected.real(), 4e-7);
      EXPECT_NEAR(turned[i + 3], expected.imag(), 4e-7);
    }
    for (size_t i = 6; i < 18; ++i) EXPECT_EQ(turned[i], head[i]);
  }
}

TEST(RopeTest, DotProductsDependOnTheDistanceAlone) {
  support::RandomFloats random(2);
  const std::vector<float> q = random.Many(64);
  const std::vector<float> k = random.Many(64);
  const double near = Dot(Turned(q, 64, 1e7, 120), Turned(k, 64, 1e7, 20));
  const double far = Dot(Turned(q, 64, 1e7, 5'000'100), Turned(k, 64, 1e7, 5'000'000));
  EXPECT_NEAR(near, far, 1e-5);
  EXPECT_GT(std::abs(near - Dot(q, k)), 1e-2);
}

}  // namespace
}  // namespace mneme::kernels::cpu
