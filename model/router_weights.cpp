#include "model/router_weights.h"

#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"
#include "model/router_metadata.h"
#include "model/strict_json.h"
#include "model/tensor_taker.h"

namespace mneme::model {

namespace {

constexpr std::string_view kRouterName = "router.safetensors";
constexpr std::string_view kMixingName = "mixing.safetensors";

float ValueAt(const kernels::TensorView& view, int64_t index) {
  const std::byte* at = view.bytes + static_cast<size_t>(index) * kernels::BytesOf(view.dtype);
  if (view.dtype == kernels::Dtype::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return view.dtype == kernels::Dtype::kBf16 ? kernels::Bf16ToF32(bits) : kernels::F16ToF32(bits);
}

}  // namespace

// Takes the tensors of one of the two files, layer by layer.
class RouterReading {
 public:
  RouterReading(const WeightFile& file, const ModelConfig& config) : file_(file), config_(config) {}

  Status Route(RouterWeights& result) {
    const auto heads = static_cast<uint64_t>(config_.key_heads);
    const auto dim = static_cast<uint64_t>(config_.key_dim);
    for (size_t index = 0; index < result.layers_.size(); ++index) {
      LayerHistory& layer = result.layers_[index];
      if (!layer.linear || layer.closed) continue;
      const std::string at = fmt::format("layers.{}.route.", index);
      RouteWeights route;
      MNEME_TRY(Take(route.query, at + "q.weight", {heads, dim, dim}));
      MNEME_TRY(Take(route.pool_key, at + "pool_k.weight", {heads, dim, dim}));
      MNEME_TRY(Take(route.pool_value, at + "pool_v.weight", {heads, dim, dim}));
      MNEME_TRY(Take(route.pool_output, at + "pool_o.weight", {heads, dim, dim}));
      MNEME_TRY(Take(route.bias, at + "bias", {heads}));
      for (kernels::TensorView* view :
           {&route.query, &route.pool_key, &route.pool_value, &route.pool_output}) {
        view->rows = static_cast<int64_t>(heads * dim);
        view->cols = static_cast<int64_t>(dim);
      }
      for (int64_t head = 0; head < route.bias.cols; ++head) {
        if (!std::isfinite(ValueAt(route.bias, head)))
          return Fail(ErrorCode::kInvalidArgument,
                      "{}: tensor {}bias: expected finite numbers, found {} in head {}",
                      file_.name(), at, ValueAt(route.bias, head), head);
      }
      layer.route = route;
    }
    return CheckUnused();
  }

  Status Mixing(RouterWeights& result) {
    uint64_t blocks = 0;
    for (size_t index = 0; index < result.layers_.size(); ++index) {
      LayerHistory& layer = result.layers_[index];
      if (!layer.linear || layer.closed) continue;
      const std::string name = fmt::format("layers.{}.mixing", index);
      if (blocks == 0) {
        const StoredTensor* first = file_.Find(name);
        if (first != nullptr && first->rank > 0) blocks = first->shape[0];
        if (first != nullptr && (blocks < 1 || blocks > kMixingBlocksMax))
          return Fail(ErrorCode::kInvalidArgument,
                      "{}: tensor {}: expected shape [n, n] with n from 1 to {}, found {}",
                      file_.name(), name, kMixingBlocksMax, first->ShapeText());
      }
      kernels::TensorView view;
      MNEME_TRY(Take(view, name, {blocks, blocks}));
      MNEME_TRY(CheckMixing(view, name));
      layer.mixing = view;
    }
    result.mixing_blocks_ = static_cast<int>(blocks);
    return CheckUnused();
  }

