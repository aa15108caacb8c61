#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <cmath>
#include <string>
#include <utility>

#include "model/config_fields.h"
#include "model/hla_layout.h"
#include "model/mapped_file.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

constexpr std::string_view kGenerationName = "generation_config.json";

Status RefuseUnsupported(const ConfigFields& fields) {
  MNEME_TRY(fields.Absent("num_experts", "mixtures of experts are"));
  MNEME_TRY(fields.Absent("num_local_experts", "mixtures of experts are"));
  MNEME_TRY(fields.Absent("moe_intermediate_size", "mixtures of experts are"));
  MNEME_TRY(fields.Absent("quantization_config", "quantised weights are"));
  MNEME_TRY(fields.Absent("quantization", "quantised weights are"));
  MNEME_TRY(fields.Absent("use_sliding_window", "sliding windows are"));
  MNEME_TRY(fields.Only("hidden_act", "\"silu\""));
  MNEME_TRY(fields.Only("attention_bias", "false"));
  MNEME_TRY(fields.Only("mlp_bias", "false"));
  MNEME_TRY(fields.Only("attn_output_gate", "true"));
  MNEME_TRY(fields.Only("linear_conv_kernel_dim", std::to_string(kernels::kConvTaps)));
  return {};
}

// Which layout the folder has; without a model_type it is Qwen3.5's, where nothing else fits.
Result<ModelLayout> LayoutNamed(const json::object& top, const json::object& text) {
  if (const json::value* type = top.if_contains("model_type");
      type != nullptr && type->is_string() && type->get_string() == kHlaModelType)
    return ModelLayout::kHla;
  for (const json::object* object : {&top, &text}) {
    const json::value* value = object->if_contains("model_type");
    if (value == nullptr) continue;
    const json::string* type = value->if_string();
    if (type == nullptr || (*type != "qwen3_5" && *type != "qwen3_5_text"))
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: model_type: expected qwen3_5, qwen3_5_text, {} or gla, found {}",
                  kConfigName, kHlaModelType, Found(value));
  }
  return ModelLayout::kQwen35;
}

Status ReadLayers(ModelConfig& config, const ConfigFields& fields) {
  int count = 0;
  MNEME_TRY(fields.Integer(count, "num_hidden_layers", {1, kLayersMax}));
  const json::value* types = fields.Find("layer_types");
  if (types == nullptr) {
    int interval = 4;  // what the published sizes use, and transformers' default
    if (fields.Find("full_attention_interval") != nullptr)
      MNEME_TRY(fields.Integer(interval, "full_attention_interval", {1, 1 << 20}));
    for (int layer = 0; layer < count; ++layer) {
      const bool attention = (layer + 1) % interval == 0;
      config.layers.push_back(attention ? LayerKind::kAttention : LayerKind::kLinear);
    }
    return {};
  }
  const json::array* list = types->if_array();
  if (list == nullptr || list->size() != static_cast<size_t>(count))
    return Fail(ErrorCode::kInvalidArgument, "{}: layer_types: expected a list of {}, found {}",
                kConfigName, count,
                list == nullptr ? std::string("no list") : fmt::format("{}", list->size()));
  for (const json::value& item : *list) {
    const json::string* type = item.if_string();
    if (type != nullptr && *type == "linear_attention") {
      config.layers.push_back(LayerKind::kLinear);
    } else if (type != nullptr && *type == "full_attention") {
      config.layers.push_back(LayerKind::kAttention);
    } else {
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: layer_types[{}]: expected linear_attention or full_attention, found {}",
                  kConfigName, config.layers.size(), Found(&item));
    }
  }
  return {};
}

Status ReadLinear(ModelConfig& config, const ConfigFields& fields) {
  MNEME_TRY(fields.Integer(config.key_heads, "linear_num_key_heads", {1, kHeadsMax}));
  MNEME_TRY(fields.Integer(config.value_heads, "linear_num_value_heads", {1, kHeadsMax}));
  MNEME_TRY(fields.Integer(config.key_dim, "linear_key_head_dim", {1, kHeadDimMax}));
  MNEME_TRY(fields.Integer(config.value_dim, "linear_value_head_dim", {1, kHeadDimMax}));
  MNEME_TRY(CheckMultiple("linear_num_value_heads", config.value_heads, "linear_num_key_heads",
                          config.key_heads));
  if (config.value_heads / config.key_heads > kValueHeadsPerKeyHeadMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: linear_num_value_heads: expected at most {} to a key head, found {}",
                kConfigName, kValueHeadsPerKeyHeadMax, config.value_heads / config.key_heads);
  return {};
}

