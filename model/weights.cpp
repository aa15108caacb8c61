#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "model/strict_json.h"

namespace mneme::model {
namespace {

constexpr std::string_view kPrefixes[] = {"model.language_model.", "model."};
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kSkipped[] = {"mtp.", "model.mtp.", "model.visual.", "visual."};

uint64_t U(int value) { return static_cast<uint64_t>(value); }

// Looks up one model's tensors and remembers which were used.
class Loader {
 public:
  Loader(const WeightFolder& folder, const ModelConfig& config)
      : folder_(folder), config_(config) {}

  Result<Weights> Load() {
    MNEME_TRY(FindPrefix());
    MNEME_TRY(Take(weights_.embedding, Named(kEmbedding), {U(config_.vocab), U(config_.hidden)}));
    MNEME_TRY(Take(weights_.final_norm, Named("norm.weight"), {U(config_.hidden)}));
    weights_.head = weights_.embedding;
    const bool stored = folder_.Find(kHead).tensor != nullptr;
    if (config_.tied_unsure ? stored : !config_.tied)
      MNEME_TRY(Take(weights_.head, std::string(kHead), {U(config_.vocab), U(config_.hidden)}));
    weights_.layers.resize(config_.layers.size());
    for (size_t layer = 0; layer < config_.layers.size(); ++layer) MNEME_TRY(LoadLayer(layer));
    MNEME_TRY(CheckUnused());
    MNEME_TRY(folder_.CheckUnchanged());
    return std::move(weights_);
  }

 private:
  Status FindPrefix() {
    for (const std::string_view prefix : kPrefixes) {
      if (folder_.Find(std::string(prefix) + std::string(kEmbedding)).tensor == nullptr) continue;
      prefix_ = prefix;
      return {};
    }
    return Fail(ErrorCode::kNotFound, "{}: tensor {}{}: expected it or {}{}, found neither",
                folder_.files().front().name(), kPrefixes[0], kEmbedding, kPrefixes[1], kEmbedding);
  }

  std::string Named(std::string_view rest) const { return std::string(prefix_).append(rest); }

  Status Take(TensorView& view, std::string name, std::vector<uint64_t> shape) {
    const WeightFolder::Found found = folder_.Find(name);
    if (found.tensor == nullptr)
      return Fail(ErrorCode::kNotFound, "{}: tensor {}: expected shape [{}], found no such tensor",
                  folder_.files().front().name(), name, fmt::join(shape, ", "));
    auto taken = ViewOf(*found.tensor, found.file->name(), {name, std::move(shape)});
    if (!taken) return Fail(std::move(taken).error());
    view = *taken;
    weights_.parameters += static_cast<uint64_t>(view.elements());
    weights_.stored_bytes += view.size_bytes();
    used_.insert(std::move(name));
    return {};
  }

  Status LoadLayer(size_t index) {
    LayerWeights& layer = weights_.layers[index];
    layer.kind = config_.layers[index];
    const std::string at = Named(fmt::format("layers.{}.", index));
    const uint64_t hidden = U(config_.hidden);
    const uint64_t wide = U(config_.intermediate);
    MNEME_TRY(Take(layer.input_norm, at + "input_layernorm.weight", {hidden}));
    MNEME_TRY(Take(layer.mlp_norm, at + "post_attention_layernorm.weight", {hidden}));
    MNEME_TRY(Take(layer.mlp_gate, at + "mlp.gate_proj.weight", {wide, hidden}));
    MNEME_TRY(Take(layer.mlp_up, at + "mlp.up_proj.weight", {wide, hidden}));
    MNEME_TRY(Take(layer.mlp_down, at + "mlp.down_proj.weight", {hidden, wide}));
    return layer.kind == LayerKind::kLinear ? LoadLinear(layer.linear, at + "linear_attn.")
                                            : LoadAttention(layer.attention, at + "self_attn.");
  }

