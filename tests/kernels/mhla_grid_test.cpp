// MHLA over grids against the sum over all pairs of tokens in double, which knows no block sums: to
// 1e-10 in double, to 1e-4 in float, on grids of one to three axes where nothing divides. Then the
// matrices that make it plain linear attention, and the mixing matrices themselves.
#include "kernels/mhla_grid.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <ostream>
#include <string>

#include "kernels/cpu/cpu_stream.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::RandomFloats;

constexpr double kEpsilon = 1e-6;

struct Case {
  std::string name;
  MhlaGridShape shape;
  int grids;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// What a call reads, in float, so that float and double compute from the same numbers.
struct Inputs {
  std::vector<float> q, k, v, plain_q, plain_k, mixing;
};

Inputs InputsOf(const Case& c, uint64_t seed) {
  RandomFloats random(seed);
  const int64_t rows = c.grids * c.shape.grid.tokens() * c.shape.heads;
  const int64_t blocks = c.shape.grid.blocks();
  Inputs inputs;
  const auto features = [&] {
    std::vector<float> x = random.Many(rows * c.shape.key_dim);
    MapFeatures<float>(x, 1e-6f, x.data());
    return x;
  };
  inputs.plain_q = features();
  inputs.plain_k = features();
  // As after a rotation: of any sign.
  inputs.q = random.Many(rows * c.shape.key_dim);
  inputs.k = random.Many(rows * c.shape.key_dim);
  inputs.v = random.Many(rows * c.shape.value_dim);
  inputs.mixing = random.Many(blocks * blocks);
  for (float& each : inputs.mixing) each = std::abs(each);
  return inputs;
}

// The block of a token, and its place in it, from its coordinates.
struct Place {
  int64_t block = 0, place = 0;
};
Place PlaceOf(const TokenGrid& grid, int64_t token) {
  std::array<int64_t, 3> at = {token / (int64_t{grid.size[1]} * grid.size[2]),
                               token / grid.size[2] % grid.size[1], token % grid.size[2]};
  Place place;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t size = grid.size[axis], side = grid.block[axis];
    const int64_t own = std::min(side, size - at[axis] / side * side);
    place.block = place.block * ((size + side - 1) / side) + at[axis] / side;
    place.place = place.place * own + at[axis] % side;
  }
  return place;
}

// One token's output by the definition, as sums over pairs of tokens.
class Definition {
 public:
  Definition(const Case& c, const Inputs& inputs, GridNormalizer normalizer)
      : shape_(c.shape), inputs_(inputs), normalizer_(normalizer) {}

  std::vector<double> OutputOf(int grid, int head, int64_t t) const {
    const TokenGrid& tokens = shape_.grid;
    const Place at = PlaceOf(tokens, t);
    std::vector<double> out(static_cast<size_t>(shape_.value_dim));
    double norm = 0;
    for (int64_t u = 0; u < tokens.tokens(); ++u) {
      const double m = Weight(at.block, PlaceOf(tokens, u).block);
      const double score = m * Dot(inputs_.q, inputs_.k, Row(grid, head, t), Row(grid, head, u));
      for (int d = 0; d < shape_.value_dim; ++d)
        out[static_cast<size_t>(d)] +=
            score * static_cast<double>(
                        inputs_.v[static_cast<size_t>(Row(grid, head, u) * shape_.value_dim + d)]);
      norm += m * Dot(inputs_.plain_q, inputs_.plain_k, Row(grid, head, Reader(t, at, u)),
                      Row(grid, head, u));
    }
    if (normalizer_ == GridNormalizer::kNone) return out;
    for (double& each : out) each /= norm + kEpsilon;
    return out;
  }

