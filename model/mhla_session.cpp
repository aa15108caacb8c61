#include "model/mhla_session.h"

#include <algorithm>
#include <utility>

#include "model/memory_needs.h"

namespace mneme::model {
namespace {

using kernels::kMixBlockTokens;
using kernels::kPieceTokens;
using kernels::TensorView;

}  // namespace

MhlaModel::MhlaModel(const MhlaConfig& config, const MhlaOptions& options)
    : config_(config),
      options_(options),
      shape_(config.Shape()),
      kernels_(kernels::CpuKernels()),
      token_(kPieceTokens),
      position_(kPieceTokens),
      session_(kPieceTokens) {
  const auto rows = [](int width) {
    return static_cast<size_t>(kPieceTokens) * static_cast<size_t>(width);
  };
  x_.resize(rows(config.hidden));
  projected_.resize(rows(shape_.projected_width()));
  mixed_.resize(rows(shape_.value_width()));
  logits_.resize(static_cast<size_t>(config.vocab));
}

Result<MhlaModel::Layer> MhlaModel::MakeLayer(const MhlaLayerWeights& weights, int index) {
  const auto pack = [](std::initializer_list<TensorView> blocks) {
    return kernels::CpuKernels().pack_weights({blocks.begin(), blocks.size()});
  };
  Layer layer;
  layer.attn_norm = ToF32(weights.attn_norm);
  layer.mlp_norm = ToF32(weights.mlp_norm);
  layer.out_norm = ToF32(weights.out_norm);
  auto in = pack({weights.project_q, weights.project_k, weights.project_v, weights.project_g});
  MNEME_TRY(in);
  layer.project_in = std::move(*in);
  auto out = pack({weights.project_out});
  MNEME_TRY(out);
  layer.project_out = std::move(*out);
  auto gate_up = pack({weights.mlp_gate, weights.mlp_up});
  MNEME_TRY(gate_up);
  layer.gate_up = std::move(*gate_up);
  auto down = pack({weights.mlp_down});
  MNEME_TRY(down);
  layer.down = std::move(*down);
  auto mixing = kernels::CausalMixing::Make(ToF32(weights.mixing), kMhlaMatrixBlocks);
  if (!mixing) return Fail(std::move(mixing).error().Within(fmt::format("layer {}", index)));
  layer.mixing = std::move(*mixing);
  return layer;
}

Result<std::unique_ptr<MhlaModel>> MhlaModel::Load(const MhlaFolder& folder,
                                                   const MhlaOptions& options) {
  MNEME_TRY(folder.CheckFitsMachine());
  const MhlaWeights& weights = folder.weights();
  std::unique_ptr<MhlaModel> model(new MhlaModel(folder.config(), options));
  auto stream = model->kernels_.make_stream(options.threads);
  MNEME_TRY(stream);
  model->stream_ = std::move(*stream);
  const int parts = folder.config().layers + 1;
  for (int index = 0; index < folder.config().layers; ++index) {
    auto layer = MakeLayer(weights.layers[static_cast<size_t>(index)], index);
    if (!layer)
      return Fail(std::move(layer).error().Within("model folder " + folder.path().string()));
    model->layers_.push_back(std::move(*layer));
    if (options.progress) options.progress(index + 1, parts);
  }
  model->final_norm_ = ToF32(weights.final_norm);
  model->embedding_ = weights.embedding;
  model->embedding_bytes_.assign(weights.embedding.bytes,
                                 weights.embedding.bytes + weights.embedding.size_bytes());
  model->embedding_.bytes = model->embedding_bytes_.data();
  auto head = model->kernels_.pack_weights({&weights.head, 1});
  MNEME_TRY(head);
  model->head_ = std::move(*head);
  if (options.progress) options.progress(parts, parts);
  return model;
}

Status MhlaModel::RunLayers(std::span<const kernels::BlockState> states) {
  MNEME_TRY(kernels_.embed({.step = &table_, .table = embedding_, .x = x_.data()}, *stream_));
  for (size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    MNEME_TRY(kernels_.project_in({.step = &table_,
                                   .norm_weight = layer.attn_norm.data(),
                                   .epsilon = config_.epsilon,
                                   .weight = layer.project_in.get(),
                                   .x = x_.data(),
                                   .out = projected_.data(),
                                   .norm = kernels::NormWeight::kPlain},
                                  *stream_));
    MNEME_TRY(kernels_.block_read({.step = &table_,
                                   .shape = shape_,
                                   .projected = projected_.data(),
                                   .states = &states[index],
                                   .norm_weight = layer.out_norm.data(),
                                   .epsilon = config_.epsilon,
                                   .out = mixed_.data()},
                                  *stream_));
    MNEME_TRY(kernels_.project_out(
        {.step = &table_, .weight = layer.project_out.get(), .in = mixed_.data(), .x = x_.data()},
        *stream_));
    MNEME_TRY(kernels_.mlp({.step = &table_,
                            .norm_weight = layer.mlp_norm.data(),
                            .epsilon = config_.epsilon,
                            .gate_up = layer.gate_up.get(),
                            .down = layer.down.get(),
                            .x = x_.data(),
                            .norm = kernels::NormWeight::kPlain},
                           *stream_));
  }
  return {};
}

Status MhlaModel::Logits(const float* x, int rows, const kernels::Sampling* sampling) {
  kernels::StepTable step;
  step.rows = rows;
  int32_t index[kPieceTokens];
  for (int32_t row = 0; row < rows; ++row) index[row] = row;
  return kernels_.logits_sample({.step = &step,
                                 .norm_weight = final_norm_.data(),
                                 .epsilon = config_.epsilon,
                                 .head = head_.get(),
                                 .vocab = config_.vocab,
                                 .x = x,
                                 .rows = index,
                                 .count = rows,
                                 .sampling = sampling,
                                 .logits = logits_.data(),
                                 .token = &drawn_,
                                 .norm = kernels::NormWeight::kPlain},
                                *stream_);
}

Status MhlaModel::PieceLogits(std::span<float> logits) {
  const auto vocab = static_cast<size_t>(config_.vocab);
  if (logits.size() != static_cast<size_t>(piece_.tokens) * vocab)
    return Fail(ErrorCode::kInvalidArgument, "piece logits: {} numbers for {} tokens of {}",
                logits.size(), piece_.tokens, vocab);
  logits_.resize(std::max(logits_.size(), logits.size()));
  MNEME_TRY(Logits(x_.data(), piece_.tokens, nullptr));
  std::copy_n(logits_.data(), logits.size(), logits.data());
  return {};
}

MhlaSession::MhlaSession(MhlaModel& model) : model_(&model), layers_(model.layers_.size()) {}

MhlaSession MhlaSession::Fork() const {
  MhlaSession fork(*model_);
  fork.position_ = position_;
  fork.opened_ = opened_;
  fork.last_ = last_;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    fork.layers_[layer].closed = layers_[layer].closed;
    fork.layers_[layer].prefix = layers_[layer].prefix;
    if (layers_[layer].open != nullptr)
      fork.layers_[layer].open = std::make_unique<Sum>(*layers_[layer].open);
  }
  return fork;
}

