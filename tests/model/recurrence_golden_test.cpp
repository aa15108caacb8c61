// Affine chunks against what the authors' own code of each model gives for random tokens
// (tests/golden/recurrences): outputs and last states, in pieces over a chunk's border and one
// token after the other, to 1e-10 in double and to 1e-4 in float.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/affine_chunk.h"
#include "model/weight_file.h"

namespace mneme::model {
namespace {

using kernels::AffineShape;

struct Case {
  const char* test;
  const char* model;  // in the file's tensors
  kernels::TokenRule rule;
  const char* log_decay = nullptr;  // tensor
  bool beta = false;
};

constexpr Case kCases[] = {
    {"Linear", "linear", kernels::kLinearRule},
    {"RetNet", "retnet", kernels::kRetNetRule},
    {"SimpleGla", "simple_gla", kernels::kRetNetRule, "g"},
    {"Gla", "gla", kernels::kGlaRule, "gk"},
    {"Mamba2", "mamba2", kernels::kMamba2Rule, nullptr, true},
    {"DeltaNet", "delta_net", kernels::kDeltaNetRule, nullptr, true},
    {"Gdn", "gdn", kernels::kGdnRule, "g", true},
    {"Kda", "kda", kernels::kKdaRule, "gk", true},
    {"Comba", "comba", kernels::kGdnRule, "g", true},
    {"Gdn2", "gdn2", kernels::kKdaRule, "gk"},
};

// The tokens of one head in a model's letters, and what its authors' code gave.
template <typename Real>
struct Head {
  AffineShape shape;
  int count = 0;
  std::vector<Real> q, k, v, erase, beta, log_decay;
  std::vector<double> out, state;

  kernels::TokenRows<Real> From(int t) const {
    const int decays = static_cast<int>(log_decay.size()) / count;
    return {.q = q.data() + t * shape.key_dim,
            .k = k.data() + t * shape.key_dim,
            .v = v.data() + t * shape.value_dim,
            .erase = erase.empty() ? nullptr : erase.data() + t * shape.key_dim,
            .write_strength = beta.empty() ? nullptr : beta.data() + t,
            .log_decay = log_decay.data() + t * decays};
  }
};

class RecurrenceGoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto file = WeightFile::Open(std::filesystem::path(MNEME_SOURCE_DIR) /
                                 "tests/golden/recurrences/recurrences.safetensors");
    ASSERT_TRUE(file) << file.error().message();
    file_ = std::make_unique<WeightFile>(std::move(*file));
  }

  // One head of a tensor of [1, rows, H, width].
  template <typename Stored>
  std::vector<double> Of(const std::string& name, int head, int rows) const {
    const StoredTensor* tensor = file_->Find(name);
    if (tensor == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    const size_t numbers = tensor->bytes.size() / sizeof(Stored);
    const size_t width = numbers / static_cast<size_t>(rows * kHeads);
    std::vector<double> values;
    for (int row = 0; row < rows; ++row) {
      for (size_t d = 0; d < width; ++d) {
        Stored value;
        const size_t at = static_cast<size_t>(row * kHeads + head) * width + d;
        std::memcpy(&value, tensor->bytes.data() + at * sizeof(value), sizeof(value));
        values.push_back(static_cast<double>(value));
      }
    }
    return values;
  }

  template <typename Real>
  Head<Real> HeadOf(int head) const {
    const Case& c = GetParam();
    const auto input = [&](const std::string& name) { return Of<float>(name, head, kTokens); };
    const auto cast = [](const std::vector<double>& x) {
      return std::vector<Real>(x.begin(), x.end());
    };
    std::vector<double> q = input("q"), k = input("k"), v = input("v"), erase, decay;
    const std::string test = c.test;
    if (test != "Mamba2") {
      for (double& each : q) each /= std::sqrt(static_cast<double>(k.size()) / kTokens);
    }
    if (c.log_decay != nullptr) decay = input(c.log_decay);
    if (test == "RetNet") decay.assign(kTokens, std::log(1.0 - std::exp2(-5.0 - head)));
    if (test == "Mamba2") {
      decay = input("beta");
      for (double& each : decay) each *= Of<float>("mamba_a", head, 1)[0];
    }
    if (test == "Comba") erase = input("p");
    if (test == "Gdn2") {
      const std::vector<double> gate = input("erase"), write = input("write");
      for (size_t i = 0; i < k.size(); ++i) erase.push_back(gate[i] * k[i]);
      for (size_t i = 0; i < v.size(); ++i) v[i] *= write[i];
    }
    Head<Real> tokens;
    tokens.shape = {c.rule, static_cast<int>(k.size()) / kTokens,
                    static_cast<int>(v.size()) / kTokens};
    tokens.count = kTokens;
    tokens.q = cast(q);
    tokens.k = cast(k);
    tokens.v = cast(v);
    tokens.erase = cast(erase);
    if (c.beta) tokens.beta = cast(input("beta"));
    tokens.log_decay = cast(decay);
    tokens.out = Of<double>(std::string(c.model) + ".out", head, kTokens);
    if (test != "RetNet") tokens.state = Of<double>(std::string(c.model) + ".state", head, 1);
    return tokens;
  }

  template <typename Real>
  static void ExpectClose(const std::vector<Real>& actual, const std::vector<double>& expected) {
    const double tolerance = sizeof(Real) == sizeof(double) ? 1e-10 : 1e-4;
    ASSERT_EQ(actual.size(), expected.size());
    double scale = 0;
    for (const double each : expected) scale = std::max(scale, std::abs(each));
    ASSERT_GT(scale, 0.1) << "numbers that show nothing";
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance * scale) << "at " << i;
  }

