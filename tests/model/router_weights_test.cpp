// Router and mixing files beside the tiny model: what they add, and what they may not say.
#include "model/router_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

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
  Result<RouterWeights> Open() const { return RouterWeights::Open(folder_.path(), config_, {}); }
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
  EXPECT_TRUE(router->FingerprintFiles(Reader::kNative).empty());
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
    EXPECT_EQ(router->FingerprintFiles(Reader::kHla).size(), 1u);
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

// Numbers of a golden file by [row, layer, head, column].
struct Golden {
  const WeightFile& file;
  int64_t heads, layers;

  template <typename T>
  T At(std::string_view name, int64_t row, int64_t layer, int64_t head, int64_t column) const {
    const StoredTensor* tensor = file.Find(name);
    const auto width = static_cast<int64_t>(tensor->shape[3]);
    const int64_t index = ((row * layers + layer) * heads + head) * width + column;
    T value;
    std::memcpy(&value, tensor->bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
};

// Theta, bias, cap, recency among equals and recent chunks, as our files say them, turn the golden
// scores into the golden gates: the reference and this reading of the files mean the same.
TEST_F(RouterWeightsTest, TurnsTheGoldenScoresIntoTheGoldenGates) {
  const auto folder = std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models/routed";
  const auto config = ModelConfig::Read(folder);
  ASSERT_TRUE(config) << config.error().message();
  const auto router = RouterWeights::Open(folder, *config, {});
  ASSERT_TRUE(router) << router.error().message();
  EXPECT_TRUE(router->Offers(Reader::kMhla) && router->Offers(Reader::kHla));
  const auto file = WeightFile::Open(folder / "golden_hla.safetensors");
  ASSERT_TRUE(file) << file.error().message();
  const Golden golden{*file, config->key_heads, config->layer_count()};
  const auto rows = static_cast<int64_t>(file->Find("logit_positions")->shape[0]);
  int capped = 0, ties = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t layer = 0; layer < golden.layers; ++layer) {
      const LayerHistory& history = router->layers()[static_cast<size_t>(layer)];
      for (int64_t head = 0; head < golden.heads; ++head) {
        std::vector<std::pair<float, int>> open;  // gate, chunk
        int chunks = 0;
        while (chunks < 4 && golden.At<float>("gates", row, layer, head, chunks) >= 0) ++chunks;
        std::vector<float> expected(4, 0.0f);
        const int recent = std::min(history.recent_chunks, chunks);
        for (int chunk = 0; chunk < chunks; ++chunk) {
          if (chunk >= chunks - recent) expected[static_cast<size_t>(chunk)] = 1;
          if (chunk >= chunks - recent || history.closed) continue;
          float bias = 0;
          std::memcpy(&bias, history.route->bias.bytes + head * 4, 4);
          const float score = golden.At<float>("scores", row, layer, head, chunk) + bias;
          const float gate = 1 / (1 + std::exp(-score));
          if (gate >= router->theta()) open.emplace_back(gate, chunk);
        }
        std::sort(open.begin(), open.end(), std::greater<>());
        const auto room = static_cast<size_t>(router->pages_max() - recent);
        if (open.size() > room) {
          ++capped;
          ties += open[room - 1].first == open[room].first ? 1 : 0;
          open.resize(room);
        }
        for (const auto& [gate, chunk] : open) expected[static_cast<size_t>(chunk)] = gate;
        int column = 0;
        for (int chunk = chunks - 1; chunk >= 0; --chunk) {
          const float gate = expected[static_cast<size_t>(chunk)];
          EXPECT_NEAR(golden.At<float>("gates", row, layer, head, chunk), gate, 1e-5);
          if (gate == 0) continue;
          EXPECT_EQ(golden.At<int32_t>("selected", row, layer, head, column++), chunk);
        }
        if (column == router->pages_max()) continue;
        EXPECT_EQ(golden.At<int32_t>("selected", row, layer, head, column), -1);
      }
    }
  }
  EXPECT_GT(capped, 20) << "the cap hardly binds";
  EXPECT_GT(ties, 3) << "recency among equals is not exercised";
}

}  // namespace
}  // namespace mneme::model
