#include "model/mhla_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/config_fields.h"
#include "model/mapped_file.h"
#include "model/model_config.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

constexpr int kWidthStep = 256;  // intermediate_size is rounded up to a multiple of it

Status RefuseUnsupported(const ConfigFields& fields) {
  MNEME_TRY(fields.Only("model_type", "\"gla\""));
  MNEME_TRY(fields.Only("attn_extends", "\"mhla\""));
  MNEME_TRY(fields.Only("hidden_act", "\"swish\""));
  MNEME_TRY(fields.Only("use_output_gate", "true"));
  MNEME_TRY(fields.Only("elementwise_affine", "true"));
  MNEME_TRY(fields.Absent("use_short_conv", "short convolutions are"));
  MNEME_TRY(fields.Absent("attn", "layers of full attention are"));
  MNEME_TRY(fields.Absent("quantization_config", "quantised weights are"));
  const json::value* map = fields.Find("feature_map");
  if (map == nullptr || !map->is_string() || map->get_string() != "relu")
    return Fail(ErrorCode::kInvalidArgument, "{}: feature_map: expected \"relu\", found {}",
                kConfigName, Found(map));
  return {};
}

// A whole number of dims of `heads` heads: hidden * factor of config.json.
Status ReadDim(int& dim, const ConfigFields& fields, std::string_view name, double fallback,
               const MhlaConfig& config) {
  double factor = fallback;
  if (fields.Find(name) != nullptr) {
    auto read = ConfigNumber(fields.Find(name), name, 1e-3, 16);
    MNEME_TRY(read);
    factor = *read;
  }
  const int width = static_cast<int>(config.hidden * factor);
  if (width < 1 || width % config.heads != 0 || width / config.heads > kHeadDimMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: {}: expected {} heads of 1 to {} dims each, found {} dims in all", kConfigName,
                name, config.heads, kHeadDimMax, width);
  dim = width / config.heads;
  return {};
}

Status ReadHeads(MhlaConfig& config, const ConfigFields& fields) {
  MNEME_TRY(fields.Integer(config.heads, "num_heads", {1, kHeadsMax}));
  if (fields.Find("num_kv_heads") != nullptr) {
    int key_heads = 0;
    MNEME_TRY(fields.Integer(key_heads, "num_kv_heads", {1, kHeadsMax}));
    if (key_heads != config.heads)
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: num_kv_heads: expected as many as num_heads ({}), found {}, which is not "
                  "supported",
                  kConfigName, config.heads, key_heads);
  }
  MNEME_TRY(ReadDim(config.key_dim, fields, "expand_k", 0.5, config));
  MNEME_TRY(ReadDim(config.value_dim, fields, "expand_v", 1, config));
  if (config.key_dim % 2 != 0)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: expand_k: expected an even number of dims of a key head, found {}",
                kConfigName, config.key_dim);
  return {};
}

Status ReadIntermediate(MhlaConfig& config, const ConfigFields& fields) {
  if (fields.Find("intermediate_size") != nullptr)
    return fields.Integer(config.intermediate, "intermediate_size", {1, kIntermediateMax});
  int ratio = 4;
  if (fields.Find("hidden_ratio") != nullptr)
    MNEME_TRY(fields.Integer(ratio, "hidden_ratio", {1, 64}));
  const int64_t wide = static_cast<int64_t>(static_cast<double>(config.hidden) * ratio * 2 / 3);
  const int64_t rounded = (wide + kWidthStep - 1) / kWidthStep * kWidthStep;
  if (rounded > kIntermediateMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: hidden_ratio: expected an MLP of at most {} wide, found {}", kConfigName,
                kIntermediateMax, rounded);
  config.intermediate = static_cast<int>(rounded);
  return {};
}

Status ReadFields(MhlaConfig& config, const ConfigFields& fields) {
  MNEME_TRY(RefuseUnsupported(fields));
  MNEME_TRY(fields.Integer(config.hidden, "hidden_size", {1, kHiddenMax}));
  MNEME_TRY(fields.Integer(config.layers, "num_hidden_layers", {1, kLayersMax}));
  MNEME_TRY(fields.Integer(config.vocab, "vocab_size", {1, kVocabMax}));
  MNEME_TRY(ReadHeads(config, fields));
  MNEME_TRY(ReadIntermediate(config, fields));
  config.trained_tokens = kMhlaMatrixBlocks * 64;
  if (fields.Find("max_position_embeddings") != nullptr)
    MNEME_TRY(fields.Integer(config.trained_tokens, "max_position_embeddings", {1, kPositionsMax}));
  double epsilon = 1e-6;
  if (fields.Find("norm_eps") != nullptr) {
    auto read = ConfigNumber(fields.Find("norm_eps"), "norm_eps", 1e-12, 1e-1);
    MNEME_TRY(read);
    epsilon = *read;
  }
  config.epsilon = static_cast<float>(epsilon);
  MNEME_TRY(fields.Flag(config.tied, "tie_word_embeddings"));
  MNEME_TRY(fields.Flag(config.fused_norm, "fuse_norm"));
  auto bos = ConfigIds(fields.Find("bos_token_id"), "bos_token_id", config.vocab);
  MNEME_TRY(bos);
  if (!bos->empty()) config.bos_id = bos->front();
  auto eos = ConfigIds(fields.Find("eos_token_id"), "eos_token_id", config.vocab);
  MNEME_TRY(eos);
  config.eos_ids = std::move(*eos);
  return {};
}

}  // namespace

Result<MhlaConfig> MhlaConfig::Read(const std::filesystem::path& folder) {
  auto text = ReadTextFile(folder / kConfigName, kConfigBytesMax);
  if (!text) return Fail(std::move(text).error());
  return Parse(*text);
}

Result<MhlaConfig> MhlaConfig::Parse(std::string_view text) {
  auto top = ParseConfig(text);
  if (!top) return Fail(std::move(top).error());
  const json::object none;
  MhlaConfig config;
  MNEME_TRY(ReadFields(config, ConfigFields(*top, none)));
  return config;
}

Result<bool> IsMhlaFolder(const std::filesystem::path& folder) {
  MNEME_TRY(CheckModelFolder(folder));
  auto text = ReadTextFile(folder / kConfigName, kConfigBytesMax);
  if (!text) return Fail(std::move(text).error());
  auto top = ParseConfig(*text);
  if (!top) return Fail(InModelFolder(std::move(top).error(), folder));
  const json::value* type = top->if_contains("model_type");
  return type != nullptr && type->is_string() && type->get_string() == kMhlaModelType;
}

}  // namespace mneme::model
