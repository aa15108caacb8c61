// Representatives against the pooling written out in double as the model's definition has it (W_o
// and W_v applied to every row), and the first level of the index against what it promises.
#include "kernels/represent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/gdn.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::RandomFloats;
using Doubles = std::vector<double>;

size_t Size(int value) { return static_cast<size_t>(value); }

struct RepresentCase {
  static constexpr int kLayers = 2;
  LinearShape shape;
  std::vector<float> weight[kLayers][3];  // key, value, output [G, K, K]
  std::vector<float> route_key[kLayers];  // [G, T, K]
  std::vector<PoolWeights> pool;
  std::vector<const float*> keys;
  std::vector<uint16_t> representatives;  // [layers, G, P, K]

  explicit RepresentCase(const LinearShape& s) : shape(s) {
    RandomFloats random(41);
    const int G = s.key_heads, K = s.key_dim;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (std::vector<float>& each : weight[layer])
        each = random.Many(G * K * K, 2.0f / std::sqrt(static_cast<float>(K)));
      route_key[layer] = random.Many(G * s.chunk_tokens * K, 2.0f);
      pool.push_back({weight[layer][0].data(), weight[layer][1].data(), weight[layer][2].data()});
      keys.push_back(route_key[layer].data());
    }
    representatives.assign(Size(kLayers * G * s.representatives() * K), 0x7e00);  // NaN
  }

  void Run(int first, int last, int threads = 1) {
    cpu::CpuStream stream(threads);
    RepresentArgs args;
    args.shape = shape;
    args.pool = pool;
    args.route_key = keys;
    args.first_window = first;
    args.last_window = last;
    args.representatives = representatives.data();
    ASSERT_TRUE(cpu::Represent(args, stream));
  }

  Doubles Expected(int layer, int g, int window) const {
    const int K = shape.key_dim, p = shape.window_tokens;
    const float* x = &route_key[layer][Size((g * shape.chunk_tokens + window * p) * K)];
    const auto map = [&](int which, const Doubles& rows) {
      Doubles out(rows.size(), 0.0);
      for (int i = 0; i < p; ++i) {
        for (int o = 0; o < K; ++o) {
          for (int d = 0; d < K; ++d)
            out[Size(i * K + o)] +=
                static_cast<double>(weight[layer][which][Size((g * K + o) * K + d)]) *
                rows[Size(i * K + d)];
        }
      }
      return out;
    };
    const Doubles rows(x, x + p * K);
    const Doubles a = map(0, rows), u = map(1, rows);
    Doubles attended(rows.size(), 0.0);
    for (int i = 0; i < p; ++i) {
      Doubles weights;
      double sum = 0.0;
      for (int j = 0; j < p; ++j) {
        double score = 0.0;
        for (int d = 0; d < K; ++d) score += a[Size(i * K + d)] * a[Size(j * K + d)];
        weights.push_back(std::exp(score / std::sqrt(K)));
        sum += weights.back();
      }
      for (int j = 0; j < p; ++j) {
        for (int d = 0; d < K; ++d)
          attended[Size(i * K + d)] += weights[Size(j)] / sum * u[Size(j * K + d)];
      }
    }
    const Doubles out = map(2, attended);
    Doubles mean(Size(K), 0.0);
    for (int i = 0; i < p; ++i) {
      for (int d = 0; d < K; ++d) mean[Size(d)] += out[Size(i * K + d)] / p;
    }
    return mean;
  }

  const uint16_t* At(int layer, int g, int window) const {
    return &representatives[Size(
        ((layer * shape.key_heads + g) * shape.representatives() + window) * shape.key_dim)];
  }
};

class RepresentTest : public ::testing::TestWithParam<LinearShape> {};

TEST_P(RepresentTest, EqualsTheDefinitionWithinOneRounding) {
  RepresentCase c(GetParam());
  c.Run(0, c.shape.representatives());
  for (int layer = 0; layer < 2; ++layer) {
    for (int g = 0; g < c.shape.key_heads; ++g) {
      for (int window = 0; window < c.shape.representatives(); window += 3) {
        const Doubles expected = c.Expected(layer, g, window);
        for (int d = 0; d < c.shape.key_dim; ++d) {
          const double value = static_cast<double>(F16ToF32(c.At(layer, g, window)[d]));
          // Half an f16 ulp, and 1e-5 for the sums in f32.
          ASSERT_NEAR(value, expected[Size(d)], std::abs(expected[Size(d)]) * 0x1p-11 + 2e-5);
        }
      }
    }
  }
}

TEST_P(RepresentTest, WindowsTakenOneByOneGiveTheSameBits) {
  RepresentCase whole(GetParam()), single(GetParam());
  whole.Run(0, whole.shape.representatives(), /*threads=*/2);
  for (int window = 0; window < single.shape.representatives(); ++window)
    single.Run(window, window + 1);
  EXPECT_EQ(whole.representatives, single.representatives);
}

