#include "model/hla_layout.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "model/router_weights.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kResidual = ".attn.D";

struct Switch {
  std::string_view name;
  std::string_view wanted;  // as JSON
};

// As released. Absent counts as another value: the authors' own defaults are others.
constexpr Switch kSwitches[] = {
    {"gated_delta_per_layer", "1"},
    {"gated_delta_use_short_conv", "false"},
    {"gated_delta_use_gate", "true"},
    {"gated_delta_use_residual", "false"},
    {"_norm_class", "\"SimpleRMSNorm\""},
    {"_mlp_class", "\"LLaMAMLP\""},
    {"mamba_init", "true"},
    {"nope", "true"},
};
// Absent counts as what was released, which is the authors' default too.
constexpr Switch kRouterSwitches[] = {
    {"mix_chunk_size", "256"},
    {"mix_apply_gdn_decay", "false"},
    {"gla_router_route_source", "\"raw_qk\""},
    {"gla_router_use_logmean", "true"},
    {"gla_router_use_rope", "false"},
    {"gla_router_pool_self_attention", "true"},
    {"gla_router_gate", "\"affine_sigmoid\""},
};
static_assert(kChunkTokens == 256, "mix_chunk_size");

Status ReadSwitches(const ConfigFields& fields) {
  for (const Switch& each : kSwitches) {
    if (fields.Find(each.name) == nullptr)
      return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected {}, found none", kConfigName,
                  each.name, each.wanted);
    MNEME_TRY(fields.Only(each.name, each.wanted));
  }
  return {};
}

Status ReadRouter(ModelConfig& config, const ConfigFields& fields) {
  for (const Switch& each : kRouterSwitches) MNEME_TRY(fields.Only(each.name, each.wanted));
  const json::value* bias = fields.Find("gla_router_sigmoid_bias");
  if (bias != nullptr)
    MNEME_TRY(ConfigNumber(bias, "gla_router_sigmoid_bias", kHlaRouteBias, kHlaRouteBias));
  BuiltInRouter router;
  router.bias = static_cast<float>(kHlaRouteBias);
  router.pages_max = kPagesMaxMax;
  MNEME_TRY(
      fields.Integer(router.window_tokens, "mix_pool_size", {kWindowTokensMin, kChunkTokens}));
  if (kChunkTokens % router.window_tokens != 0)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: mix_pool_size: expected a divisor of {}, found {}", kConfigName, kChunkTokens,
                router.window_tokens);
  if (fields.Find("route_pages_max") != nullptr)
    MNEME_TRY(fields.Integer(router.pages_max, "route_pages_max", {1, kPagesMaxMax}));
  if (const json::value* theta = fields.Find("route_theta"); theta != nullptr) {
    auto value = ConfigNumber(theta, "route_theta", 0, std::nextafter(1.0, 0.0));
    MNEME_TRY(value);
    router.theta = static_cast<float>(*value);
  }
  config.router = router;
  return {};
}

uint64_t U(int value) { return static_cast<uint64_t>(value); }

// Rows [first, first + rows) of `view`.
TensorView RowsOf(const TensorView& view, int64_t first, int64_t rows) {
  TensorView part = view;
  part.bytes += static_cast<size_t>(first * view.cols) * kernels::BytesOf(view.dtype);
  part.rows = rows;
  return part;
}

Status TakeRouter(RouteWeights& route, TensorTaker& taker, const ModelConfig& config,
                  const std::string& at) {
  const std::vector<uint64_t> shape = {U(config.key_heads), U(config.key_dim), U(config.key_dim)};
  for (const auto& [name, view] : {std::pair{"route_q_proj", &route.query},
                                   std::pair{"route_pool_attn_k_proj", &route.pool_key},
                                   std::pair{"route_pool_attn_v_proj", &route.pool_value},
                                   std::pair{"route_pool_attn_o_proj", &route.pool_output}}) {
    MNEME_TRY(taker.Take(*view, fmt::format("{}{}.weight", at, name), shape));
    view->rows = int64_t{config.key_heads} * config.key_dim;
    view->cols = config.key_dim;
  }
  return {};
}