uint64_t MhlaSession::bytes() const {
  uint64_t sums = 0;
  for (const LayerMemory& layer : layers_)
    sums += layer.closed.size() + (layer.prefix ? 1 : 0) + (layer.open ? 1 : 0);
  return sums * static_cast<uint64_t>(model_->shape_.sum_numbers()) * sizeof(float);
}

Status MhlaSession::CheckTokens(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model_->config_.vocab)
      return Fail(ErrorCode::kInvalidArgument,
                  "token {}: expected an id below the model's vocabulary of {}, found {}", i,
                  model_->config_.vocab, tokens[i]);
  }
  const uint64_t left = static_cast<uint64_t>(INT32_MAX) - position_;
  if (tokens.size() > left)
    return Fail(ErrorCode::kInvalidArgument, "session: {} tokens after {}, at most {} in all",
                tokens.size(), position_, INT32_MAX);
  return {};
}

Status MhlaSession::OpenBlock() {
  if (opened_) return {};
  const auto block = static_cast<int64_t>(position_ / kMixBlockTokens);
  if (block >= kMhlaMatrixBlocks && model_->options_.beyond == BeyondMatrix::kRefuse)
    return Fail(Error(Reason::kContextLimit,
                      fmt::format("session: token {}: the mixing matrix knows {} blocks of {} "
                                  "tokens; let it serve by distance to go on",
                                  position_, kMhlaMatrixBlocks, kMixBlockTokens)));
  const uint64_t more = (block == 0                  ? 1u
                         : block == 1                ? 2u
                         : block < kMhlaMatrixBlocks ? 1u
                                                     : 0u) *
                        static_cast<uint64_t>(model_->shape_.sum_numbers()) * layers_.size() *
                        sizeof(float);
  if (bytes() + more > model_->options_.session_bytes_max)
    return Fail(ErrorCode::kResourceExhausted,
                "session: token {}: the sums of {} blocks and this one take {}, at most {}",
                position_, block, BytesText(bytes() + more),
                BytesText(model_->options_.session_bytes_max));
  for (size_t layer = 0; layer < layers_.size(); ++layer) MNEME_TRY(OpenBlockOf(layer, block));
  opened_ = true;
  return {};
}