TEST_P(RepresentTest, TouchesNoOtherWindow) {
  RepresentCase c(GetParam());
  c.Run(1, 2);
  EXPECT_EQ(c.At(1, 0, 0)[0], 0x7e00);
  EXPECT_NE(c.At(1, 0, 1)[0], 0x7e00);
  EXPECT_EQ(c.At(1, 0, 2)[0], 0x7e00);
}

TEST_P(RepresentTest, TheIndexBoundsEveryRepresentativeInF32) {
  RepresentCase c(GetParam());
  const int P = c.shape.representatives(), K = c.shape.key_dim, heads = 2 * c.shape.key_heads;
  c.Run(0, P);
  std::vector<int8_t> centroid(Size(heads * K));
  std::vector<float> scale(Size(heads)), radius(Size(heads));
  cpu::CpuStream stream(1);
  IndexArgs args;
  args.shape = c.shape;
  args.routed_layers = 2;
  args.representatives = c.representatives.data();
  args.centroid = centroid.data();
  args.centroid_scale = scale.data();
  args.radius = radius.data();
  ASSERT_TRUE(cpu::Index(args, stream));
  RandomFloats random(43);
  for (int head = 0; head < heads; ++head) {
    double farthest = 0.0;
    for (int b = 0; b < P; ++b) {
      const uint16_t* rep = c.At(head / c.shape.key_heads, head % c.shape.key_heads, b);
      double square = 0.0;
      std::vector<float> toward;  // the query for which the bound is tightest
      for (int d = 0; d < K; ++d) {
        const double distance =
            static_cast<double>(F16ToF32(rep[d])) -
            static_cast<double>(scale[Size(head)]) * centroid[Size(head * K + d)];
        square += distance * distance;
        toward.push_back(static_cast<float>(distance) * 37.0f);
      }
      farthest = std::max(farthest, std::sqrt(square));
      for (const std::vector<float>& query : {toward, random.Many(K, 5.0f)}) {
        float score = 0.0f, length = 0.0f;
        cpu::DotRowsF16(rep, 1, K, query.data(), &score);
        cpu::DotRows(query.data(), K, 1, K, query.data(), &length);
        const float bound =
            scale[Size(head)] * cpu::DotI8(&centroid[Size(head * K)], K, query.data()) +
            std::sqrt(length) * radius[Size(head)];
        ASSERT_LE(score, bound);
      }
    }
    // It holds them, and not much more.
    EXPECT_GE(static_cast<double>(radius[Size(head)]), farthest);
    EXPECT_LE(static_cast<double>(radius[Size(head)]), farthest * 1.001 + 1e-3);
  }
}

TEST(RepresentRangeTest, BeyondF16ItIsTheLargestF16) {
  RepresentCase c({.key_heads = 1,
                   .value_heads = 1,
                   .key_dim = 4,
                   .value_dim = 4,
                   .chunk_tokens = 64,
                   .window_tokens = 16});
  for (float& each : c.route_key[0]) each = 1e6f;
  c.Run(0, 4);
  for (int d = 0; d < 4; ++d) EXPECT_EQ(std::abs(F16ToF32(c.At(0, 0, 0)[d])), 65504.0f);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RepresentTest,
                         ::testing::Values(LinearShape{.key_heads = 1,
                                                       .value_heads = 1,
                                                       .key_dim = 2,
                                                       .value_dim = 1,
                                                       .chunk_tokens = 64,
                                                       .window_tokens = 16},
                                           LinearShape{.key_heads = 1,
                                                       .value_heads = 1,
                                                       .key_dim = 128,
                                                       .value_dim = 8,
                                                       .chunk_tokens = 256,
                                                       .window_tokens = 16},
                                           LinearShape{.key_heads = 2,
                                                       .value_heads = 2,
                                                       .key_dim = 18,
                                                       .value_dim = 10,
                                                       .chunk_tokens = 192,
                                                       .window_tokens = 24}));

// Windows of 16 (HLA-1.3B, and the adapters in training), 32 (the adapters in evaluation) and 64,
// in chunks from 256 to 1,024 tokens.
INSTANTIATE_TEST_SUITE_P(Published, RepresentTest,
                         ::testing::Values(LinearShape{.key_heads = 1,
                                                       .value_heads = 1,
                                                       .key_dim = 256,
                                                       .value_dim = 256,
                                                       .chunk_tokens = 256,
                                                       .window_tokens = 16},
                                           LinearShape{.key_heads = 2,
                                                       .value_heads = 2,
                                                       .key_dim = 64,
                                                       .value_dim = 128,
                                                       .chunk_tokens = 512,
                                                       .window_tokens = 32},
                                           LinearShape{.key_heads = 1,
                                                       .value_heads = 1,
                                                       .key_dim = 128,
                                                       .value_dim = 64,
                                                       .chunk_tokens = 1024,
                                                       .window_tokens = 64}));

}  // namespace
}  // namespace mneme::kernels