 private:
  int64_t Row(int grid, int head, int64_t t) const {
    return (grid * shape_.grid.tokens() + t) * shape_.heads + head;
  }
  double Weight(int64_t i, int64_t j) const {
    return static_cast<double>(inputs_.mixing[static_cast<size_t>(i * shape_.grid.blocks() + j)]);
  }
  // The token whose query weighs u in the normaliser: t, or the one at t's place of u's block.
  int64_t Reader(int64_t t, const Place& at, int64_t u) const {
    if (normalizer_ != GridNormalizer::kOfPlace) return t;
    for (int64_t other = 0; other < shape_.grid.tokens(); ++other) {
      const Place place = PlaceOf(shape_.grid, other);
      if (place.block == PlaceOf(shape_.grid, u).block && place.place == at.place) return other;
    }
    ADD_FAILURE() << "no such place";
    return t;
  }
  double Dot(const std::vector<float>& a, const std::vector<float>& b, int64_t row_a,
             int64_t row_b) const {
    double sum = 0;
    for (int d = 0; d < shape_.key_dim; ++d)
      sum += static_cast<double>(a[static_cast<size_t>(row_a * shape_.key_dim + d)]) *
             static_cast<double>(b[static_cast<size_t>(row_b * shape_.key_dim + d)]);
    return sum;
  }

  const MhlaGridShape& shape_;
  const Inputs& inputs_;
  GridNormalizer normalizer_;
};

