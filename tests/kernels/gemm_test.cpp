// Both forms of the matrix product against sums in double, and against themselves in other company:
// a row's bits must not change with its neighbours, their number, or the number of threads.
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <limits>
#include <ostream>

#include "kernels/cpu/cpu_stream.h"
#include "tests/support/dense_reference.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

using support::ExpectNear;
using support::ExpectSameBits;
using support::RandomFloats;
using support::StoredMatrix;

// Sums of at most 3,584 products of numbers below one.
constexpr double kTolerance = 1e-4;

struct Shape {
  int64_t outputs;
  int64_t inputs;
  Dtype dtype;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.outputs << "x" << shape.inputs << NameOf(shape.dtype);
}

std::string ShapeName(const ::testing::TestParamInfo<Shape>& param) {
  return std::to_string(param.param.outputs) + "x" + std::to_string(param.param.inputs) +
         std::string(NameOf(param.param.dtype));
}

class GemmTest : public ::testing::TestWithParam<Shape> {
 protected:
  GemmTest()
      : random_(11),
        stored_(GetParam().outputs, GetParam().inputs, GetParam().dtype,
                random_.Many(GetParam().outputs * GetParam().inputs)) {
    const TensorView view = stored_.view();
    weight_ = std::move(PanelMatrix::Pack({&view, 1}).value());
  }

  std::vector<float> Product(RowForm form, const std::vector<float>& x, CpuStream& stream) {
    const auto rows = static_cast<int64_t>(x.size()) / GetParam().inputs;
    std::vector<float> out(static_cast<size_t>(rows * GetParam().outputs),
                           std::numeric_limits<float>::quiet_NaN());
    MatrixProduct product;
    product.weight = weight_.get();
    product.x = x.data();
    product.x_stride = GetParam().inputs;
    product.out = out.data();
    product.out_stride = GetParam().outputs;
    product.rows = rows;
    Multiply(form, product, stream);
    return out;
  }

  std::vector<float> RowOf(const std::vector<float>& all, int64_t row, int64_t width) {
    return {all.begin() + row * width, all.begin() + (row + 1) * width};
  }

  // The last row of `rows`, computed with new neighbours, must have the bits of `expected`.
  void ExpectLastRow(RowForm form, const std::vector<float>& row, int64_t rows, int64_t at,
                     const std::vector<float>& expected, CpuStream& stream) {
    std::vector<float> x = random_.Many(rows * GetParam().inputs, 100.0f);
    std::copy(row.begin(), row.end(), x.begin() + at * GetParam().inputs);
    ExpectSameBits(RowOf(Product(form, x, stream), at, GetParam().outputs), expected);
  }

  RandomFloats random_;
  StoredMatrix stored_;
  std::unique_ptr<PackedMatrix> weight_;
  CpuStream one_{1};
  CpuStream two_{2};
};

TEST_P(GemmTest, DecodeFormEqualsTheSums) {
  for (const int64_t rows : {1, 2, 3, 4, 7}) {
    const std::vector<float> x = random_.Many(rows * GetParam().inputs);
    ExpectNear(Product(RowForm::kDecode, x, two_),
               support::MatrixProductOf(support::ToDoubles(x), stored_.floats(), rows,
                                        GetParam().outputs, GetParam().inputs),
               kTolerance);
  }
}

TEST_P(GemmTest, PrefillFormEqualsTheSums) {
  const std::vector<float> x = random_.Many(kPieceTokens * GetParam().inputs);
  ExpectNear(Product(RowForm::kPrefill, x, two_),
             support::MatrixProductOf(support::ToDoubles(x), stored_.floats(), kPieceTokens,
                                      GetParam().outputs, GetParam().inputs),
             kTolerance);
}

TEST_P(GemmTest, DecodeRowKeepsItsBitsInAnyCompany) {
  const std::vector<float> row = random_.Many(GetParam().inputs);
  const std::vector<float> expected = Product(RowForm::kDecode, row, one_);
  for (int64_t rows = 1; rows <= 9; ++rows) {
    for (const int64_t at : {int64_t{0}, rows / 2, rows - 1}) {
      ExpectLastRow(RowForm::kDecode, row, rows, at, expected, one_);
      ExpectLastRow(RowForm::kDecode, row, rows, at, expected, two_);
    }
  }
}

