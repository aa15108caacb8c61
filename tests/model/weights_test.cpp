// A tiny model written tensor by tensor, loaded in every layout a folder may have, then bent in one
// place at a time.
#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::Counting;
using support::FileOf;
using support::ScratchFolder;
using support::TestTensors;
using support::TinyConfig;
using support::TinyTensors;
using ::testing::HasSubstr;

struct Loaded {
  WeightFolder folder;
  Weights weights;
};

Result<Loaded> LoadTensors(const TestTensors& tensors, const std::string& config_text) {
  const ScratchFolder folder;
  folder.Write("model.safetensors", FileOf(tensors));
  auto config = ModelConfig::Parse(config_text);
  if (!config) return Fail(std::move(config).error());
  auto files = WeightFolder::Open(folder.path());
  if (!files) return Fail(std::move(files).error());
  auto weights = Weights::Load(*files, *config);
  if (!weights) return Fail(std::move(weights).error());
  return Loaded{*std::move(files), *std::move(weights)};
}

std::string Refusal(const TestTensors& tensors, const std::string& config = TinyConfig()) {
  const auto loaded = LoadTensors(tensors, config);
  return loaded ? "accepted" : loaded.error().message();
}

TEST(WeightsTest, LoadsBothPrefixesAndEachType) {
  for (const std::string prefix : {"model.", "model.language_model."}) {
    for (const std::string dtype : {"BF16", "F16", "F32"}) {
      const auto tensors = TinyTensors(prefix, dtype);
      const auto loaded = LoadTensors(tensors, TinyConfig());
      ASSERT_TRUE(loaded) << loaded.error().message();
      const Weights& weights = loaded->weights;
      ASSERT_EQ(weights.layers.size(), 3u);
      const TensorView& conv = weights.layers[1].linear.conv;
      EXPECT_EQ(conv.rows, 56);
      EXPECT_EQ(conv.cols, 4);
      EXPECT_EQ(NameOf(conv.dtype), dtype);
      EXPECT_EQ(weights.layers[0].linear.decay_log.dtype, kernels::Dtype::kF32);
      EXPECT_EQ(weights.layers[0].linear.decay_log.rows, 1);
      EXPECT_EQ(weights.layers[2].kind, LayerKind::kAttention);
      const TensorView& query = weights.layers[2].attention.project_q;
      EXPECT_EQ(AsText({query.bytes, query.size_bytes()}),
                tensors.at(prefix + "layers.2.self_attn.q_proj.weight").bytes);
      EXPECT_NE(weights.head.bytes, weights.embedding.bytes);
    }
  }
}

TEST(WeightsTest, TiesTheHeadAndSkipsVisionAndMtp) {
  auto tensors = TinyTensors("model.language_model.", "F32", /*tied=*/true);
  const auto plain = LoadTensors(tensors, TinyConfig(R"(,"tie_word_embeddings":true)"));
  ASSERT_TRUE(plain) << plain.error().message();
  tensors["mtp.fc.weight"] = Counting("I8", {4});
  tensors["model.visual.patch_embed.proj.weight"] = Counting("F32", {1, 2, 3, 4, 5});
  tensors["lm_head.weight"] = Counting("F32", {20, 10});
  const auto loaded = LoadTensors(tensors, TinyConfig(R"(,"tie_word_embeddings":true)"));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->weights.head.bytes, loaded->weights.embedding.bytes);
  EXPECT_EQ(loaded->weights.skipped_tensors, 3u);
  EXPECT_EQ(loaded->weights.parameters, plain->weights.parameters);
  EXPECT_EQ(loaded->weights.stored_bytes, 4 * plain->weights.parameters);
}

TEST(WeightsTest, LetsTheFileDecideWhereTheConfigurationContradictsItself) {
  const std::string config =
      TinyConfig(R"(,"text_config":{"tie_word_embeddings":true},"tie_word_embeddings":false)");
  const auto with_head = LoadTensors(TinyTensors(), config);
  ASSERT_TRUE(with_head) << with_head.error().message();
  EXPECT_NE(with_head->weights.head.bytes, with_head->weights.embedding.bytes);
  const auto without = LoadTensors(TinyTensors("model.", "BF16", /*tied=*/true), config);
  ASSERT_TRUE(without) << without.error().message();
  EXPECT_EQ(without->weights.head.bytes, without->weights.embedding.bytes);
}