Status MhlaSession::OpenBlockOf(size_t layer, int64_t block) {
  LayerMemory& memory = layers_[layer];
  const kernels::CausalMixing& mixing = model_->layers_[layer].mixing;
  const auto numbers = static_cast<size_t>(model_->shape_.sum_numbers());
  if (memory.open != nullptr) memory.closed.push_back(std::move(memory.open));
  while (static_cast<int64_t>(memory.closed.size()) > block - mixing.FirstRead(block))
    memory.closed.pop_front();
  memory.open = std::make_unique<Sum>(numbers);
  if (memory.closed.empty()) return {};
  std::vector<const float*> sums;
  std::vector<float> weights;
  int64_t key = mixing.FirstRead(block);
  for (const std::shared_ptr<const Sum>& sum : memory.closed) {
    sums.push_back(sum->data());
    weights.push_back(mixing.Weight(block, key++));
  }
  auto prefix = std::make_shared<Sum>(numbers);
  MNEME_TRY(model_->kernels_.block_prefix(
      {.shape = model_->shape_, .sums = sums, .weights = weights, .prefix = prefix->data()},
      *model_->stream_));
  memory.prefix = std::move(prefix);
  return {};
}

Status MhlaSession::Run(std::span<const int32_t> tokens, kernels::RowForm form) {
  MNEME_TRY(OpenBlock());
  MhlaModel& model = *model_;
  const int rows = form == kernels::RowForm::kDecode ? 1 : kPieceTokens;
  model.piece_ = {.row = 0,
                  .tokens = static_cast<int32_t>(tokens.size()),
                  .position = static_cast<int32_t>(position_)};
  for (int row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    const bool real = at < tokens.size();
    model.token_[at] = real ? tokens[at] : 0;
    model.position_[at] = real ? static_cast<int32_t>(position_ + at) : 0;
    model.session_[at] = real ? 0 : -1;
  }
  model.table_ = {.form = form,
                  .rows = rows,
                  .token = model.token_.data(),
                  .position = model.position_.data(),
                  .session = model.session_.data(),
                  .pieces = &model.piece_,
                  .piece_count = form == kernels::RowForm::kDecode ? 0 : 1,
                  .sessions = nullptr,
                  .session_count = 1};
  const auto block = static_cast<int64_t>(position_ / kMixBlockTokens);
  std::vector<kernels::BlockState> states;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerMemory& memory = layers_[layer];
    states.push_back({.open = memory.open->data(),
                      .prefix = memory.prefix == nullptr ? nullptr : memory.prefix->data(),
                      .own_weight = model.layers_[layer].mixing.Weight(block, block)});
  }
  MNEME_TRY(model.RunLayers(states));
  const auto width = static_cast<size_t>(model.config_.hidden);
  const auto last = model.x_.begin() + static_cast<ptrdiff_t>((tokens.size() - 1) * width);
  last_.assign(last, last + static_cast<ptrdiff_t>(width));
  position_ += tokens.size();
  opened_ = position_ % kMixBlockTokens != 0;
  return {};
}

Status MhlaSession::Read(std::span<const int32_t> tokens,
                         const std::function<bool(size_t)>& progress) {
  MNEME_TRY(CheckTokens(tokens));
  size_t done = 0;
  while (done < tokens.size()) {
    const auto room = static_cast<size_t>(kMixBlockTokens) - position_ % kMixBlockTokens;
    const size_t count = std::min(room, tokens.size() - done);
    MNEME_TRY(Run(tokens.subspan(done, count), kernels::RowForm::kPrefill));
    done += count;
    if (progress && !progress(done)) return Fail(ErrorCode::kCancelled, "reading was stopped");
  }
  return {};
}

Result<int32_t> MhlaSession::Next(const kernels::Sampling& sampling, std::span<float> logits) {
  if (last_.empty())
    return Fail(ErrorCode::kInvalidArgument, "session: no token to draw the next one after");
  MNEME_TRY(model_->Logits(last_.data(), 1, &sampling));
  if (!logits.empty())
    std::copy_n(model_->logits_.data(),
                std::min(logits.size(), static_cast<size_t>(model_->config_.vocab)), logits.data());
  return model_->drawn_;
}

Status MhlaSession::Feed(int32_t token) {
  MNEME_TRY(CheckTokens({&token, 1}));
  return Run({&token, 1}, kernels::RowForm::kDecode);
}

}  // namespace mneme::model