Status TakeLayer(LayerWeights& layer, TensorTaker& taker, const ModelConfig& config,
                 const std::string& at) {
  const uint64_t hidden = U(config.hidden);
  const uint64_t wide = U(config.intermediate);
  const uint64_t keys = U(config.key_width());
  const uint64_t values = U(config.value_width());
  const uint64_t heads = U(config.value_heads);
  MNEME_TRY(taker.Take(layer.input_norm, at + "norm_1.weight", {hidden}));
  MNEME_TRY(taker.Take(layer.mlp_norm, at + "norm_2.weight", {hidden}));
  TensorView gate_up;
  MNEME_TRY(taker.Take(gate_up, at + "mlp.gate_proj.weight", {2 * wide, hidden}));
  layer.mlp_gate = RowsOf(gate_up, 0, config.intermediate);
  layer.mlp_up = RowsOf(gate_up, config.intermediate, config.intermediate);
  MNEME_TRY(taker.Take(layer.mlp_down, at + "mlp.down_proj.weight", {hidden, wide}));

  LinearWeights& linear = layer.linear;
  linear.project_qkv.resize(3);
  MNEME_TRY(taker.Take(linear.project_qkv[0], at + "attn.q_proj.weight", {keys, hidden}));
  MNEME_TRY(taker.Take(linear.project_qkv[1], at + "attn.k_proj.weight", {keys, hidden}));
  MNEME_TRY(taker.Take(linear.project_qkv[2], at + "attn.v_proj.weight", {values, hidden}));
  MNEME_TRY(taker.Take(linear.project_z, at + "attn.g_proj.weight", {values, hidden}));
  MNEME_TRY(taker.Take(linear.project_b, at + "attn.b_proj.weight", {heads, hidden}));
  MNEME_TRY(taker.Take(linear.project_a, at + "attn.a_proj.weight", {heads, hidden}));
  MNEME_TRY(taker.Take(linear.decay_log, at + "attn.A_log", {heads}));
  MNEME_TRY(taker.Take(linear.dt_bias, at + "attn.dt_bias", {heads}));
  MNEME_TRY(taker.Take(linear.norm, at + "attn.o_norm.weight", {U(config.value_dim)}));
  MNEME_TRY(taker.Take(linear.project_out, at + "attn.o_proj.weight", {hidden, values}));
  if (!config.router) return {};
  layer.route.emplace();
  return TakeRouter(*layer.route, taker, config, at + "attn.");
}

}  // namespace

Status ReadHlaConfig(ModelConfig& config, const ConfigFields& fields) {
  MNEME_TRY(ReadSwitches(fields));
  MNEME_TRY(fields.Integer(config.hidden, "n_embd", {1, kHiddenMax}));
  MNEME_TRY(fields.Integer(config.intermediate, "intermediate_size", {1, kIntermediateMax}));
  const bool padded = fields.Find("padded_vocab_size") != nullptr;
  MNEME_TRY(
      fields.Integer(config.vocab, padded ? "padded_vocab_size" : "vocab_size", {1, kVocabMax}));
  int layers = 0;
  MNEME_TRY(fields.Integer(layers, "n_layer", {1, kLayersMax}));
  config.layers.assign(static_cast<size_t>(layers), LayerKind::kLinear);
  MNEME_TRY(fields.Integer(config.value_heads, "gated_delta_num_heads", {1, kHeadsMax}));
  config.key_heads = config.value_heads;
  MNEME_TRY(fields.Integer(config.key_dim, "gated_delta_head_dim", {1, kHeadDimMax}));
  auto expand = ConfigNumber(fields.Find("gated_delta_expand_v"), "gated_delta_expand_v",
                             1.0 / kHeadDimMax, kHeadDimMax);
  MNEME_TRY(expand);
  const double value_dim = config.key_dim * *expand;
  if (value_dim != std::floor(value_dim) || value_dim < 1 || value_dim > kHeadDimMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: gated_delta_expand_v: expected a whole value width of 1 to {} from a head of "
                "{}, found {}",
                kConfigName, kHeadDimMax, config.key_dim, value_dim);
  config.value_dim = static_cast<int>(value_dim);
  auto epsilon = ConfigNumber(fields.Find("norm_eps"), "norm_eps", 1e-12, 1e-1);
  MNEME_TRY(epsilon);
  config.epsilon = static_cast<float>(*epsilon);
  config.conv_taps = 0;
  config.plain_norms = true;
  config.tied = true;
  config.positions_max = kPositionsMax;  // nothing in the model knows a position

  const json::value* variant = fields.Find("gated_delta_variant");
  const json::string* name = variant == nullptr ? nullptr : variant->if_string();
  if (name != nullptr && *name == "gla_gdn") return ReadRouter(config, fields);
  if (name != nullptr && *name == "gdn") return {};
  return Fail(ErrorCode::kInvalidArgument,
              "{}: gated_delta_variant: expected gla_gdn or gdn, found {}", kConfigName,
              Found(variant));
}

Status TakeHlaWeights(Weights& weights, TensorTaker& taker, const ModelConfig& config) {
  const uint64_t hidden = U(config.hidden);
  MNEME_TRY(taker.Take(weights.embedding, "transformer.wte.weight", {U(config.vocab), hidden}));
  MNEME_TRY(taker.Take(weights.final_norm, "transformer.ln_f.weight", {hidden}));
  weights.head = weights.embedding;
  weights.layers.resize(config.layers.size());
  for (size_t layer = 0; layer < config.layers.size(); ++layer)
    MNEME_TRY(
        TakeLayer(weights.layers[layer], taker, config, fmt::format("transformer.h.{}.", layer)));
  auto skipped = taker.CountSkipped(
      [](std::string_view name) { return name == kHead || name.ends_with(kResidual); },
      fmt::format("{} with {} layers", config.router ? "an HLA model" : "its plain twin",
                  config.layer_count()));
  MNEME_TRY(skipped);
  weights.skipped_tensors = *skipped;
  return {};
}

}  // namespace mneme::model
