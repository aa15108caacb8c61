// The HLA layout's configuration and tensors: what loads, what its twin leaves out, and every
// switch and tensor that would change answers in silence refused by its name.
#include "model/hla_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/memory_needs.h"
#include "model/model_folder.h"
#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::Counting;
using support::FileOf;
using support::ScratchFolder;
using support::TestTensors;
using ::testing::HasSubstr;

constexpr std::string_view kConfig =
    R"({"model_type":"hla","n_embd":10,"n_layer":2,"intermediate_size":14,"vocab_size":18,)"
    R"("padded_vocab_size":20,"norm_eps":1e-6,"_norm_class":"SimpleRMSNorm",)"
    R"("_mlp_class":"LLaMAMLP","mamba_init":true,"nope":true,"gated_delta_per_layer":1,)"
    R"("gated_delta_variant":"gla_gdn","gated_delta_num_heads":2,"gated_delta_head_dim":6,)"
    R"("gated_delta_expand_v":1.5,"gated_delta_use_short_conv":false,"gated_delta_use_gate":true,)"
    R"("gated_delta_use_residual":false,"mix_chunk_size":256,"mix_pool_size":16,)"
    R"("gla_router_sigmoid_bias":2.2,"block_size":4096,"eos_token_id":2})";

// The configuration with the first `from` replaced.
std::string With(std::string_view from, std::string_view to) {
  std::string text(kConfig);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TestTensors HlaTensors(bool routed = true) {
  TestTensors tensors;
  tensors["transformer.wte.weight"] = Counting("F16", {20, 10});
  tensors["lm_head.weight"] = Counting("F16", {20, 10});
  tensors["transformer.ln_f.weight"] = Counting("F32", {10});
  for (int layer = 0; layer < 2; ++layer) {
    const auto add = [&](std::string_view name, std::vector<uint64_t> shape) {
      tensors[fmt::format("transformer.h.{}.{}", layer, name)] = Counting("BF16", std::move(shape));
    };
    add("norm_1.weight", {10});
    add("norm_2.weight", {10});
    add("mlp.gate_proj.weight", {28, 10});
    add("mlp.down_proj.weight", {10, 14});
    add("attn.q_proj.weight", {12, 10});
    add("attn.k_proj.weight", {12, 10});
    add("attn.v_proj.weight", {18, 10});
    add("attn.g_proj.weight", {18, 10});
    add("attn.a_proj.weight", {2, 10});
    add("attn.b_proj.weight", {2, 10});
    add("attn.o_proj.weight", {10, 18});
    add("attn.A_log", {2});
    add("attn.dt_bias", {2});
    add("attn.D", {2});
    add("attn.o_norm.weight", {9});
    if (!routed) continue;
    for (const char* part : {"q", "pool_attn_k", "pool_attn_v", "pool_attn_o"})
      add(fmt::format("attn.route_{}_proj.weight", part), {2, 6, 6});
  }
  return tensors;
}

std::string RefusalOf(const std::string& config, const TestTensors& tensors = HlaTensors()) {
  const ScratchFolder folder;
  folder.Write("config.json", config);
  folder.Write("model.safetensors", FileOf(tensors));
  const auto opened = ModelFolder::Open(folder.path());
  return opened ? "accepted" : opened.error().message();
}

TEST(HlaLayoutTest, ReadsTheReleasedSizes) {
  std::string text(kConfig);
  for (const auto& [from, to] :
       {std::pair{"\"n_embd\":10", "\"n_embd\":2048"},
        {"\"n_layer\":2", "\"n_layer\":24"},
        {"\"intermediate_size\":14", "\"intermediate_size\":5632"},
        {"\"vocab_size\":18,\"padded_vocab_size\":20", "\"vocab_size\":32000"},
        {"\"gated_delta_num_heads\":2", "\"gated_delta_num_heads\":4"},
        {"\"gated_delta_head_dim\":6", "\"gated_delta_head_dim\":256"},
        {"\"gated_delta_expand_v\":1.5", "\"gated_delta_expand_v\":1.0"}})
    text.replace(text.find(from), std::string_view(from).size(), to);
  const auto config = ModelConfig::Parse(text);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->layer_count(), 24);
  EXPECT_EQ(config->attention_layers(), 0);
  EXPECT_EQ(config->key_dim, 256);
  EXPECT_EQ(config->value_dim, 256);
  EXPECT_EQ(config->vocab, 32000);
  EXPECT_EQ(config->conv_taps, 0);
  EXPECT_TRUE(config->plain_norms && config->tied);
  EXPECT_EQ(config->positions_max, kPositionsMax) << "block_size is no limit";
  ASSERT_TRUE(config->router.has_value());
  EXPECT_EQ(config->router->window_tokens, 16);
  EXPECT_EQ(config->router->theta, 0.0f);
  EXPECT_EQ(config->router->bias, 2.2f);
  EXPECT_EQ(config->router->pages_max, kPagesMaxMax);
  EXPECT_EQ(config->Linear(256, 16, 256).representatives(), 16);
}