template <typename Real>
std::vector<Real> Cast(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

template <typename Real>
std::vector<Real> RunGrid(const Case& c, const Inputs& inputs, GridNormalizer normalizer,
                          int threads = 2) {
  const auto q = Cast<Real>(inputs.q), k = Cast<Real>(inputs.k), v = Cast<Real>(inputs.v);
  const auto plain_q = Cast<Real>(inputs.plain_q), plain_k = Cast<Real>(inputs.plain_k);
  const auto mixing = Cast<Real>(inputs.mixing);
  std::vector<Real> out(v.size(), std::numeric_limits<Real>::quiet_NaN());
  MhlaGridWorkspace<Real> workspace(c.shape);
  MhlaGridArgs<Real> args;
  args.shape = c.shape;
  args.grids = c.grids;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.mixing = mixing.data();
  args.normalizer = normalizer;
  args.epsilon = static_cast<Real>(kEpsilon);
  args.plain_q = plain_q.data();
  args.plain_k = plain_k.data();
  args.out = out.data();
  args.workspace = &workspace;
  cpu::CpuStream stream(threads);
  const Status status = cpu::MhlaGrid(args, stream);
  EXPECT_TRUE(status) << status.error().message();
  return out;
}

template <typename Real>
void ExpectDefinition(const Case& c, const Inputs& inputs, GridNormalizer normalizer,
                      double tolerance) {
  const std::vector<Real> out = RunGrid<Real>(c, inputs, normalizer);
  const Definition definition(c, inputs, normalizer);
  for (int grid = 0; grid < c.grids; ++grid) {
    for (int head = 0; head < c.shape.heads; ++head) {
      for (int64_t t = 0; t < c.shape.grid.tokens(); ++t) {
        const std::vector<double> expected = definition.OutputOf(grid, head, t);
        double scale = 1;
        for (const double each : expected) scale = std::max(scale, std::abs(each));
        const int64_t row = (grid * c.shape.grid.tokens() + t) * c.shape.heads + head;
        for (int d = 0; d < c.shape.value_dim; ++d)
          ASSERT_NEAR(static_cast<double>(out[static_cast<size_t>(row * c.shape.value_dim + d)]),
                      expected[static_cast<size_t>(d)], tolerance * scale)
              << "grid " << grid << ", head " << head << ", token " << t << ", number " << d;
      }
    }
  }
}

class MhlaGridTest : public ::testing::TestWithParam<Case> {};

TEST_P(MhlaGridTest, EqualsTheSumOverPairsWithoutANormaliser) {
  const Inputs inputs = InputsOf(GetParam(), 1);
  ExpectDefinition<double>(GetParam(), inputs, GridNormalizer::kNone, 1e-10);
  ExpectDefinition<float>(GetParam(), inputs, GridNormalizer::kNone, 1e-4);
}

TEST_P(MhlaGridTest, EqualsTheSumOverPairsWithTheNormaliserOfQueries) {
  const Inputs inputs = InputsOf(GetParam(), 2);
  ExpectDefinition<double>(GetParam(), inputs, GridNormalizer::kOfQuery, 1e-10);
  ExpectDefinition<float>(GetParam(), inputs, GridNormalizer::kOfQuery, 1e-4);
}

TEST_P(MhlaGridTest, BitsDoNotDependOnThreads) {
  const Inputs inputs = InputsOf(GetParam(), 3);
  const auto one = RunGrid<float>(GetParam(), inputs, GridNormalizer::kOfQuery, 1);
  EXPECT_EQ(RunGrid<float>(GetParam(), inputs, GridNormalizer::kOfQuery, 3), one);
}

// A matrix of ones sees no blocks: it gives what one block of all tokens gives.
TEST_P(MhlaGridTest, AMatrixOfOnesIsPlainLinearAttention) {
  Case one_block = GetParam();
  one_block.shape.grid.block = one_block.shape.grid.size;
  Inputs inputs = InputsOf(GetParam(), 4);
  std::fill(inputs.mixing.begin(), inputs.mixing.end(), 1.0f);
  for (const GridNormalizer normalizer : {GridNormalizer::kNone, GridNormalizer::kOfQuery}) {
    const auto ones = RunGrid<double>(GetParam(), inputs, normalizer);
    const auto plain = RunGrid<double>(one_block, inputs, normalizer);
    for (size_t i = 0; i < plain.size(); ++i)
      ASSERT_NEAR(ones[i], plain[i], 1e-10 * std::max(1.0, std::abs(plain[i]))) << "at " << i;
  }
}

Case CaseOf(std::string name, std::array<int, 3> size, std::array<int, 3> block, int heads,
            int key_dim, int value_dim, int grids = 1) {
  return {std::move(name), {{size, block}, heads, key_dim, value_dim}, grids};
}

INSTANTIATE_TEST_SUITE_P(Shapes, MhlaGridTest,
                         ::testing::Values(CaseOf("Smallest", {1, 1, 1}, {1, 1, 1}, 1, 1, 1),
                                           CaseOf("Line", {1, 1, 131}, {1, 1, 64}, 2, 5, 3, 2),
                                           CaseOf("LineOfOneBlock", {1, 1, 70}, {1, 1, 100}, 3, 8,
                                                  7),
                                           CaseOf("Image", {1, 14, 14}, {1, 7, 7}, 2, 16, 16),
                                           CaseOf("OddImage", {1, 13, 11}, {1, 4, 3}, 3, 17, 33, 2),
                                           CaseOf("Video", {3, 10, 10}, {1, 2, 5}, 2, 8, 12),
                                           CaseOf("OddVideo", {5, 7, 9}, {2, 3, 4}, 2, 9, 6, 2)),
                         [](const auto& test) { return test.param.name; });

// The released layers' own normaliser, where blocks are of one size.
TEST(MhlaGridPlaceTest, EqualsTheReleasedNormaliser) {
  for (const Case& c : {CaseOf("Image", {1, 6, 10}, {1, 3, 5}, 2, 7, 5, 2),
                        CaseOf("Video", {4, 6, 4}, {2, 2, 4}, 2, 6, 9)}) {
    const Inputs inputs = InputsOf(c, 5);
    ExpectDefinition<double>(c, inputs, GridNormalizer::kOfPlace, 1e-10);
    ExpectDefinition<float>(c, inputs, GridNormalizer::kOfPlace, 1e-4);
    EXPECT_NE(RunGrid<double>(c, inputs, GridNormalizer::kOfPlace),
              RunGrid<double>(c, inputs, GridNormalizer::kOfQuery));
  }
}

// Larger than the heads that fit together, so that runs of heads are cut.
TEST(MhlaGridHeadsTest, HeadsAreTakenInRuns) {
  const Case c = CaseOf("Wide", {1, 1, 96}, {1, 1, 1}, 3, 64, 128);
  ASSERT_EQ(MhlaGridWorkspace<float>(c.shape).heads_at_once, 1);
  ExpectDefinition<float>(c, InputsOf(c, 6), GridNormalizer::kOfQuery, 1e-4);
}

std::vector<double> StartOf(const TokenGrid& grid, const MixingStartOptions& options) {
  const auto blocks = static_cast<size_t>(grid.blocks());
  std::vector<double> mixing(blocks * blocks);
  const Status status = StartMixing<double>(grid, options, mixing);
  EXPECT_TRUE(status) << status.error().message();
  return mixing;
}

// Three axes of 2, 3 and 2 blocks, the last ones smaller.
constexpr TokenGrid kGrid = {{4, 8, 5}, {2, 3, 4}};

TEST(MhlaMixingTest, StartsAreTheFunctionsOfDistanceWithColumnsThatSumToOne) {
  const double largest = std::sqrt(1.0 + 4.0 + 1.0);
  const auto weight = [&](MixingStart start, double d) {
    switch (start) {
      case MixingStart::kLinear:
        return 1 - d / largest;
      case MixingStart::kCos:
        return std::cos(std::numbers::pi / 4 * d / largest);
      case MixingStart::kExp:
        return std::exp(-d / 2.5);
      case MixingStart::kGaussian:
        return std::exp(-d * d / (2 * (largest / 3) * (largest / 3)));
      case MixingStart::kLocal:
        return d <= 1.0 ? 1.0 : 0.0;
    }
    return 0.0;
  };
  for (const MixingStart start : {MixingStart::kLinear, MixingStart::kCos, MixingStart::kExp,
                                  MixingStart::kGaussian, MixingStart::kLocal}) {
    SCOPED_TRACE(static_cast<int>(start));
    MixingStartOptions options = {start, 2.5, 1.0, false};
    const std::vector<double> plain = StartOf(kGrid, options);
    options.normalize_columns = true;
    const std::vector<double> normalized = StartOf(kGrid, options);
    for (int j = 0; j < 12; ++j) {
      double column = 0, sum = 0;
      for (int i = 0; i < 12; ++i) {
        const int a = i / 6 - j / 6, b = i / 2 % 3 - j / 2 % 3, c = i % 2 - j % 2;
        const double expected = weight(start, std::sqrt(a * a + b * b + c * c));
        ASSERT_NEAR(plain[static_cast<size_t>(12 * i + j)], expected, 1e-15) << i << ", " << j;
        column += expected;
        sum += normalized[static_cast<size_t>(12 * i + j)];
      }
      EXPECT_NEAR(sum, 1, 1e-15);
      for (int i = 0; i < 12; ++i)
        ASSERT_NEAR(normalized[static_cast<size_t>(12 * i + j)],
                    plain[static_cast<size_t>(12 * i + j)] / column, 1e-15);
    }
  }
}

TEST(MhlaMixingTest, OneBlockHasWeightOne) {
  for (const MixingStart start : {MixingStart::kLinear, MixingStart::kCos, MixingStart::kExp,
                                  MixingStart::kGaussian, MixingStart::kLocal}) {
    EXPECT_EQ(StartOf({{1, 3, 3}, {1, 4, 4}}, {.start = start}), std::vector<double>{1.0});
  }
}

TEST(MhlaMixingTest, LearnedMatricesAreClipped) {
  std::vector<float> mixing = {-0.5f, 0.25f, 1.5f, std::numeric_limits<float>::infinity()};
  ASSERT_TRUE(ClipMixing<float>(mixing));
  EXPECT_EQ(mixing, (std::vector<float>{0.0f, 0.25f, 1.0f, 1.0f}));
  mixing = {-1.0f, std::numeric_limits<float>::quiet_NaN()};
  const Status status = ClipMixing<float>(mixing);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "clip mixing: number 1 is nan");
  EXPECT_EQ(mixing[0], -1.0f);
}