  // Fills `layers_` from the first file, and compares the second with it.
  static Status Histories(RouterWeights& result, const RouterMetadata& metadata, bool first) {
    for (size_t index = 0; index < result.layers_.size(); ++index) {
      LayerHistory& layer = result.layers_[index];
      if (first) {
        layer.closed = metadata.closed[index];
        layer.recent_chunks = metadata.recent_chunks[index];
      } else if (layer.closed != metadata.closed[index] ||
                 layer.recent_chunks != metadata.recent_chunks[index]) {
        return Fail(
            ErrorCode::kInvalidArgument,
            "{}: metadata closed_layers, recent_chunks: expected as in {} (layer {}: closed "
            "{}, recent {}), found closed {}, recent {}",
            kMixingName, kRouterName, index, layer.closed, layer.recent_chunks,
            static_cast<bool>(metadata.closed[index]), metadata.recent_chunks[index]);
      }
    }
    return {};
  }

  static Status OpenRouter(RouterWeights& result, const std::filesystem::path& path,
                           const ModelConfig& config) {
    auto file = WeightFile::Open(path);
    if (!file) return Fail(std::move(file).error());
    auto metadata = ParseRouterMetadata(file->metadata(), kRouterName, "hla", config);
    if (!metadata) return Fail(std::move(metadata).error());
    MNEME_TRY(Histories(result, *metadata, /*first=*/true));
    result.window_tokens_ = metadata->window_tokens;
    result.pages_max_ = metadata->pages_max;
    result.theta_ = metadata->theta;
    result.router_ = *std::move(file);
    return RouterReading(*result.router_, config).Route(result);
  }

  static void UseBuiltIn(RouterWeights& result, const ModelConfig& config, const Weights& weights) {
    const BuiltInRouter& router = *config.router;
    result.window_tokens_ = router.window_tokens;
    result.pages_max_ = router.pages_max;
    result.theta_ = router.theta;
    result.bias_.assign(static_cast<size_t>(config.key_heads), router.bias);
    for (size_t index = 0; index < result.layers_.size(); ++index) {
      LayerHistory& layer = result.layers_[index];
      if (!layer.linear) continue;
      layer.route = weights.layers[index].route;
      MNEME_CHECK(layer.route.has_value(), "layer {} has no router", index);
      layer.route->bias = {.bytes = reinterpret_cast<const std::byte*>(result.bias_.data()),
                           .dtype = kernels::Dtype::kF32,
                           .rows = 1,
                           .cols = config.key_heads};
    }
  }

  static Status OpenMixing(RouterWeights& result, const std::filesystem::path& path,
                           const ModelConfig& config) {
    auto file = WeightFile::Open(path);
    if (!file) return Fail(std::move(file).error());
    auto metadata = ParseRouterMetadata(file->metadata(), kMixingName, "mhla", config);
    if (!metadata) return Fail(std::move(metadata).error());
    MNEME_TRY(Histories(result, *metadata, /*first=*/!result.has_router()));
    result.mixing_ = *std::move(file);
    return RouterReading(*result.mixing_, config).Mixing(result);
  }

 private:
  Status Take(kernels::TensorView& view, const std::string& name, std::vector<uint64_t> shape) {
    const StoredTensor* tensor = file_.Find(name);
    if (tensor == nullptr)
      return Fail(ErrorCode::kNotFound,
                  "{}: tensor {}: expected it, as its layer is linear and not in closed_layers, "
                  "found no such tensor",
                  file_.name(), name);
    auto taken = ViewOf(*tensor, file_.name(), {name, std::move(shape)});
    if (!taken) return Fail(std::move(taken).error());
    view = *taken;
    used_.insert(name);
    return {};
  }

  // Below the diagonal stand the gates: chunks before the query's own.
  Status CheckMixing(const kernels::TensorView& view, const std::string& name) const {
    for (int64_t row = 0; row < view.rows; ++row) {
      for (int64_t column = 0; column < row; ++column) {
        const float gate = ValueAt(view, row * view.cols + column);
        if (!(gate >= 0 && gate <= 1))
          return Fail(ErrorCode::kInvalidArgument,
                      "{}: tensor {}: expected gates from 0 to 1 below the diagonal, found {} at "
                      "[{}, {}]",
                      file_.name(), name, gate, row, column);
      }
    }
    return {};
  }

