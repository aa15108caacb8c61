#include "model/mhla_folder.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "model/mapped_file.h"
#include "model/memory_needs.h"
#include "model/model_folder.h"
#include "model/tensor_taker.h"

namespace mneme::model {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kTokenizerName = "tokenizer.json";

uint64_t U(int value) { return static_cast<uint64_t>(value); }

Status TakeLayer(MhlaLayerWeights& layer, TensorTaker& taker, const MhlaConfig& config, int index) {
  const std::string at = fmt::format("model.layers.{}.", index);
  const uint64_t hidden = U(config.hidden), wide = U(config.intermediate);
  const uint64_t keys = U(config.heads) * U(config.key_dim);
  const uint64_t values = U(config.heads) * U(config.value_dim);
  const uint64_t blocks = U(kMhlaMatrixBlocks);
  const char* norm = config.fused_norm ? "attn.g_norm_swish_gate.weight" : "attn.g_norm.weight";
  MNEME_TRY(taker.Take(layer.attn_norm, at + "attn_norm.weight", {hidden}));
  MNEME_TRY(taker.Take(layer.project_q, at + "attn.q_proj.weight", {keys, hidden}));
  MNEME_TRY(taker.Take(layer.project_k, at + "attn.k_proj.weight", {keys, hidden}));
  MNEME_TRY(taker.Take(layer.project_v, at + "attn.v_proj.weight", {values, hidden}));
  MNEME_TRY(taker.Take(layer.project_g, at + "attn.g_proj.weight", {values, hidden}));
  MNEME_TRY(taker.Take(layer.project_out, at + "attn.o_proj.weight", {hidden, values}));
  MNEME_TRY(taker.Take(layer.out_norm, at + norm, {U(config.value_dim)}));
  MNEME_TRY(taker.Take(layer.mixing, at + "attn.mixing_matrix", {blocks, blocks, 1, 1, 1, 1}));
  MNEME_TRY(taker.Take(layer.mlp_norm, at + "mlp_norm.weight", {hidden}));
  MNEME_TRY(taker.Take(layer.mlp_gate, at + "mlp.gate_proj.weight", {wide, hidden}));
  MNEME_TRY(taker.Take(layer.mlp_up, at + "mlp.up_proj.weight", {wide, hidden}));
  return taker.Take(layer.mlp_down, at + "mlp.down_proj.weight", {hidden, wide});
}

}  // namespace

Result<MhlaFolder> MhlaFolder::Open(const std::filesystem::path& path) {
  auto folder = OpenFiles(path);
  if (!folder) return Fail(InModelFolder(std::move(folder).error(), path));
  return folder;
}

Result<MhlaFolder> MhlaFolder::OpenFiles(const std::filesystem::path& path) {
  MNEME_TRY(CheckModelFolder(path));
  auto config = MhlaConfig::Read(path);
  MNEME_TRY(config);
  auto files = WeightFolder::Open(path);
  MNEME_TRY(files);
  MhlaFolder folder(path, std::move(*config), std::move(*files));
  MNEME_TRY(folder.TakeWeights());
  return folder;
}

Status MhlaFolder::TakeWeights() {
  TensorTaker taker(files_);
  const uint64_t vocab = U(config_.vocab), hidden = U(config_.hidden);
  MNEME_TRY(taker.Take(weights_.embedding, "model.embeddings.weight", {vocab, hidden}));
  MNEME_TRY(taker.Take(weights_.final_norm, "model.norm.weight", {hidden}));
  weights_.head = weights_.embedding;
  if (!config_.tied) MNEME_TRY(taker.Take(weights_.head, std::string(kHead), {vocab, hidden}));
  weights_.layers.resize(static_cast<size_t>(config_.layers));
  for (int index = 0; index < config_.layers; ++index)
    MNEME_TRY(TakeLayer(weights_.layers[static_cast<size_t>(index)], taker, config_, index));
  const auto skipped = taker.CountSkipped(
      [](std::string_view name) { return name == kHead || name.ends_with(".rotary.inv_freq"); },
      fmt::format("an MHLA language model with {} layers", config_.layers));
  MNEME_TRY(skipped);
  weights_.skipped_tensors = *skipped;
  weights_.parameters = taker.parameters();
  weights_.stored_bytes = taker.stored_bytes();
  return files_.CheckUnchanged();
}

MhlaNeeds MhlaFolder::Needs() const {
  MhlaNeeds needs;
  // f16 is widened; the embedding is kept beside the head.
  const auto packed = [](const kernels::TensorView& view) {
    return static_cast<uint64_t>(view.elements()) * (view.dtype == kernels::Dtype::kBf16 ? 2u : 4u);
  };
  needs.weights_bytes = weights_.embedding.size_bytes() + packed(weights_.head);
  for (const MhlaLayerWeights& layer : weights_.layers) {
    for (const kernels::TensorView* view :
         {&layer.project_q, &layer.project_k, &layer.project_v, &layer.project_g,
          &layer.project_out, &layer.mlp_gate, &layer.mlp_up, &layer.mlp_down})
      needs.weights_bytes += packed(*view);
  }
  needs.block_bytes =
      static_cast<uint64_t>(config_.Shape().sum_numbers()) * U(config_.layers) * sizeof(float);
  needs.session_bytes_max = (U(kMhlaMatrixBlocks) + 1) * needs.block_bytes;
  return needs;
}

bool MhlaFolder::has_tokenizer() const {
  std::error_code ignored;
  return std::filesystem::exists(path_ / kTokenizerName, ignored);
}

Result<Tokenizer> MhlaFolder::OpenTokenizer() const {
  return Tokenizer::Load((path_ / kTokenizerName).string());
}

Status MhlaFolder::CheckFinite() const {
  if (Status finite = files_.CheckFinite(); !finite)
    return Fail(std::move(finite.error()).Within("model folder " + path_.string()));
  return {};
}

Status MhlaFolder::CheckFitsMachine() const {
  const uint64_t available = AvailableMemoryBytes();
  const MhlaNeeds needs = Needs();
  const uint64_t needed = needs.weights_bytes + needs.session_bytes_max;
  if (available == 0 || needed <= available) return {};
  return Fail(ErrorCode::kResourceExhausted,
              "model folder {}: the model does not fit into memory: needed {} (weights {}, one "
              "session {}), free {}",
              path_.string(), BytesText(needed), BytesText(needs.weights_bytes),
              BytesText(needs.session_bytes_max), BytesText(available));
}

}  // namespace mneme::model
