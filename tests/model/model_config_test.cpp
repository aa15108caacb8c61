// Configurations as published and as bent: sizes read from either place, and every feature that is
// not computed refused by its name.
#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::ScratchFolder;
using support::TinyConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The text sizes of the published 9B, nested as its folder has them.
constexpr std::string_view kNineB = R"({
  "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
  "image_token_id": 248056, "tie_word_embeddings": false, "vision_config": {"depth": 27},
  "text_config": {
    "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true,
    "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1, "num_attention_heads": 16, "num_hidden_layers": 32,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "vocab_size": 248320,
    "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
      "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"}}})";

// `text` with the first `from` replaced by `to`.
std::string With(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(ModelConfigTest, ReadsThePublishedNineB) {
  const auto config = ModelConfig::Parse(kNineB, R"({"eos_token_id": [248046, 248044]})");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->layer_count(), 32);
  EXPECT_EQ(config->attention_layers(), 8);
  EXPECT_EQ(config->layers[3], LayerKind::kAttention);
  EXPECT_EQ(config->layers[4], LayerKind::kLinear);
  EXPECT_EQ(config->conv_width(), 8192);
  EXPECT_EQ(config->rotary_dim, 64);
  EXPECT_EQ(config->rope_theta, 1e7);
  EXPECT_EQ(config->epsilon, 1e-6f);
  EXPECT_FALSE(config->tied);
  EXPECT_THAT(config->eos_ids, ElementsAre(248044, 248046));
  EXPECT_EQ(config->Attention(256).projected_width(), 8192 + 2 * 1024);
  EXPECT_EQ(config->Linear(256, 16, 16).representatives(), 16);
}

TEST(ModelConfigTest, ReadsAFlatFileAndAnAllLinearOneWithoutAttentionSizes) {
  ASSERT_TRUE(ModelConfig::Parse(TinyConfig()));
  const auto config = ModelConfig::Parse(
      R"({"model_type":"qwen3_5_text","hidden_size":384,"intermediate_size":1216,
          "vocab_size":4096,"num_hidden_layers":2,"linear_num_key_heads":2,
          "layer_types":["linear_attention","linear_attention"],
          "linear_num_value_heads":2,"linear_key_head_dim":128,"linear_value_head_dim":128,
          "max_position_embeddings":2097152,"rms_norm_eps":1e-6,"tie_word_embeddings":true,
          "eos_token_id":5})");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->attention_layers(), 0);
  EXPECT_TRUE(config->tied);
  EXPECT_THAT(config->eos_ids, ElementsAre(5));
}

TEST(ModelConfigTest, DerivesLayerTypesFromTheInterval) {
  const std::string types =
      R"("layer_types":["linear_attention","linear_attention","full_attention"])";
  const auto every_third =
      ModelConfig::Parse(With(TinyConfig(), types, R"("full_attention_interval":3)"));
  ASSERT_TRUE(every_third) << every_third.error().message();
  EXPECT_THAT(every_third->layers,
              ElementsAre(LayerKind::kLinear, LayerKind::kLinear, LayerKind::kAttention));
  const auto published = ModelConfig::Parse(With(TinyConfig(), types, R"("x":0)"));
  ASSERT_TRUE(published) << published.error().message();
  EXPECT_EQ(published->attention_layers(), 0) << "three layers at the usual interval of four";
}

TEST(ModelConfigTest, ReadsTheOlderPlacesOfRope) {
  const std::string rope = R"("rope_parameters":{"rope_type":"default","rope_theta":10000,)"
                           R"("partial_rotary_factor":0.5})";
  const auto config = ModelConfig::Parse(
      With(TinyConfig(), rope,
           R"("rope_theta":50000.0,"rope_scaling":null,"partial_rotary_factor":0.5)"));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->rope_theta, 50000.0);
  EXPECT_EQ(config->rotary_dim, 6);
}

TEST(ModelConfigTest, RemembersWhenTheTwoPlacesContradictEachOtherOnTheHead) {
  const auto with = [](std::string_view more) { return *ModelConfig::Parse(TinyConfig(more)); };
  EXPECT_FALSE(with("").tied);
  EXPECT_TRUE(with(R"(,"text_config":{"tie_word_embeddings":true})").tied);
  EXPECT_TRUE(with("").CheckThinking(true)) << "not known, so allowed";
  EXPECT_TRUE(with(R"(,"mneme_thinking":false)").CheckThinking(false));
  EXPECT_FALSE(with(R"(,"mneme_thinking":false)").CheckThinking(true));
  EXPECT_FALSE(with(R"(,"text_config":{"tie_word_embeddings":true})").tied_unsure);
  EXPECT_TRUE(with(R"(,"text_config":{"tie_word_embeddings":true},"tie_word_embeddings":false)")
                  .tied_unsure);
}

TEST(ModelConfigTest, RefusesWhatItDoesNotComputeByName) {
  const struct {
    std::string more, field, expected, found;
  } cases[] = {
      {R"("num_experts":64)", "num_experts", "none", "64: mixtures of experts"},
      {R"("quantization_config":{"bits":4})", "quantization_config", "none", "{\"bits\":4}"},
      {R"("attn_output_gate":false)", "attn_output_gate", "true", "false"},
      {R"("mlp_bias":true)", "mlp_bias", "false", "true"},
      {R"("use_sliding_window":true)", "use_sliding_window", "none", "true"},
      {R"("rope_scaling":{"type":"yarn","factor":4})", "rope_scaling.type", "default", "\"yarn\""},
      {R"("eos_token_id":20)", "eos_token_id", "ids below vocab_size 20", "20"},
      {R"("eos_token_id":[1,"2"])", "eos_token_id", "ids below vocab_size 20", "\"2\""},
      {R"("text_config":[])", "text_config", "an object", "[]"},
  };
  for (const auto& c : cases) {
    const auto config = ModelConfig::Parse(TinyConfig("," + c.more));
    ASSERT_FALSE(config) << c.more;
    EXPECT_THAT(config.error().message(),
                HasSubstr("config.json: " + c.field + ": expected " + c.expected));
    EXPECT_THAT(config.error().message(), HasSubstr("found " + c.found));
  }
}

