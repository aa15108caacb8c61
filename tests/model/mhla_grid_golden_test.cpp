// MHLA over grids against its authors' own layers (tests/golden/mhla_grid/README.md): outputs with
// the normaliser they compute, and what the video layer's mixing matrix begins with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/mhla_grid.h"
#include "model/weight_file.h"

namespace mneme::model {
namespace {

using kernels::MhlaGridArgs;
using kernels::MhlaGridShape;
using kernels::TokenGrid;

class MhlaGridGoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file =
        WeightFile::Open(std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/mhla_grid" /
                         (std::string(GetParam()) + ".safetensors"));
    ASSERT_TRUE(file) << file.error().message();
    file_ = std::make_unique<WeightFile>(std::move(*file));
    grid_ = {AxesOf("size"), AxesOf("block")};
  }

  std::array<int, kernels::kGridAxes> AxesOf(const std::string& name) const {
    std::array<int, kernels::kGridAxes> axes = {};
    const auto found = file_->metadata().find(name);
    EXPECT_TRUE(found != file_->metadata().end() &&
                std::sscanf(found->second.c_str(), "[%d, %d, %d]", &axes[0], &axes[1], &axes[2]) ==
                    3)
        << name;
    return axes;
  }

  template <typename Real>
  std::vector<Real> Values(const std::string& name) const {
    const StoredTensor* tensor = file_->Find(name);
    if (tensor == nullptr) return {};
    std::vector<float> values(tensor->bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return {values.begin(), values.end()};
  }

  template <typename Real>
  void ExpectOutputs(double tolerance) const {
    const StoredTensor* q_tensor = file_->Find("q");
    const StoredTensor* v_tensor = file_->Find("v");
    ASSERT_TRUE(q_tensor != nullptr && v_tensor != nullptr);
    const auto q = Values<Real>("q"), k = Values<Real>("k"), v = Values<Real>("v");
    const auto plain_q = Values<Real>("plain_q"), plain_k = Values<Real>("plain_k");
    const auto mixing = Values<Real>("mixing"), expected = Values<Real>("out");
    const MhlaGridShape shape = {grid_, static_cast<int>(q_tensor->shape[2]),
                                 static_cast<int>(q_tensor->shape[3]),
                                 static_cast<int>(v_tensor->shape[3])};
    kernels::MhlaGridWorkspace<Real> workspace(shape);
    std::vector<Real> out(v.size());
    MhlaGridArgs<Real> args;
    args.shape = shape;
    args.grids = static_cast<int>(q_tensor->shape[0]);
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.plain_q = plain_q.data();
    args.plain_k = plain_k.data();
    args.mixing = mixing.data();
    args.normalizer = kernels::GridNormalizer::kOfPlace;
    args.out = out.data();
    args.workspace = &workspace;
    kernels::cpu::CpuStream stream(2);
    const Status status = kernels::cpu::MhlaGrid(args, stream);
    ASSERT_TRUE(status) << status.error().message();
    ASSERT_EQ(out.size(), expected.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const double wanted = static_cast<double>(expected[i]);
      ASSERT_NEAR(static_cast<double>(out[i]), wanted, tolerance * std::max(1.0, std::abs(wanted)))
          << "at " << i;
    }
  }

  std::unique_ptr<WeightFile> file_;
  TokenGrid grid_;
};

TEST_P(MhlaGridGoldenTest, GivesWhatTheReleasedLayerGives) {
  ExpectOutputs<double>(1e-5);
  ExpectOutputs<float>(1e-4);
}

INSTANTIATE_TEST_SUITE_P(Layers, MhlaGridGoldenTest, ::testing::Values("image", "video"),
                         [](const auto& test) { return std::string(test.param); });

using MhlaGridStartTest = MhlaGridGoldenTest;

TEST_P(MhlaGridStartTest, BeginsAsTheReleasedLayerDoes) {
  const auto expected = Values<double>("mixing");
  std::vector<double> mixing(expected.size());
  ASSERT_EQ(file_->metadata().at("start"), "exp");
  const Status status = kernels::StartMixing<double>(
      grid_, {.start = kernels::MixingStart::kExp, .exp_reach = 3}, mixing);
  ASSERT_TRUE(status) << status.error().message();
  for (size_t i = 0; i < mixing.size(); ++i) ASSERT_NEAR(mixing[i], expected[i], 1e-7) << i;
}

INSTANTIATE_TEST_SUITE_P(Layers, MhlaGridStartTest, ::testing::Values("video"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace mneme::model