TEST(WeightsTest, LoadsFromShards) {
  const ScratchFolder folder;
  TestTensors shards[2];
  std::string map;
  size_t count = 0;
  for (const auto& [name, tensor] : TinyTensors()) {
    const size_t shard = count++ % 2;
    shards[shard][name] = tensor;
    map += fmt::format(R"({}"{}":"part-{}.safetensors")", map.empty() ? "" : ",", name, shard);
  }
  folder.Write("part-0.safetensors", FileOf(shards[0]));
  folder.Write("part-1.safetensors", FileOf(shards[1]));
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  auto files = WeightFolder::Open(folder.path());
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_TRUE(Weights::Load(*files, *ModelConfig::Parse(TinyConfig())));
}

TEST(WeightsTest, RefusesOneMissingOrUnknownTensorOfAnyKind) {
  const auto whole = TinyTensors();
  for (const auto& [name, tensor] : whole) {
    auto tensors = whole;
    tensors.erase(name);
    const std::string message = Refusal(tensors);
    EXPECT_THAT(message, HasSubstr("model.safetensors: tensor "));
    EXPECT_THAT(message, HasSubstr(name == "model.embed_tokens.weight" ? "embed_tokens" : name));
    EXPECT_THAT(message, HasSubstr("expected "));
    EXPECT_THAT(message, HasSubstr("found "));
  }
  auto tensors = whole;
  tensors["model.layers.0.mlp.up_proj.bias"] = Counting("F32", {14});
  EXPECT_THAT(Refusal(tensors),
              HasSubstr("tensor model.layers.0.mlp.up_proj.bias: expected only tensors of a dense "
                        "Qwen3.5 model with 3 layers, found this one of shape [14]"));
}

TEST(WeightsTest, RefusesAnotherShapeOrTypeOfAnyTensor) {
  const auto whole = TinyTensors();
  for (const auto& [name, tensor] : whole) {
    auto tensors = whole;
    auto shape = tensor.shape;
    ++shape.back();
    tensors[name] = Counting(tensor.dtype, shape);
    EXPECT_THAT(
        Refusal(tensors),
        HasSubstr(fmt::format("model.safetensors: tensor {}: expected shape [{}], found "
                              "[{}]",
                              name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", "))));
    tensors[name] = Counting("I32", tensor.shape);
    EXPECT_THAT(Refusal(tensors),
                HasSubstr(fmt::format("model.safetensors: tensor {}: expected F32, BF16 or F16, "
                                      "found I32",
                                      name)));
  }
}

TEST(WeightsTest, RefusesAFileThatGrewBetweenOpeningAndLoading) {
  const ScratchFolder folder;
  const auto path = folder.Write("model.safetensors", FileOf(TinyTensors()));
  auto files = WeightFolder::Open(folder.path());
  ASSERT_TRUE(files);
  std::ofstream(path, std::ios::app) << "x";
  const auto weights = Weights::Load(*files, *ModelConfig::Parse(TinyConfig()));
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code(), ErrorCode::kCorruption);
  EXPECT_THAT(weights.error().message(), HasSubstr("model.safetensors: changed while it was read"));
}

TEST(WeightsTest, LoadsTheGoldenCheckpoints) {
  const std::filesystem::path models =
      std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models";
  for (const std::string name :
       {"hybrid_tied", "linear_tied", "grouped_untied", "linear_grouped"}) {
    SCOPED_TRACE(name);
    auto config = ModelConfig::Read(models / name);
    ASSERT_TRUE(config) << config.error().message();
    auto files = WeightFolder::Open(models / name);
    ASSERT_TRUE(files) << files.error().message();
    auto weights = Weights::Load(*files, *config);
    ASSERT_TRUE(weights) << weights.error().message();
    EXPECT_EQ(weights->head.bytes == weights->embedding.bytes, config->tied);
    auto golden = WeightFile::Open(models / name / "golden.safetensors");
    ASSERT_TRUE(golden) << golden.error().message();
    EXPECT_GE(std::stod(golden->metadata().at("greedy_margin")), 1e-3);
    EXPECT_EQ(golden->Find("greedy_ids")->ShapeText(), "[64]");
    EXPECT_GT(golden->Find("prompt_ids")->shape[0], 512u) << "crosses two chunk borders";
  }
}

}  // namespace
}  // namespace mneme::model