TEST_P(GemmTest, PrefillRowKeepsItsBitsInAnySlice) {
  const std::vector<float> row = random_.Many(GetParam().inputs);
  for (const int64_t at : {0, 5, 63}) {
    std::vector<float> x = random_.Many(kPieceTokens * GetParam().inputs);
    std::copy(row.begin(), row.end(), x.begin() + at * GetParam().inputs);
    const std::vector<float> expected =
        RowOf(Product(RowForm::kPrefill, x, one_), at, GetParam().outputs);
    for (int64_t pieces = 1; pieces <= 4; ++pieces) {
      for (int64_t piece = 0; piece < pieces; ++piece) {
        CpuStream& stream = piece % 2 == 0 ? two_ : one_;
        ExpectLastRow(RowForm::kPrefill, row, pieces * kPieceTokens, piece * kPieceTokens + at,
                      expected, stream);
      }
    }
  }
}

TEST_P(GemmTest, PaddingThatIsNotANumberStaysInItsRow) {
  std::vector<float> x = random_.Many(kPieceTokens * GetParam().inputs);
  const std::vector<float> expected = Product(RowForm::kPrefill, x, one_);
  for (int64_t i = 0; i < GetParam().inputs; ++i)
    x[static_cast<size_t>(40 * GetParam().inputs + i)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> actual = Product(RowForm::kPrefill, x, one_);
  for (int64_t row = 0; row < kPieceTokens; ++row) {
    if (row == 40) continue;
    ExpectSameBits(RowOf(actual, row, GetParam().outputs),
                   RowOf(expected, row, GetParam().outputs));
  }
}

TEST_P(GemmTest, AddsToWhatIsThereAndKeepsToTheOutputsAsked) {
  for (const RowForm form : {RowForm::kDecode, RowForm::kPrefill}) {
    const int64_t rows = kPieceTokens;
    const int64_t asked = (GetParam().outputs + 1) / 2;
    const std::vector<float> x = random_.Many(rows * GetParam().inputs);
    const std::vector<float> whole = Product(form, x, one_);
    std::vector<float> out(static_cast<size_t>(rows * (asked + 1)), 2.0f);
    MatrixProduct product{weight_.get(), x.data(), GetParam().inputs, out.data(), asked + 1, rows,
                          asked,         true};
    Multiply(form, product, two_);
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t o = 0; o < asked; ++o) {
        const float sum = whole[static_cast<size_t>(n * GetParam().outputs + o)];
        ASSERT_NEAR(out[static_cast<size_t>(n * (asked + 1) + o)], 2.0f + sum,
                    1e-4f * (2.0f + std::abs(sum)));
      }
      ASSERT_EQ(out[static_cast<size_t>(n * (asked + 1) + asked)], 2.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest,
                         ::testing::Values(Shape{1, 1, Dtype::kF32},        // the smallest
                                           Shape{1, 1, Dtype::kBf16},       //
                                           Shape{5, 17, Dtype::kF32},       // nothing divides
                                           Shape{5, 17, Dtype::kBf16},      //
                                           Shape{101, 33, Dtype::kBf16},    //
                                           Shape{133, 35, Dtype::kF16},     //
                                           Shape{384, 1216, Dtype::kBf16},  // the demo model
                                           Shape{256, 3584, Dtype::kF32}),
                         ShapeName);

TEST(PackWeightsTest, JoinsBlocksAndWidensOnlyWhereATypeDiffers) {
  RandomFloats random(3);
  const StoredMatrix a(3, 10, Dtype::kBf16, random.Many(30));
  const StoredMatrix b(40, 10, Dtype::kBf16, random.Many(400));
  const StoredMatrix c(2, 10, Dtype::kF32, random.Many(20));
  const std::vector<TensorView> same = {a.view(), b.view()};
  const std::vector<TensorView> mixed = {a.view(), b.view(), c.view()};

  const auto narrow = std::move(PanelMatrix::Pack(same).value());
  EXPECT_EQ(AsPanels(*narrow).dtype(), Dtype::kBf16);
  EXPECT_EQ(narrow->rows(), 43);
  EXPECT_EQ(narrow->cols(), 10);
  EXPECT_EQ(narrow->bytes_read(), 2u * 64 * 10);

  const auto wide = std::move(PanelMatrix::Pack(mixed).value());
  EXPECT_EQ(AsPanels(*wide).dtype(), Dtype::kF32);
  std::vector<float> joined = a.floats();
  joined.insert(joined.end(), b.floats().begin(), b.floats().end());
  joined.insert(joined.end(), c.floats().begin(), c.floats().end());
  for (int64_t i = 0; i < 10; ++i) {  // a row that is 1 at i alone reads column i
    std::vector<float> x(10, 0.0f);
    x[static_cast<size_t>(i)] = 1.0f;
    std::vector<float> out(45);
    CpuStream stream(1);
    MatrixProduct product{wide.get(), x.data(), 10, out.data(), 45, 1};
    MultiplyRows(product, stream);
    for (int64_t o = 0; o < 45; ++o)
      ASSERT_EQ(out[static_cast<size_t>(o)], joined[static_cast<size_t>(o * 10 + i)]);
  }
}

TEST(PackWeightsTest, RefusesWhatNoMatrixCanBeMadeOf) {
  const auto refusal = [](std::vector<TensorView> blocks) {
    const auto made = PanelMatrix::Pack(blocks);
    EXPECT_FALSE(made);
    return made ? std::string() : made.error().message();
  };
  const std::byte bytes[64] = {};
  EXPECT_EQ(refusal({}), "pack weights: no blocks");
  EXPECT_EQ(refusal({{nullptr, Dtype::kF32, 1, 1}}), "pack weights: a block is null");
  EXPECT_EQ(refusal({{bytes, Dtype::kF32, 0, 1}}), "pack weights: rows is 0");
  EXPECT_EQ(refusal({{bytes, Dtype::kF32, 1, -3}}), "pack weights: cols is -3");
  EXPECT_EQ(refusal({{bytes, Dtype::kI8, 1, 1}}), "pack weights: a block is I8");
  EXPECT_EQ(refusal({{bytes, Dtype::kF32, 1, 2}, {bytes, Dtype::kF32, 1, 3}}),
            "pack weights: blocks of 2 and 3 cols");
  EXPECT_EQ(refusal({{bytes, Dtype::kF32, 1, 200'000}}),
            "pack weights: 200000 cols, at most 131072");
  EXPECT_EQ(refusal({{bytes, Dtype::kF32, int64_t{1} << 60, 2}}),
            "pack weights: over 16777216 rows");
}

template <typename Real>
class PlainProductTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(PlainProductTest, Reals);

TYPED_TEST(PlainProductTest, EqualsTheSumsInEveryOrientation) {
  using Real = TypeParam;
  RandomFloats random(5);
  const int m = 7, n = 5, k = 9;
  const std::vector<float> floats_a = random.Many(m * k), floats_b = random.Many(k * n);
  const std::vector<Real> a(floats_a.begin(), floats_a.end()), b(floats_b.begin(), floats_b.end());
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      std::vector<Real> c(static_cast<size_t>(m * n), Real{1});
      PlainProductOf<Real> product;
      product.rows = m;
      product.cols = n;
      product.inner = k;
      product.a = a.data();
      product.a_stride = ta ? m : k;
      product.transpose_a = ta;
      product.b = b.data();
      product.b_stride = tb ? k : n;
      product.transpose_b = tb;
      product.c = c.data();
      product.c_stride = n;
      product.alpha = Real{0.5};
      product.beta = Real{2};
      Multiply(product);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int l = 0; l < k; ++l)
            sum += static_cast<double>(a[static_cast<size_t>(ta ? l * m + i : i * k + l)]) *
                   static_cast<double>(b[static_cast<size_t>(tb ? j * k + l : l * n + j)]);
          ASSERT_NEAR(static_cast<double>(c[static_cast<size_t>(i * n + j)]), 2.0 + 0.5 * sum,
                      sizeof(Real) == 8 ? 1e-14 : 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mneme::kernels::cpu
