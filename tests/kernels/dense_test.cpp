// project_in, project_out and mlp against their definitions in double, and against themselves with
// other neighbours, slices and thread counts, bit for bit.
#include "kernels/dense.h"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/gemm.h"
#include "tests/support/dense_reference.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

using support::ExpectNear;
using support::ExpectSameBits;
using support::RandomFloats;
using support::StoredMatrix;

constexpr double kTolerance = 1e-4;
constexpr float kEpsilon = 1e-6f;

struct Sizes {
  int64_t width;  // D
  int64_t inner;  // F, and the outputs of project_in
  Dtype dtype;
};

std::ostream& operator<<(std::ostream& out, const Sizes& sizes) {
  return out << sizes.width << "x" << sizes.inner << NameOf(sizes.dtype);
}

// Weights as small as a model's, so that sums stay about one.
StoredMatrix Weight(int64_t rows, int64_t cols, Dtype dtype, uint64_t seed) {
  const float scale = 2.0f / std::sqrt(static_cast<float>(cols));
  return {rows, cols, dtype, RandomFloats(seed).Many(rows * cols, scale)};
}

class DenseTest : public ::testing::TestWithParam<Sizes> {
 protected:
  DenseTest()
      : width_(GetParam().width),
        inner_(GetParam().inner),
        in_(Weight(inner_, width_, GetParam().dtype, 1)),
        out_(Weight(width_, inner_, GetParam().dtype, 2)),
        up_(Weight(inner_, width_, GetParam().dtype, 3)),
        norm_(RandomFloats(4).Many(width_, 0.5f)) {
    packed_in_ = Pack({in_.view()});
    packed_out_ = Pack({out_.view()});
    packed_gate_up_ = Pack({in_.view(), up_.view()});
  }

  static std::unique_ptr<PackedMatrix> Pack(const std::vector<TensorView>& blocks) {
    return std::move(PanelMatrix::Pack(blocks).value());
  }

  StepTable StepOf(RowForm form, int64_t rows) {
    StepTable step;
    step.form = form;
    step.rows = static_cast<int32_t>(rows);
    return step;
  }

  // Each op as a function of the rows it changes or reads.
  std::vector<float> ProjectedIn(RowForm form, const std::vector<float>& x, CpuStream& stream) {
    const auto rows = static_cast<int64_t>(x.size()) / width_;
    const StepTable step = StepOf(form, rows);
    std::vector<float> out(static_cast<size_t>(rows * inner_));
    EXPECT_TRUE(ProjectIn(
        {&step, norm_.data(), kEpsilon, packed_in_.get(), x.data(), out.data(), norm_weight_},
        stream));
    return out;
  }
  std::vector<float> ProjectedOut(RowForm form, const std::vector<float>& in, CpuStream& stream) {
    const auto rows = static_cast<int64_t>(in.size()) / inner_;
    const StepTable step = StepOf(form, rows);
    std::vector<float> x(static_cast<size_t>(rows * width_), 0.25f);
    EXPECT_TRUE(ProjectOut({&step, packed_out_.get(), in.data(), x.data()}, stream));
    return x;
  }
  std::vector<float> AfterMlp(RowForm form, std::vector<float> x, CpuStream& stream) {
    const StepTable step = StepOf(form, static_cast<int64_t>(x.size()) / width_);
    EXPECT_TRUE(Mlp({&step, norm_.data(), kEpsilon, packed_gate_up_.get(), packed_out_.get(),
                     x.data(), norm_weight_},
                    stream));
    return x;
  }

  // The MLP's definition, from its input after the norm.
  support::Doubles MlpOf(const std::vector<float>& x, const support::Doubles& normed) const {
    const auto rows = static_cast<int64_t>(x.size()) / width_;
    auto inner = support::MatrixProductOf(normed, in_.floats(), rows, inner_, width_);
    const auto up = support::MatrixProductOf(normed, up_.floats(), rows, inner_, width_);
    for (size_t i = 0; i < inner.size(); ++i) inner[i] = support::SiluOf(inner[i]) * up[i];
    auto expected = support::MatrixProductOf(inner, out_.floats(), rows, width_, inner_);
    for (size_t i = 0; i < x.size(); ++i) expected[i] += static_cast<double>(x[i]);
    return expected;
  }

  using Op = std::function<std::vector<float>(RowForm, std::vector<float>, CpuStream&)>;

  // One row with random neighbours must give what it gives alone (decode) or in a random piece.
  void ExpectRowsKeepTheirBits(const Op& op, int64_t width) {
    RandomFloats random(9);
    const std::vector<float> row = random.Many(width);
    for (const RowForm form : {RowForm::kDecode, RowForm::kPrefill}) {
      const int64_t unit = form == RowForm::kDecode ? 1 : kPieceTokens;
      std::vector<float> expected;
      for (int64_t units = 1; units <= 4; ++units) {
        for (const int64_t at : {int64_t{0}, units - 1}) {
          std::vector<float> x = random.Many(units * unit * width, 10.0f);
          std::copy(row.begin(), row.end(), x.begin() + at * unit * width);
          const std::vector<float> out = op(form, x, units % 2 == 0 ? two_ : one_);
          const auto out_width = static_cast<int64_t>(out.size()) / (units * unit);
          const auto from = out.begin() + at * unit * out_width;
          const std::vector<float> actual(from, from + out_width);
          if (expected.empty()) expected = actual;
          ExpectSameBits(actual, expected);
        }
      }
    }
  }