Status ReadRope(ModelConfig& config, const ConfigFields& fields) {
  const json::object none;
  const json::object* rope = &none;
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    const json::value* value = fields.Find(name);
    if (value == nullptr) continue;
    const json::object* object = value->if_object();
    if (object == nullptr)
      return Fail(ErrorCode::kCorruption, "{}: {}: expected an object, found {}", kConfigName, name,
                  Found(value));
    rope = object;
    for (const std::string_view key : {"rope_type", "type"}) {
      const json::value* type = object->if_contains(key);
      if (type == nullptr || type->is_null()) continue;
      if (!type->is_string() || type->get_string() != "default")
        return Fail(ErrorCode::kInvalidArgument,
                    "{}: {}.{}: expected default, found {}: rope scaling is not supported",
                    kConfigName, name, key, Found(type));
    }
  }
  const auto either = [&](std::string_view name) {
    const json::value* value = rope->if_contains(name);
    return value != nullptr && !value->is_null() ? value : fields.Find(name);
  };
  auto theta = ConfigNumber(either("rope_theta"), "rope_theta", 1, 1e12);
  if (!theta) return Fail(std::move(theta).error());
  const json::value* factor_value = either("partial_rotary_factor");
  double factor = 0.25;  // what every published size uses, and transformers' default
  if (factor_value != nullptr) {
    auto factor_read = ConfigNumber(factor_value, "partial_rotary_factor", 0, 1);
    if (!factor_read) return Fail(std::move(factor_read).error());
    factor = *factor_read;
  }
  config.rope_theta = *theta;
  config.rotary_dim = static_cast<int>(config.attention_dim * factor);
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: partial_rotary_factor: expected an even number of at least 2 dims of head_dim "
                "{}, found {}",
                kConfigName, config.attention_dim, config.rotary_dim);
  return {};
}

// Only where the model has such layers: an all-linear folder need not say anything of them.
Status ReadAttention(ModelConfig& config, const ConfigFields& fields) {
  if (config.attention_layers() == 0) return {};
  MNEME_TRY(fields.Integer(config.query_heads, "num_attention_heads", {1, kHeadsMax}));
  MNEME_TRY(fields.Integer(config.kv_heads, "num_key_value_heads", {1, kHeadsMax}));
  config.attention_dim = 256;  // transformers' default
  if (fields.Find("head_dim") != nullptr)
    MNEME_TRY(fields.Integer(config.attention_dim, "head_dim", {1, kHeadDimMax}));
  MNEME_TRY(CheckMultiple("num_attention_heads", config.query_heads, "num_key_value_heads",
                          config.kv_heads));
  return ReadRope(config, fields);
}

Status ReadTied(ModelConfig& config, const json::object& top, const json::object& text) {
  const json::value* values[] = {top.if_contains("tie_word_embeddings"),
                                 text.if_contains("tie_word_embeddings")};
  const bool* first = nullptr;
  for (const json::value* value : values) {
    if (value == nullptr || value->is_null()) continue;
    const bool* flag = value->if_bool();
    if (flag == nullptr)
      return Fail(ErrorCode::kCorruption,
                  "{}: tie_word_embeddings: expected true or false, found {}", kConfigName,
                  Found(value));
    config.tied_unsure = config.tied_unsure || (first != nullptr && *first != *flag);
    first = flag;
  }
  config.tied = config.tied_unsure || (first != nullptr && *first);
  return {};
}