class MhlaGridRefusalTest : public ::testing::Test {
 protected:
  std::string Refusal(const MhlaGridArgs<float>& args) {
    cpu::CpuStream stream(1);
    const Status status = cpu::MhlaGrid(args, stream);
    if (status) return "";
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    return status.error().message();
  }
  MhlaGridArgs<float> Args() {
    MhlaGridArgs<float> args;
    args.shape = shape_;
    args.q = args.k = numbers_.data();
    args.v = numbers_.data();
    args.mixing = numbers_.data();
    args.out = out_.data();
    args.workspace = &workspace_;
    return args;
  }

  MhlaGridShape shape_ = {{{1, 1, 5}, {1, 1, 2}}, 1, 2, 2};
  std::vector<float> numbers_ = std::vector<float>(16, 0.5f);
  std::vector<float> out_ = std::vector<float>(16);
  MhlaGridWorkspace<float> workspace_{shape_};
};

TEST_F(MhlaGridRefusalTest, NamesWhatIsWrong) {
  EXPECT_EQ(Refusal(Args()), "");
  MhlaGridArgs<float> args = Args();
  args.mixing = nullptr;
  EXPECT_EQ(Refusal(args), "mhla grid: mixing is null");
  args = Args();
  args.shape.heads = 0;
  EXPECT_EQ(Refusal(args), "mhla grid: heads is 0");
  args = Args();
  args.shape.key_dim = 513;
  EXPECT_EQ(Refusal(args), "mhla grid: a head of 513 x 2, at most 512");
  args = Args();
  args.shape.value_dim = 3;
  EXPECT_EQ(Refusal(args), "mhla grid: the workspace is for another shape");
  args = Args();
  args.shape.grid.size[0] = 0;
  EXPECT_EQ(Refusal(args),
            "token grid: axis 0: 0 tokens in blocks of 1, expected 1 to 4194304 in blocks of at "
            "least 1");
  args = Args();
  args.shape.grid.size = {4096, 4096, 4096};
  EXPECT_EQ(Refusal(args), "token grid: 4096 x 4096 x 4096 tokens, at most 4194304");
  args = Args();
  args.shape.grid = {{1, 1, 4097}, {1, 1, 1}};
  EXPECT_EQ(Refusal(args), "token grid: 4097 blocks, at most 4096");
  args = Args();
  args.shape = {{{1, 1, 4096}, {1, 1, 1}}, 1, 256, 256};
  EXPECT_EQ(Refusal(args),
            "mhla grid: 4096 blocks of 256 x 256 are 268435456 numbers a head, at most 67108864: "
            "take larger blocks");
}