  int64_t width_;
  int64_t inner_;
  StoredMatrix in_;
  StoredMatrix out_;
  StoredMatrix up_;
  std::vector<float> norm_;
  NormWeight norm_weight_ = NormWeight::kZeroCentred;
  std::unique_ptr<PackedMatrix> packed_in_;
  std::unique_ptr<PackedMatrix> packed_out_;
  std::unique_ptr<PackedMatrix> packed_gate_up_;
  CpuStream one_{1};
  CpuStream two_{2};
};

TEST_P(DenseTest, ProjectInEqualsTheDefinition) {
  for (const auto& [form, rows] : {std::pair{RowForm::kDecode, 3}, {RowForm::kPrefill, 64}}) {
    const std::vector<float> x = RandomFloats(5).Many(rows * width_);
    const auto normed = support::ZeroCentredNormOf(support::ToDoubles(x), norm_, kEpsilon);
    ExpectNear(ProjectedIn(form, x, two_),
               support::MatrixProductOf(normed, in_.floats(), rows, inner_, width_), kTolerance);
  }
}

TEST_P(DenseTest, APlainNormWeightIsTakenAsItIs) {
  norm_weight_ = NormWeight::kPlain;
  const std::vector<float> x = RandomFloats(8).Many(3 * width_);
  const auto normed = support::PlainNormOf(support::ToDoubles(x), norm_, kEpsilon);
  ExpectNear(ProjectedIn(RowForm::kDecode, x, two_),
             support::MatrixProductOf(normed, in_.floats(), 3, inner_, width_), kTolerance);
  ExpectNear(AfterMlp(RowForm::kDecode, x, two_), MlpOf(x, normed), kTolerance);
}

TEST_P(DenseTest, ProjectOutAddsToTheResidual) {
  for (const auto& [form, rows] : {std::pair{RowForm::kDecode, 3}, {RowForm::kPrefill, 64}}) {
    const std::vector<float> in = RandomFloats(6).Many(rows * inner_);
    auto expected =
        support::MatrixProductOf(support::ToDoubles(in), out_.floats(), rows, width_, inner_);
    for (double& each : expected) each += 0.25;
    ExpectNear(ProjectedOut(form, in, two_), expected, kTolerance);
  }
}

TEST_P(DenseTest, MlpEqualsTheDefinition) {
  for (const auto& [form, rows] : {std::pair{RowForm::kDecode, 3}, {RowForm::kPrefill, 64}}) {
    const std::vector<float> x = RandomFloats(7).Many(rows * width_);
    const auto normed = support::ZeroCentredNormOf(support::ToDoubles(x), norm_, kEpsilon);
    ExpectNear(AfterMlp(form, x, two_), MlpOf(x, normed), kTolerance);
  }
}

TEST_P(DenseTest, RowsKeepTheirBitsInAnyCompany) {
  ExpectRowsKeepTheirBits([this](RowForm form, const std::vector<float>& x,
                                 CpuStream& stream) { return ProjectedIn(form, x, stream); },
                          width_);
  ExpectRowsKeepTheirBits([this](RowForm form, const std::vector<float>& in,
                                 CpuStream& stream) { return ProjectedOut(form, in, stream); },
                          inner_);
  ExpectRowsKeepTheirBits([this](RowForm form, const std::vector<float>& x,
                                 CpuStream& stream) { return AfterMlp(form, x, stream); },
                          width_);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DenseTest,
                         ::testing::Values(Sizes{1, 1, Dtype::kBf16},         // the smallest
                                           Sizes{33, 17, Dtype::kBf16},       // nothing divides
                                           Sizes{33, 101, Dtype::kF32},       //
                                           Sizes{384, 1216, Dtype::kBf16}));  // the demo model

TEST(DenseErrorTest, NamesWhatIsNullOrDisagrees) {
  CpuStream stream(1);
  std::vector<float> floats(64, 0.0f);
  const StoredMatrix a = Weight(6, 4, Dtype::kF32, 1);
  const StoredMatrix b = Weight(4, 3, Dtype::kF32, 1);
  const StoredMatrix c = Weight(4, 5, Dtype::kF32, 1);
  const auto pack = [](const StoredMatrix& stored) {
    const TensorView view = stored.view();
    return std::move(PanelMatrix::Pack({&view, 1}).value());
  };
  const auto gate_up = pack(a), down = pack(b), wrong = pack(c);
  StepTable step;
  step.rows = 1;
  const auto words = [](const Status& status) {
    return status ? std::string() : status.error().message();
  };
  MlpArgs mlp{&step, floats.data(), 1e-6f, gate_up.get(), down.get(), floats.data()};
  EXPECT_EQ(words(Mlp(mlp, stream)), "");
  mlp.x = nullptr;
  EXPECT_EQ(words(Mlp(mlp, stream)), "mlp: x is null");
  mlp.x = floats.data();
  mlp.down = wrong.get();
  EXPECT_EQ(words(Mlp(mlp, stream)), "mlp: gate_up is [6, 4] and down [4, 5]");
  EXPECT_EQ(
      words(ProjectIn({&step, floats.data(), 0, nullptr, floats.data(), floats.data()}, stream)),
      "project in: weight is null");
  EXPECT_EQ(words(ProjectOut({&step, down.get(), nullptr, floats.data()}, stream)),
            "project out: in is null");
  step.rows = -5;
  EXPECT_EQ(words(ProjectOut({&step, down.get(), floats.data(), floats.data()}, stream)),
            "project out: rows is -5");
}

}  // namespace
}  // namespace mneme::kernels::cpu