  // Pieces of at most 48 tokens in chunks of 64, older chunks with gate 1.
  template <typename Real>
  static void ExpectPieces(const Head<Real>& tokens) {
    constexpr int kChunk = 64, kPiece = 48;
    const AffineShape& shape = tokens.shape;
    kernels::AffineWorkspace<Real> workspace(shape.key_dim, shape.value_dim);
    std::vector<std::vector<Real>> a, b;
    std::vector<Real> out;
    for (int t = 0; t < tokens.count;) {
      if (t % kChunk == 0) {
        a.emplace_back(shape.a_numbers());
        b.emplace_back(shape.b_numbers());
        kernels::cpu::StartChunk<Real>(shape, {a.back().data(), b.back().data()});
      }
      const int n = std::min(kPiece, kChunk - t % kChunk);
      std::vector<Real> carry(static_cast<size_t>(n * shape.key_dim));
      std::vector<Real> output(static_cast<size_t>(n * shape.value_dim));
      ASSERT_TRUE(kernels::cpu::AppendPiece<Real>({shape,
                                                   n,
                                                   tokens.From(t),
                                                   {a.back().data(), b.back().data()},
                                                   carry.data(),
                                                   output.data(),
                                                   &workspace}));
      for (size_t j = a.size() - 1; j-- > 0;) {
        ASSERT_TRUE(kernels::cpu::ReadChunk<Real>({shape,
                                                   {a[j].data(), b[j].data()},
                                                   n,
                                                   nullptr,
                                                   carry.data(),
                                                   output.data(),
                                                   &workspace}));
      }
      out.insert(out.end(), output.begin(), output.end());
      t += n;
    }
    ExpectClose(out, tokens.out);
    std::vector<Real> state(static_cast<size_t>(shape.b_numbers()), Real{0});
    for (size_t j = 0; j < a.size(); ++j) {
      ASSERT_TRUE(kernels::cpu::FoldChunk<Real>(
          {shape, {a[j].data(), b[j].data()}, Real{1}, state.data(), &workspace}));
    }
    if (!tokens.state.empty()) ExpectClose(state, tokens.state);
  }

  template <typename Real>
  static void ExpectSteps(const Head<Real>& tokens) {
    const AffineShape& shape = tokens.shape;
    kernels::AffineWorkspace<Real> workspace(shape.key_dim, shape.value_dim);
    std::vector<Real> state(static_cast<size_t>(shape.b_numbers()), Real{0});
    std::vector<Real> out;
    for (int t = 0; t < tokens.count; ++t) {
      ASSERT_TRUE(kernels::cpu::StepToken<Real>(
          {shape, tokens.From(t), {nullptr, state.data()}, &workspace}));
      const kernels::TokenRows<Real> token = tokens.From(t);
      for (int d = 0; d < shape.value_dim; ++d) {
        out.push_back(0);
        for (int i = 0; i < shape.key_dim; ++i)
          out.back() += token.q[i] * state[static_cast<size_t>(i * shape.value_dim + d)];
      }
    }
    ExpectClose(out, tokens.out);
    if (!tokens.state.empty()) ExpectClose(state, tokens.state);
  }

  static constexpr int kTokens = 128, kHeads = 2;
  std::unique_ptr<WeightFile> file_;
};

TEST_P(RecurrenceGoldenTest, PiecesEqualTheAuthorsCode) {
  for (int head = 0; head < kHeads; ++head) {
    ExpectPieces(HeadOf<double>(head));
    ExpectPieces(HeadOf<float>(head));
  }
}

TEST_P(RecurrenceGoldenTest, TokensOneByOneEqualTheAuthorsCode) {
  for (int head = 0; head < kHeads; ++head) {
    ExpectSteps(HeadOf<double>(head));
    ExpectSteps(HeadOf<float>(head));
  }
}

std::string NameOfCase(const ::testing::TestParamInfo<Case>& info) { return info.param.test; }

INSTANTIATE_TEST_SUITE_P(Of, RecurrenceGoldenTest, ::testing::ValuesIn(kCases), NameOfCase);

}  // namespace
}  // namespace mneme::model