  Status LoadLinear(LinearWeights& linear, const std::string& at) {
    const uint64_t hidden = U(config_.hidden);
    const uint64_t heads = U(config_.value_heads);
    const uint64_t conv = U(config_.conv_width());
    const uint64_t values = U(config_.value_width());
    MNEME_TRY(Take(linear.project_qkv, at + "in_proj_qkv.weight", {conv, hidden}));
    MNEME_TRY(Take(linear.project_z, at + "in_proj_z.weight", {values, hidden}));
    MNEME_TRY(Take(linear.project_b, at + "in_proj_b.weight", {heads, hidden}));
    MNEME_TRY(Take(linear.project_a, at + "in_proj_a.weight", {heads, hidden}));
    MNEME_TRY(Take(linear.conv, at + "conv1d.weight", {conv, 1, U(kernels::kConvTaps)}));
    MNEME_TRY(Take(linear.decay_log, at + "A_log", {heads}));
    MNEME_TRY(Take(linear.dt_bias, at + "dt_bias", {heads}));
    MNEME_TRY(Take(linear.norm, at + "norm.weight", {U(config_.value_dim)}));
    return Take(linear.project_out, at + "out_proj.weight", {hidden, values});
  }

  Status LoadAttention(AttentionWeights& attention, const std::string& at) {
    const uint64_t hidden = U(config_.hidden);
    const uint64_t dim = U(config_.attention_dim);
    const uint64_t queries = U(config_.query_heads) * dim;
    const uint64_t keys = U(config_.kv_heads) * dim;
    MNEME_TRY(Take(attention.project_q, at + "q_proj.weight", {2 * queries, hidden}));
    MNEME_TRY(Take(attention.project_k, at + "k_proj.weight", {keys, hidden}));
    MNEME_TRY(Take(attention.project_v, at + "v_proj.weight", {keys, hidden}));
    MNEME_TRY(Take(attention.project_out, at + "o_proj.weight", {hidden, queries}));
    MNEME_TRY(Take(attention.q_norm, at + "q_norm.weight", {dim}));
    return Take(attention.k_norm, at + "k_norm.weight", {dim});
  }

  Status CheckUnused() {
    for (const WeightFile& file : folder_.files()) {
      for (const StoredTensor& tensor : file.tensors()) {
        if (used_.contains(tensor.name)) continue;
        const std::string_view name = tensor.name;
        const bool skipped =
            name == kHead || name.ends_with(".rotary_emb.inv_freq") ||
            std::any_of(std::begin(kSkipped), std::end(kSkipped),
                        [&](std::string_view prefix) { return name.starts_with(prefix); });
        if (!skipped)
          return Fail(ErrorCode::kInvalidArgument,
                      "{}: tensor {}: expected only tensors of a dense Qwen3.5 model with {} "
                      "layers, found this one of shape {}",
                      file.name(), Shown(name), config_.layer_count(), tensor.ShapeText());
        ++weights_.skipped_tensors;
      }
    }
    return {};
  }

  const WeightFolder& folder_;
  const ModelConfig& config_;
  std::string_view prefix_;
  std::set<std::string, std::less<>> used_;
  Weights weights_;
};

}  // namespace

Result<Weights> Weights::Load(const WeightFolder& folder, const ModelConfig& config) {
  return Loader(folder, config).Load();
}

Result<TensorView> ViewOf(const StoredTensor& tensor, std::string_view file,
                          const WantedTensor& wanted) {
  const auto& shape = wanted.shape;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(),
                  tensor.shape.begin() + tensor.rank))
    return Fail(ErrorCode::kInvalidArgument, "{}: tensor {}: expected shape [{}], found {}", file,
                wanted.name, fmt::join(shape, ", "), tensor.ShapeText());
  const auto dtype = tensor.kernel_dtype();
  if (!dtype)
    return Fail(ErrorCode::kInvalidArgument, "{}: tensor {}: expected F32, BF16 or F16, found {}",
                file, wanted.name, NameOf(tensor.dtype));
  TensorView view;
  view.bytes = tensor.bytes.data();
  view.dtype = *dtype;
  view.rows = shape.size() <= 1 ? 1 : static_cast<int64_t>(shape[0]);
  view.cols = 1;
  for (size_t i = shape.size() <= 1 ? 0 : 1; i < shape.size(); ++i)
    view.cols *= static_cast<int64_t>(shape[i]);
  return view;
}

}  // namespace mneme::model