TEST(ModelConfigTest, RefusesSizesOutsideTheirLimits) {
  const struct {
    std::string from, to, field, expected, found;
  } cases[] = {
      {R"("hidden_act":"silu")", R"("hidden_act":"gelu")", "hidden_act", "\"silu\"", "\"gelu\""},
      {R"("attention_bias":false)", R"("attention_bias":true)", "attention_bias", "false", "true"},
      {R"("linear_conv_kernel_dim":4)", R"("linear_conv_kernel_dim":3)", "linear_conv_kernel_dim",
       "4", "3"},
      {"qwen3_5_text", "qwen3_next", "model_type", "qwen3_5, qwen3_5_text, hla or gla",
       "\"qwen3_next\""},
      {R"("hidden_size":10)", R"("hidden_size":0)", "hidden_size", "an integer from 1 to 32768",
       "0"},
      {R"("hidden_size":10)", R"("hidden_size":10.0)", "hidden_size", "an integer", "1E1"},
      {R"("hidden_size":10)", R"("hidden_size":"10")", "hidden_size", "an integer", "\"10\""},
      {R"("hidden_size":10,)", "", "hidden_size", "an integer", "none"},
      {R"("num_hidden_layers":3)", R"("num_hidden_layers":4)", "layer_types", "a list of 4", "3"},
      {R"("num_hidden_layers":3)", R"("num_hidden_layers":99999999999)", "num_hidden_layers",
       "an integer from 1 to 256", "99999999999"},
      {R"("full_attention")", R"("sliding_attention")", "layer_types[2]",
       "linear_attention or full_attention", "\"sliding_attention\""},
      {R"("linear_num_value_heads":4)", R"("linear_num_value_heads":3)", "linear_num_value_heads",
       "a multiple of linear_num_key_heads (2)", "3"},
      {R"("linear_num_value_heads":4)", R"("linear_num_value_heads":32)", "linear_num_value_heads",
       "at most 8", "16"},
      {R"("num_key_value_heads":2)", R"("num_key_value_heads":3)", "num_attention_heads",
       "a multiple", "4"},
      {R"("partial_rotary_factor":0.5)", R"("partial_rotary_factor":0.25)", "partial_rotary_factor",
       "an even number", "3"},
      {R"("rope_type":"default")", R"("rope_type":"linear")", "rope_parameters.rope_type",
       "default", "\"linear\""},
      {R"("rope_theta":10000)", R"("rope_theta":0)", "rope_theta", "a number from 1", "0"},
      {R"("rms_norm_eps":1e-6)", R"("rms_norm_eps":-1)", "rms_norm_eps", "a number", "-1"},
      {R"("linear_attention","linear_attention")", R"("full_attention","full_attention")",
       "layer_types", "a linear_attention layer", "none"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.to);
    const auto config = ModelConfig::Parse(With(TinyConfig(), c.from, c.to));
    ASSERT_FALSE(config);
    EXPECT_THAT(config.error().message(),
                HasSubstr("config.json: " + c.field + ": expected " + c.expected));
    EXPECT_THAT(config.error().message(), HasSubstr("found " + c.found));
  }
}

TEST(ModelConfigTest, ReadsAFolderAndSaysWhenItIsNone) {
  const ScratchFolder folder;
  EXPECT_EQ(ModelConfig::Read(folder.path()).error().code(), ErrorCode::kNotFound);
  folder.Write("config.json", TinyConfig());
  folder.Write("generation_config.json", R"({"eos_token_id":[7,3,7]})");
  const auto config = ModelConfig::Read(folder.path());
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_THAT(config->eos_ids, ElementsAre(3, 7));
  folder.Write("generation_config.json", R"({"eos_token_id":99})");
  EXPECT_THAT(ModelConfig::Read(folder.path()).error().message(),
              HasSubstr("generation_config.json: eos_token_id: expected ids below"));
}

// Sessions are bound to it: it must see what changes the forward pass, and nothing else.
TEST(ModelConfigTest, ForwardTextSeesWhatTheForwardPassReads) {
  const auto text = [](std::string_view from, std::string_view to) {
    const auto config = ModelConfig::Parse(With(std::string(kNineB), from, to));
    EXPECT_TRUE(config) << config.error().message();
    return config ? config->ForwardText() : "";
  };
  const std::string same = text(R"("rms_norm_eps")", R"("rms_norm_eps")");
  EXPECT_NE(text(R"("rms_norm_eps": 1e-06)", R"("rms_norm_eps": 1e-05)"), same);
  EXPECT_NE(text(R"("rope_theta": 10000000)", R"("rope_theta": 10000)"), same);
  EXPECT_EQ(text(R"("max_position_embeddings": 262144)", R"("max_position_embeddings": 1024)"),
            same);
}

}  // namespace
}  // namespace mneme::model