TEST(HlaLayoutTest, LoadsWithTheRouterOfTheCheckpoint) {
  const ScratchFolder folder;
  folder.Write("config.json", With("\"block_size\":4096", "\"route_theta\":0.1"));
  const TestTensors tensors = HlaTensors();
  folder.Write("model.safetensors", FileOf(tensors));
  const auto opened = ModelFolder::Open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->router().default_reader(), memory::Reader::kHla);
  EXPECT_EQ(opened->router().theta(), 0.1f);
  EXPECT_TRUE(opened->router().FingerprintFiles(memory::Reader::kHla).empty())
      << "the weights' own fingerprint covers it";
  EXPECT_EQ(opened->weights().skipped_tensors, 3u) << "the tied head and two of D";
  const LayerWeights& layer = opened->weights().layers[1];
  // Gate rows first, then up rows.
  const std::string& both = tensors.at("transformer.h.1.mlp.gate_proj.weight").bytes;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(layer.mlp_gate.bytes), 280),
            both.substr(0, 280));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(layer.mlp_up.bytes), 280), both.substr(280));
  const LayerHistory& history = opened->router().layers()[1];
  ASSERT_TRUE(history.route.has_value());
  for (int head = 0; head < 2; ++head) {
    float bias = 0;
    std::memcpy(&bias, history.route->bias.bytes + head * 4, sizeof(bias));
    EXPECT_EQ(bias, 2.2f);
  }
}

TEST(HlaLayoutTest, KeepsNoConvolutionTails) {
  const auto config = ModelConfig::Parse(kConfig);
  ASSERT_TRUE(config);
  const auto layout = LayoutOf(*config, RouterWeights::None(*config), memory::Reader::kNative,
                               kernels::Dtype::kF16);
  EXPECT_EQ(layout.conv_tail_floats(), 0u);
}

TEST(HlaLayoutTest, ThePlainTwinIsReadNativelyAndHasNoRouter) {
  const ScratchFolder folder;
  folder.Write("config.json", With("gla_gdn", "gdn"));
  folder.Write("model.safetensors", FileOf(HlaTensors(/*routed=*/false)));
  const auto opened = ModelFolder::Open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->router().default_reader(), memory::Reader::kNative);
  EXPECT_THAT(RefusalOf(With("gla_gdn", "gdn")),
              HasSubstr("transformer.h.0.attn.route_pool_attn_k_proj.weight: expected only tensors "
                        "of its plain twin with 2 layers"));
}

TEST(HlaLayoutTest, RefusesSwitchesThatTensorsDoNotShow) {
  for (const auto& [from, to, field] : {
           std::array{"\"gated_delta_use_residual\":false", "\"gated_delta_use_residual\":true",
                      "gated_delta_use_residual: expected false, found true"},
           {"\"gated_delta_use_residual\":false,", "",
            "gated_delta_use_residual: expected false, found none"},
           {"\"gated_delta_use_short_conv\":false", "\"gated_delta_use_short_conv\":true",
            "gated_delta_use_short_conv: expected false"},
           {"\"nope\":true", "\"nope\":false", "nope: expected true"},
           {"SimpleRMSNorm", "LayerNorm", "_norm_class: expected \"SimpleRMSNorm\""},
           {"\"mix_chunk_size\":256", "\"mix_chunk_size\":128", "mix_chunk_size: expected 256"},
           {"\"mix_pool_size\":16", "\"mix_pool_size\":24", "mix_pool_size: expected a divisor"},
           {"\"gla_router_sigmoid_bias\":2.2", "\"gla_router_sigmoid_bias\":0",
            "gla_router_sigmoid_bias: expected a number from 2.2 to 2.2, found 0"},
           {"\"block_size\":4096", "\"gla_router_use_rope\":true", "gla_router_use_rope"},
           {"\"block_size\":4096", "\"route_theta\":1", "route_theta: expected a number from 0"},
           {"\"block_size\":4096", "\"route_pages_max\":257",
            "route_pages_max: expected an integer"},
           {"gla_gdn", "kda", "gated_delta_variant: expected gla_gdn or gdn, found \"kda\""},
           {"\"gated_delta_expand_v\":1.5", "\"gated_delta_expand_v\":1.4",
            "gated_delta_expand_v: expected a whole value width"},
           {"\"norm_eps\":1e-6", "\"norm_eps\":0", "norm_eps: expected a number"},
       })
    EXPECT_THAT(RefusalOf(With(from, to)), HasSubstr(field)) << from;
}

TEST(HlaLayoutTest, RefusesTensorsThatAreMissingUnknownOrOfAnotherShape) {
  TestTensors tensors = HlaTensors();
  tensors.erase("transformer.h.1.attn.route_q_proj.weight");
  EXPECT_THAT(RefusalOf(std::string(kConfig), tensors),
              HasSubstr("transformer.h.1.attn.route_q_proj.weight: expected shape [2, 6, 6], found "
                        "no such tensor"));
  tensors = HlaTensors();
  tensors["transformer.h.0.mlp.gate_proj.weight"] = Counting("F32", {14, 10});
  EXPECT_THAT(RefusalOf(std::string(kConfig), tensors),
              HasSubstr("mlp.gate_proj.weight: expected shape [28, 10], found [14, 10]"));
  tensors = HlaTensors();
  tensors["transformer.h.0.attn.q_conv1d.weight"] = Counting("F32", {12, 1, 4});
  EXPECT_THAT(RefusalOf(std::string(kConfig), tensors),
              HasSubstr("attn.q_conv1d.weight: expected only tensors of an HLA model"));
}

TEST(HlaLayoutTest, RefusesASecondRouterBesideIt) {
  const ScratchFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", FileOf(HlaTensors()));
  folder.Write("router.safetensors", "");
  const auto opened = ModelFolder::Open(folder.path());
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(),
              HasSubstr("router.safetensors: expected no such file, since the checkpoint has a "
                        "router of its own"));
}

}  // namespace
}  // namespace mneme::model