  Status CheckUnused() const {
    for (const StoredTensor& tensor : file_.tensors()) {
      if (!used_.contains(tensor.name))
        return Fail(ErrorCode::kInvalidArgument,
                    "{}: tensor {}: expected only those of linear layers that are not closed, "
                    "found this one of shape {}",
                    file_.name(), Shown(tensor.name), tensor.ShapeText());
    }
    return file_.CheckUnchanged();
  }

  const WeightFile& file_;
  const ModelConfig& config_;
  std::set<std::string> used_;
};

RouterWeights RouterWeights::None(const ModelConfig& config) {
  RouterWeights result;
  result.layers_.resize(config.layers.size());
  for (size_t index = 0; index < config.layers.size(); ++index)
    result.layers_[index].linear = config.layers[index] == LayerKind::kLinear;
  return result;
}

RouterWeights RouterWeights::NewestOpen(const ModelConfig& config, int chunks) {
  RouterWeights result = None(config);
  result.newest_open_ = true;
  for (LayerHistory& layer : result.layers_) layer.recent_chunks = layer.linear ? chunks : 0;
  return result;
}

Result<RouterWeights> RouterWeights::Open(const std::filesystem::path& folder,
                                          const ModelConfig& config, const Weights& weights) {
  RouterWeights result = None(config);
  std::error_code ignored;
  const bool stored = std::filesystem::exists(folder / kRouterName, ignored);
  if (stored && config.router)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: expected no such file, since the checkpoint has a router of its own; take it "
                "away",
                kRouterName);
  if (stored) MNEME_TRY(RouterReading::OpenRouter(result, folder / kRouterName, config));
  if (config.router) RouterReading::UseBuiltIn(result, config, weights);
  if (std::filesystem::exists(folder / kMixingName, ignored))
    MNEME_TRY(RouterReading::OpenMixing(result, folder / kMixingName, config));
  return result;
}

bool RouterWeights::Offers(memory::Reader reader) const {
  switch (reader) {
    case memory::Reader::kNative:
      return true;
    case memory::Reader::kMhla:
      return has_mixing();
    case memory::Reader::kHla:
      return has_router();
  }
  return false;
}

memory::Reader RouterWeights::default_reader() const {
  return has_router() ? memory::Reader::kHla : memory::Reader::kNative;
}

uint64_t RouterWeights::router_parameters() const {
  uint64_t numbers = 0;
  for (const LayerHistory& layer : layers_) {
    if (!layer.route) continue;
    const RouteWeights& route = *layer.route;
    for (const auto* view :
         {&route.query, &route.pool_key, &route.pool_value, &route.pool_output, &route.bias})
      numbers += static_cast<uint64_t>(view->elements());
  }
  return numbers;
}

uint64_t RouterWeights::mixing_parameters() const {
  uint64_t numbers = 0;
  for (const LayerHistory& layer : layers_)
    if (layer.mixing) numbers += static_cast<uint64_t>(layer.mixing->elements());
  return numbers;
}

std::vector<const MappedFile*> RouterWeights::FingerprintFiles(memory::Reader reader) const {
  if (reader == memory::Reader::kHla && router_) return {&router_->file()};
  if (reader == memory::Reader::kMhla && mixing_) return {&mixing_->file()};
  return {};
}

Status RouterWeights::CheckFinite() const {
  if (router_) MNEME_TRY(router_->CheckFinite());
  if (has_mixing()) MNEME_TRY(mixing_->CheckFinite());
  return {};
}

Status RouterWeights::CheckUnchanged() const {
  if (router_) MNEME_TRY(router_->CheckUnchanged());
  if (mixing_) MNEME_TRY(mixing_->CheckUnchanged());
  return {};
}

}  // namespace mneme::model
