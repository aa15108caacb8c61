// The configuration of the authors' 340M model as it is published, then bent in one field at a
// time.
#include "model/mhla_config.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

// Every field of the published file.
constexpr std::string_view kPublished = R"({
  "attn_mode": "chunk", "bos_token_id": 1, "clamp_min": null, "eos_token_id": 2, "expand_k": 0.5,
  "expand_v": 1, "feature_map": "relu", "fuse_cross_entropy": true, "fuse_norm": true,
  "hidden_act": "swish", "hidden_ratio": 4, "hidden_size": 1024, "initializer_range": 0.02,
  "intermediate_size": null, "model_type": "gla", "num_heads": 4, "num_hidden_layers": 24,
  "norm_eps": 1e-06, "tie_word_embeddings": true, "use_cache": true, "vocab_size": 32000,
  "use_gk": true, "use_gv": false})";

TEST(MhlaConfigTest, ReadsThePublishedSizes) {
  const auto config = MhlaConfig::Parse(kPublished);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->hidden, 1024);
  EXPECT_EQ(config->layers, 24);
  EXPECT_EQ(config->heads, 4);
  EXPECT_EQ(config->key_dim, 128);
  EXPECT_EQ(config->value_dim, 256);
  EXPECT_EQ(config->intermediate, 2816);
  EXPECT_EQ(config->vocab, 32000);
  EXPECT_EQ(config->trained_tokens, 2048);
  EXPECT_EQ(config->epsilon, 1e-6f);
  EXPECT_TRUE(config->tied);
  EXPECT_TRUE(config->fused_norm);
  EXPECT_EQ(config->bos_id, 1);
  EXPECT_EQ(config->eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(config->Shape().projected_width(), 2 * 512 + 2 * 1024);
}

// The published configuration with one field more or another.
std::string Bent(std::string_view name, std::string_view value) {
  std::string text(kPublished);
  const std::string quoted = "\"" + std::string(name) + "\":";
  if (const size_t at = text.find(quoted); at != std::string::npos) {
    size_t end = text.find_first_of(",}", at);
    if (text[end] == ',') ++end;
    text.erase(at, end - at);
  }
  return text.insert(1, quoted + std::string(value) + ",");
}

std::string Refusal(std::string_view name, std::string_view value) {
  const auto config = MhlaConfig::Parse(Bent(name, value));
  return config ? "accepted" : config.error().message();
}

TEST(MhlaConfigTest, RefusesByNameWhatItDoesNotCompute) {
  EXPECT_EQ(Refusal("attn_extends", R"("gla")"),
            R"(config.json: attn_extends: expected "mhla", found "gla", which is not supported)");
  EXPECT_EQ(Refusal("feature_map", R"("elu")"),
            R"(config.json: feature_map: expected "relu", found "elu")");
  EXPECT_EQ(Refusal("feature_map", "null"),
            R"(config.json: feature_map: expected "relu", found none)");
  EXPECT_EQ(Refusal("num_kv_heads", "2"),
            "config.json: num_kv_heads: expected as many as num_heads (4), found 2, which is not "
            "supported");
  EXPECT_EQ(Refusal("use_short_conv", "true"),
            "config.json: use_short_conv: expected none, found true: short convolutions are not "
            "supported");
  EXPECT_EQ(Refusal("attn", R"({"layers":[1]})"),
            R"(config.json: attn: expected none, found {"layers":[1]}: layers of full attention )"
            "are not supported");
  EXPECT_EQ(Refusal("use_output_gate", "false"),
            "config.json: use_output_gate: expected true, found false, which is not supported");
  EXPECT_EQ(Refusal("hidden_act", R"("gelu")"),
            R"(config.json: hidden_act: expected "swish", found "gelu", which is not supported)");
}

TEST(MhlaConfigTest, RefusesSizesThatDoNotFitTogether) {
  EXPECT_EQ(Refusal("num_heads", "3"),
            "config.json: expand_k: expected 3 heads of 1 to 512 dims each, found 512 dims in all");
  EXPECT_EQ(Refusal("hidden_size", "8"),
            "config.json: expand_k: expected an even number of dims of a key head, found 1");
  EXPECT_EQ(Refusal("vocab_size", "0"),
            "config.json: vocab_size: expected an integer from 1 to 1048576, found 0");
  EXPECT_EQ(Refusal("hidden_size", R"("wide")"),
            R"(config.json: hidden_size: expected an integer from 1 to 32768, found "wide")");
  EXPECT_EQ(Refusal("eos_token_id", "32000"),
            "config.json: eos_token_id: expected ids below vocab_size 32000, found 32000");
  EXPECT_EQ(Refusal("norm_eps", "0"),
            "config.json: norm_eps: expected a number from 1e-12 to 0.1, found 0");
}

TEST(MhlaConfigTest, TakesTheDefaultsOfItsAuthors) {
  const auto config = MhlaConfig::Parse(
      R"({"model_type":"gla","hidden_size":64,"num_hidden_layers":1,"num_heads":2,)"
      R"("vocab_size":10,"feature_map":"relu"})");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->key_dim, 16);
  EXPECT_EQ(config->value_dim, 32);
  EXPECT_EQ(config->intermediate, 256);
  EXPECT_EQ(config->trained_tokens, 2048);
  EXPECT_FALSE(config->tied);
  EXPECT_EQ(config->bos_id, -1);
  EXPECT_TRUE(config->eos_ids.empty());
}

TEST(MhlaConfigTest, TheModelTypeTellsTheLayout) {
  const support::ScratchFolder folder;
  EXPECT_FALSE(IsMhlaFolder(folder.path()));
  folder.Write("config.json", kPublished);
  const auto mhla = IsMhlaFolder(folder.path());
  ASSERT_TRUE(mhla);
  EXPECT_TRUE(*mhla);
  folder.Write("config.json", support::TinyConfig());
  const auto other = IsMhlaFolder(folder.path());
  ASSERT_TRUE(other);
  EXPECT_FALSE(*other);
  EXPECT_FALSE(IsMhlaFolder(folder.path() / "nowhere"));
}

}  // namespace
}  // namespace mneme::model