Status AddEos(ModelConfig& config, const json::object& object, std::string_view file) {
  const auto ids =
      ConfigIds(object.if_contains("eos_token_id"), "eos_token_id", config.vocab, file);
  MNEME_TRY(ids);
  config.eos_ids.insert(config.eos_ids.end(), ids->begin(), ids->end());
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  const auto end = std::unique(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(end, config.eos_ids.end());
  return {};
}

Status ReadFields(ModelConfig& config, const json::object& top, const json::object& text) {
  const ConfigFields fields(top, text);
  const auto layout = LayoutNamed(top, text);
  MNEME_TRY(layout);
  config.layout = *layout;
  if (*layout == ModelLayout::kHla) {
    MNEME_TRY(ReadHlaConfig(config, fields));
    return AddEos(config, top, kConfigName);
  }
  MNEME_TRY(RefuseUnsupported(fields));
  MNEME_TRY(fields.Integer(config.hidden, "hidden_size", {1, kHiddenMax}));
  MNEME_TRY(fields.Integer(config.intermediate, "intermediate_size", {1, kIntermediateMax}));
  MNEME_TRY(fields.Integer(config.vocab, "vocab_size", {1, kVocabMax}));
  MNEME_TRY(ReadLayers(config, fields));
  if (config.linear_layers() == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: layer_types: expected a linear_attention layer, found none", kConfigName);
  MNEME_TRY(ReadLinear(config, fields));
  MNEME_TRY(ReadAttention(config, fields));
  MNEME_TRY(fields.Integer(config.positions_max, "max_position_embeddings", {1, kPositionsMax}));
  auto epsilon = ConfigNumber(fields.Find("rms_norm_eps"), "rms_norm_eps", 1e-12, 1e-1);
  if (!epsilon) return Fail(std::move(epsilon).error());
  config.epsilon = static_cast<float>(*epsilon);
  MNEME_TRY(ReadTied(config, top, text));
  MNEME_TRY(fields.Flag(config.thinking, "mneme_thinking"));
  MNEME_TRY(AddEos(config, text, kConfigName));
  return AddEos(config, top, kConfigName);
}

}  // namespace

Result<ModelConfig> ModelConfig::Read(const std::filesystem::path& folder) {
  auto config = ReadTextFile(folder / kConfigName, kConfigBytesMax);
  if (!config) return Fail(std::move(config).error());
  std::string generation;
  std::error_code ignored;
  if (std::filesystem::exists(folder / kGenerationName, ignored)) {
    auto text = ReadTextFile(folder / kGenerationName, kConfigBytesMax);
    if (!text) return Fail(std::move(text).error());
    generation = *std::move(text);
  }
  return Parse(*config, generation);
}

Result<ModelConfig> ModelConfig::Parse(std::string_view config_text, std::string_view generation) {
  auto top = ParseConfig(config_text);
  if (!top) return Fail(std::move(top).error());
  const json::object none;
  const json::object* text = &none;
  if (const json::value* nested = top->if_contains("text_config"); nested != nullptr) {
    if (!nested->is_object())
      return Fail(ErrorCode::kCorruption, "{}: text_config: expected an object, found {}",
                  kConfigName, Found(nested));
    text = &nested->get_object();
  }
  ModelConfig config;
  MNEME_TRY(ReadFields(config, *top, *text));
  if (!generation.empty()) {
    auto object = ParseConfig(generation, kGenerationName);
    if (!object) return Fail(std::move(object).error());
    MNEME_TRY(AddEos(config, *object, kGenerationName));
  }
  return config;
}

Status ModelConfig::CheckThinking(bool wanted) const {
  if (!wanted || thinking) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      "thinking: this model was trained without it ({}: mneme_thinking is false), and would "
      "write noise; ask without it",
      kConfigName);
}

std::string ModelConfig::ForwardText() const {
  std::string kinds;
  for (const LayerKind kind : layers) kinds += kind == LayerKind::kLinear ? 'l' : 'a';
  std::string built_in;
  if (router) {
    built_in = fmt::format("{} {} {} {}", router->window_tokens, router->pages_max, router->theta,
                           router->bias);
  }
  return fmt::format(
      "layout={} hidden={} intermediate={} vocab={} layers={} key_heads={} value_heads={} "
      "key_dim={} value_dim={} conv_taps={} router={} query_heads={} kv_heads={} attention_dim={} "
      "rotary_dim={} rope_theta={} epsilon={} plain_norms={} tied={}",
      NameOf(layout), hidden, intermediate, vocab, kinds, key_heads, value_heads, key_dim,
      value_dim, conv_taps, built_in, query_heads, kv_heads, attention_dim, rotary_dim, rope_theta,
      epsilon, plain_norms, tied);
}

int ModelConfig::linear_layers() const {
  return static_cast<int>(std::count(layers.begin(), layers.end(), LayerKind::kLinear));
}

int ModelConfig::attention_layers() const { return layer_count() - linear_layers(); }

kernels::LinearShape ModelConfig::Linear(int chunk_tokens, int window_tokens, int pages_max) const {
  kernels::LinearShape shape;
  shape.hidden = hidden;
  shape.key_heads = key_heads;
  shape.value_heads = value_heads;
  shape.key_dim = key_dim;
  shape.value_dim = value_dim;
  shape.chunk_tokens = chunk_tokens;
  shape.window_tokens = window_tokens;
  shape.pages_max = pages_max;
  shape.conv_taps = conv_taps;
  return shape;
}

kernels::AttentionShape ModelConfig::Attention(int chunk_tokens) const {
  kernels::AttentionShape shape;
  shape.hidden = hidden;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = attention_dim;
  shape.rotary_dim = rotary_dim;
  shape.rope_theta = rope_theta;
  shape.chunk_tokens = chunk_tokens;
  return shape;
}

}  // namespace mneme::model
