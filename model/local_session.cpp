#include "model/local_session.h"

#include <algorithm>

#include "model/memory_needs.h"
#include "model/random_weights.h"

namespace mneme::model {
namespace {

// Tokens of one slice: a chunk at most, since nobody else waits.
constexpr int kSliceTokensMax = 256;

}  // namespace

Result<std::unique_ptr<LocalModel>> LocalModel::Load(const ModelFolder& folder,
                                                     const LocalModelOptions& options) {
  const bool mixes = options.newest_open > 0;
  Result<memory::Reader> reader = memory::Reader::kMhla;
  if (!mixes) reader = folder.ChooseReader(options.reader);
  MNEME_TRY(reader);
  MNEME_TRY(folder.CheckFitsMachine(*reader, options.page_dtype));
  MNEME_TRY(folder.CheckFinite());
  if (mixes) {
    return Make(folder.config(), folder.weights(),
                RouterWeights::NewestOpen(folder.config(), options.newest_open), *reader, options);
  }
  return Make(folder.config(), folder.weights(), folder.router(), *reader, options);
}

Result<std::unique_ptr<LocalModel>> LocalModel::Random(const ModelConfig& config,
                                                       const LocalModelOptions& options) {
  const bool mixes = options.newest_open > 0;
  const memory::Reader reader = mixes ? memory::Reader::kMhla : memory::Reader::kNative;
  const RouterWeights router =
      mixes ? RouterWeights::NewestOpen(config, options.newest_open) : RouterWeights::None(config);
  const RandomWeights random(config);
  const MemoryNeeds needs = MemoryNeeds::Of(config, random.weights(), router, options.page_dtype);
  if (const uint64_t available = AvailableMemoryBytes(); available > 0)
    MNEME_TRY(CheckFits(needs, reader, available));
  return Make(config, random.weights(), router, reader, options);
}

Result<std::unique_ptr<LocalModel>> LocalModel::Make(const ModelConfig& config,
                                                     const Weights& weights,
                                                     const RouterWeights& router,
                                                     memory::Reader reader,
                                                     const LocalModelOptions& options) {
  std::unique_ptr<LocalModel> local(new LocalModel());
  const kernels::KernelTable& kernels = kernels::CpuKernels();
  const memory::MemoryLayout layout = LayoutOf(config, router, reader, options.page_dtype);
  auto cache = memory::PageCache::Make(
      {.group_bytes = layout.group_bytes(), .bytes_max = options.host_bytes_max});
  MNEME_TRY(cache);
  local->cache_ = std::move(*cache);
  auto stream = kernels.make_stream(options.threads);
  MNEME_TRY(stream);
  local->stream_ = std::move(*stream);
  auto model = LoadedModel::Make(config, weights, router, reader, options.page_dtype, kernels,
                                 options.progress);
  MNEME_TRY(model);
  local->model_ = std::move(*model);
  local->step_ = std::make_unique<Step>(*local->model_, kernels, *local->stream_, *local->cache_,
                                        nullptr, options.batch_max);
  return local;
}

LocalSession::LocalSession(LocalModel& model)
    : model_(&model), memory_(model.model().layout(), model.cache()) {}

Status LocalSession::Read(std::span<const int32_t> tokens,
                          const std::function<bool(size_t)>& progress) {
  size_t done = 0;
  while (done < tokens.size()) {
    const int count = SliceTokens(memory_.position(), tokens.size() - done, memory_.chunk_tokens(),
                                  kSliceTokensMax);
    MNEME_TRY(model_->step().Prefill(memory_, tokens.subspan(done, static_cast<size_t>(count))));
    MNEME_TRY(SealWhenFull());
    done += static_cast<size_t>(count);
    if (progress && !progress(done)) return Fail(ErrorCode::kCancelled, "reading was stopped");
  }
  return {};
}

Result<int32_t> LocalSession::Next(const kernels::Sampling& sampling, std::span<float> logits) {
  return model_->step().Sample(memory_, sampling, logits);
}

Status LocalSession::Feed(int32_t token) {
  const DecodeRow row = {.memory = &memory_, .token = token, .sample = false, .sampling = {}};
  DecodeResult result;
  MNEME_TRY(model_->step().Decode({&row, 1}, {&result, 1}));
  MNEME_TRY(result.status);
  return SealWhenFull();
}

Status LocalSession::SealWhenFull() {
  if (!memory_.full()) return {};
  // Nothing is stored, so nobody looks the chunk up by its key.
  auto sealed = memory_.Seal(memory::ChunkKey{}, model_->step().sealing());
  MNEME_TRY(sealed);
  return {};
}

}  // namespace mneme::model