TEST_F(MhlaGridRefusalTest, NamesTheWeightThatIsNoWeight) {
  for (const float weight : {-0.25f, 1.25f, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> mixing(9, 0.5f);
    mixing[5] = weight;
    MhlaGridArgs<float> args = Args();
    args.mixing = mixing.data();
    const std::string refusal = Refusal(args);
    EXPECT_TRUE(refusal.starts_with("mhla grid: mixing[1, 2] is ")) << refusal;
    EXPECT_TRUE(refusal.ends_with("expected 0 to 1: clip the matrix first")) << refusal;
  }
}

TEST_F(MhlaGridRefusalTest, ANormaliserNeedsAnEpsilonAndTheReleasedOneEvenBlocks) {
  MhlaGridArgs<float> args = Args();
  args.normalizer = GridNormalizer::kOfQuery;
  args.epsilon = 0;
  EXPECT_EQ(Refusal(args), "mhla grid: epsilon is 0, expected a number above 0");
  args.epsilon = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Refusal(args), "mhla grid: epsilon is inf, expected a number above 0");
  args.epsilon = 1e-6f;
  EXPECT_EQ(Refusal(args), "");
  args.normalizer = GridNormalizer::kOfPlace;
  EXPECT_EQ(Refusal(args),
            "mhla grid: a normaliser of places with 1 x 1 x 5 tokens in blocks of 1 x 1 x 2: "
            "expected blocks of one size, or the normaliser of queries");
}

TEST_F(MhlaGridRefusalTest, AStartNeedsRoomAndReach) {
  std::vector<float> mixing(8);
  const auto words = [&](const MixingStartOptions& options) {
    const Status status = StartMixing<float>(shape_.grid, options, mixing);
    return status ? std::string() : status.error().message();
  };
  EXPECT_EQ(words({}), "start mixing: 8 numbers for 3 x 3 blocks");
  mixing.resize(9);
  EXPECT_EQ(words({}), "");
  EXPECT_EQ(words({.exp_reach = 0}),
            "start mixing: exp_reach is 0, local_reach is 1.5, expected above 0 and at least 0");
  EXPECT_EQ(words({.start = static_cast<MixingStart>(5)}),
            "start mixing: start is 5, expected 0 to 4");
}

}  // namespace
}  // namespace mneme::kernels
