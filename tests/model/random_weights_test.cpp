// Random weights have every tensor in the shape that the configuration calls for, and a model made
// of them reads and generates finite numbers, the same each time.
#include "model/random_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/local_session.h"

namespace mneme::model {
namespace {

// Of everything that stands in a folder of that configuration.
uint64_t ElementsOf(const Weights& weights) {
  const auto count = [](std::initializer_list<TensorView> views) {
    uint64_t sum = 0;
    for (const TensorView& view : views) sum += static_cast<uint64_t>(view.elements());
    return sum;
  };
  uint64_t sum = count({weights.embedding, weights.final_norm});
  for (const LayerWeights& layer : weights.layers) {
    sum += count({layer.input_norm, layer.mlp_norm, layer.mlp_gate, layer.mlp_up, layer.mlp_down});
    const LinearWeights& linear = layer.linear;
    const AttentionWeights& attention = layer.attention;
    sum += layer.kind == LayerKind::kLinear
               ? count({linear.project_qkv[0], linear.project_z, linear.project_b, linear.project_a,
                        linear.conv, linear.decay_log, linear.dt_bias, linear.norm,
                        linear.project_out})
               : count({attention.project_q, attention.project_k, attention.project_v,
                        attention.project_out, attention.q_norm, attention.k_norm});
  }
  return sum;
}

ModelConfig SmallHybrid() {
  auto config = PublishedShape("0.8b");
  EXPECT_TRUE(config);
  config->hidden = 64;
  config->intermediate = 96;
  config->vocab = 500;
  config->layers.resize(4);
  config->key_heads = config->value_heads = 2;
  config->key_dim = config->value_dim = 16;
  config->query_heads = 2;
  config->kv_heads = 1;
  config->attention_dim = 32;
  config->rotary_dim = 8;
  return *config;
}

TEST(RandomWeightsTest, ThePublishedShapeHasThePublishedNumberOfParameters) {
  auto config = PublishedShape("0.8b");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->linear_layers(), 18);
  EXPECT_EQ(config->attention_layers(), 6);
  config->vocab = 1000;  // the rest of it need not be made
  const RandomWeights random(*config);
  const uint64_t whole = ElementsOf(random.weights()) + uint64_t{248'320 - 1000} * 1024;
  EXPECT_NEAR(static_cast<double>(whole), 752.4e6, 0.1e6);
}

TEST(RandomWeightsTest, AnUnknownShapeIsRefusedByName) {
  const auto config = PublishedShape("7b");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(config.error().message(), "shape 7b: expected 0.8b");
}

TEST(RandomWeightsTest, AModelOfThemComputesTheSameFiniteNumbersEachTime) {
  const ModelConfig config = SmallHybrid();
  const std::vector<int32_t> tokens(300, 7);
  std::vector<std::vector<float>> found;
  for (int time = 0; time < 2; ++time) {
    const auto model = LocalModel::Random(config, {});
    ASSERT_TRUE(model) << model.error().message();
    LocalSession session(**model);
    ASSERT_TRUE(session.Read(tokens));
    ASSERT_TRUE(session.Feed(11));
    std::vector<float> logits(static_cast<size_t>(config.vocab));
    ASSERT_TRUE(session.Next({}, logits));
    EXPECT_TRUE(
        std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
    EXPECT_NE(*std::min_element(logits.begin(), logits.end()),
              *std::max_element(logits.begin(), logits.end()));
    found.push_back(std::move(logits));
  }
  EXPECT_TRUE(found[0] == found[1]);
}

}  // namespace
}  // namespace mneme::model
