// Router and mixing files beside the tiny model: what they add, and what they may not say.
#include "model/router_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using memory::Reader;
using support::Counting;
using support::FileOf;
using support::ScratchFolder;
using support::TestTensor;
using support::TestTensors;
using ::testing::HasSubstr;
using Metadata = std::map<std::string, std::string>;

const Metadata kRouterMetadata = {
    {"reader", "hla"},  {"chunk", "256"}, {"window", "16"},         {"theta", "0.25"},
    {"pages_max", "8"}, {"format", "pt"}, {"closed_layers", "[0]"}, {"recent_chunks", "[1,0,0]"}};
const Metadata kMixingMetadata = {
    {"reader", "mhla"}, {"chunk", "256"}, {"closed_layers", "[0]"}, {"recent_chunks", "[1,0,0]"}};

// G 2, K 6; layer 1 is the only linear layer that is not closed.
TestTensors RouterTensors(const std::string& dtype = "BF16") {
  TestTensors tensors;
  for (const std::string part : {"q", "pool_k", "pool_v", "pool_o"})
    tensors["layers.1.route." + part + ".weight"] = Counting(dtype, {2, 6, 6});
  tensors["layers.1.route.bias"] = Counting("F32", {2});
  return tensors;
}

TestTensor Mixing(const std::vector<float>& values, uint64_t blocks) {
  TestTensor tensor{"F32", {blocks, blocks}, std::string(values.size() * sizeof(float), '\0')};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

class RouterWeightsTest : public ::testing::Test {
 protected:
  Result<RouterWeights> Open() const { return RouterWeights::Open(folder_.path(), config_); }
  std::string Refusal() const {
    const auto opened = Open();
    return opened ? "accepted" : opened.error().message();
  }
  void WriteRouter(const TestTensors& tensors, const Metadata& metadata = kRouterMetadata) const {
    folder_.Write("router.safetensors", FileOf(tensors, metadata));
  }
  void WriteMixing(const TestTensors& tensors, const Metadata& metadata = kMixingMetadata) const {
    folder_.Write("mixing.safetensors", FileOf(tensors, metadata));
  }

  ScratchFolder folder_;
  ModelConfig config_ = *ModelConfig::Parse(support::TinyConfig());
};

TEST_F(RouterWeightsTest, IsNativeWithoutFiles) {
  const auto router = Open();
  ASSERT_TRUE(router) << router.error().message();
  EXPECT_EQ(router->default_reader(), Reader::kNative);
  EXPECT_TRUE(router->Offers(Reader::kNative));
  EXPECT_FALSE(router->Offers(Reader::kMhla));
  EXPECT_FALSE(router->Offers(Reader::kHla));
  ASSERT_EQ(router->layers().size(), 3u);
  EXPECT_TRUE(router->layers()[1].linear);
  EXPECT_FALSE(router->layers()[1].route);
  EXPECT_FALSE(router->layers()[2].linear);
  EXPECT_TRUE(router->FingerprintRanges(Reader::kNative).empty());
}

TEST_F(RouterWeightsTest, ReadsARouter) {
  for (const std::string dtype : {"BF16", "F16", "F32"}) {
    WriteRouter(RouterTensors(dtype));
    const auto router = Open();
    ASSERT_TRUE(router) << router.error().message();
    EXPECT_EQ(router->default_reader(), Reader::kHla);
    EXPECT_EQ(router->window_tokens(), 16);
    EXPECT_EQ(router->pages_max(), 8);
    EXPECT_EQ(router->theta(), 0.25f);
    EXPECT_TRUE(router->layers()[0].closed);
    EXPECT_EQ(router->layers()[0].recent_chunks, 1);
    EXPECT_FALSE(router->layers()[0].route);
    ASSERT_TRUE(router->layers()[1].route);
    EXPECT_EQ(router->layers()[1].route->query.rows, 12);
    EXPECT_EQ(router->layers()[1].route->query.cols, 6);
    EXPECT_EQ(NameOf(router->layers()[1].route->pool_output.dtype), dtype);
    EXPECT_EQ(router->layers()[1].route->bias.cols, 2);
    EXPECT_EQ(router->FingerprintRanges(Reader::kHla).size(), 1u);
    EXPECT_TRUE(router->CheckUnchanged());
  }
}

TEST_F(RouterWeightsTest, ReadsAMixingMatrixAloneAndBesideARouter) {
  const std::vector<float> values = {7, 7, 7, 0.5, 7, 7, 0, 1, 7};  // the upper part is not read
  WriteMixing({{"layers.1.mixing", Mixing(values, 3)}});
  auto router = Open();
  ASSERT_TRUE(router) << router.error().message();
  EXPECT_EQ(router->default_reader(), Reader::kNative);
  EXPECT_TRUE(router->Offers(Reader::kMhla));
  EXPECT_EQ(router->mixing_blocks(), 3);
  EXPECT_EQ(router->layers()[1].mixing->rows, 3);
  EXPECT_TRUE(router->layers()[0].closed);
  WriteRouter(RouterTensors());
  router = Open();
  ASSERT_TRUE(router) << router.error().message();
  EXPECT_TRUE(router->Offers(Reader::kHla) && router->Offers(Reader::kMhla));
}

TEST_F(RouterWeightsTest, RefusesTensorsThatAreMissingUnknownOrBent) {
  for (const auto& [name, tensor] : RouterTensors()) {
    auto tensors = RouterTensors();
    tensors.erase(name);
    WriteRouter(tensors);
    EXPECT_THAT(Refusal(), HasSubstr("router.safetensors: tensor " + name + ": expected it"));
    EXPECT_THAT(Refusal(), HasSubstr("found no such tensor"));
    tensors[name] = Counting("F32", {5, 5});
    WriteRouter(tensors);
    EXPECT_THAT(Refusal(), HasSubstr("tensor " + name + ": expected shape ["));
    EXPECT_THAT(Refusal(), HasSubstr("found [5, 5]"));
  }
  auto tensors = RouterTensors();
  tensors["layers.0.route.bias"] = Counting("F32", {2});
  WriteRouter(tensors);
  EXPECT_THAT(Refusal(), HasSubstr("tensor layers.0.route.bias: expected only those of linear "
                                   "layers that are not closed, found this one of shape [2]"));
  tensors = RouterTensors();
  tensors["layers.1.route.bias"].bytes = std::string("\0\0\0\0\0\0\xc0\x7f", 8);
  WriteRouter(tensors);
  EXPECT_THAT(Refusal(), HasSubstr("layers.1.route.bias: expected finite numbers, found nan"));
}

TEST_F(RouterWeightsTest, RefusesMixingOutsideItsLimits) {
  WriteMixing({{"layers.1.mixing", Mixing({1, 0, 1.5, 1}, 2)}});
  EXPECT_THAT(Refusal(),
              HasSubstr("mixing.safetensors: tensor layers.1.mixing: expected gates from "
                        "0 to 1 below the diagonal, found 1.5 at [1, 0]"));
  WriteMixing({{"layers.1.mixing", Mixing(std::vector<float>(129 * 129, 1), 129)}});
  EXPECT_THAT(Refusal(), HasSubstr("expected shape [n, n] with n from 1 to 128, found [129, 129]"));
  WriteMixing({{"layers.1.mixing", Counting("F32", {2, 3})}});
  EXPECT_THAT(Refusal(), HasSubstr("expected shape [2, 2], found [2, 3]"));
  WriteMixing({});
  EXPECT_THAT(Refusal(), HasSubstr("layers.1.mixing: expected it"));
}

TEST_F(RouterWeightsTest, RefusesFilesThatDisagree) {
  WriteRouter(RouterTensors());
  Metadata other = kMixingMetadata;
  other["recent_chunks"] = "[0,0,0]";
  WriteMixing({{"layers.1.mixing", Mixing({1}, 1)}}, other);
  EXPECT_THAT(Refusal(), HasSubstr("mixing.safetensors: metadata closed_layers, recent_chunks: "
                                   "expected as in router.safetensors (layer 0: closed true, "
                                   "recent 1), found closed true, recent 0"));
}

}  // namespace
}  // namespace mneme::model
