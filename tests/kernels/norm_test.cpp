// Both norms against their definition in double.
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include "tests/support/dense_reference.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

constexpr double kTolerance = 2e-6;

TEST(NormTest, EqualsTheDefinition) {
  support::RandomFloats random(4);
  for (const int64_t size : {1, 15, 16, 33, 384, 4096}) {
    const std::vector<float> x = random.Many(size, 3.0f);
    const std::vector<float> weight = random.Many(size);
    std::vector<float> out(x.size());
    NormZeroCentred(x.data(), weight.data(), size, 1e-6f, out.data());
    const auto expected = support::ZeroCentredNormOf(support::ToDoubles(x), weight, 1e-6);
    support::ExpectNear(out, expected, kTolerance);

    std::vector<float> one_less = weight;
    for (float& each : one_less) each -= 1.0f;
    NormPlain(x.data(), weight.data(), size, 1e-6f, out.data());
    const auto plain = support::ZeroCentredNormOf(support::ToDoubles(x), one_less, 1e-6);
    support::ExpectNear(out, plain, kTolerance);
  }
}

TEST(NormTest, AddsEpsilonToTheMeanAndMayWriteInPlace) {
  std::vector<float> x = {0.003f, -0.004f};
  const std::vector<float> weight = {0.0f, 1.0f};
  NormZeroCentred(x.data(), weight.data(), 2, 1e-4f, x.data());
  // mean square 1.25e-5
  EXPECT_NEAR(x[0], 0.003 / std::sqrt(1.125e-4), 1e-6);
  EXPECT_NEAR(x[1], -0.008 / std::sqrt(1.125e-4), 1e-6);
}

TEST(NormTest, ARowOfZerosStaysZero) {
  std::vector<float> x(20, 0.0f);
  const std::vector<float> weight(20, 1.0f);
  NormPlain(x.data(), weight.data(), 20, 1e-6f, x.data());
  EXPECT_EQ(x, std::vector<float>(20, 0.0f));
}

}  // namespace
}  // namespace mneme::kernels::cpu
