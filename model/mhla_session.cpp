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
      token_(kMhlaRowsMax),
      position_(kMhlaRowsMax),
      session_(kMhlaRowsMax) {
  const auto rows = [](int width) {
    return static_cast<size_t>(kMhlaRowsMax) * static_cast<size_t>(width);
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
  MNEME_TRY(folder.CheckFinite());
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

void MhlaModel::BeginStep(uint64_t position, std::span<const int32_t> tokens,
                          kernels::RowForm form) {
  pieces_.clear();
  rows_.clear();
  for (size_t done = 0; done < tokens.size();) {
    const uint64_t at = position + done;
    const auto count =
        std::min(tokens.size() - done, static_cast<size_t>(kMixBlockTokens - at % kMixBlockTokens));
    const auto first = static_cast<int32_t>(pieces_.size()) * kPieceTokens;
    pieces_.push_back({.row = first,
                       .tokens = static_cast<int32_t>(count),
                       .position = static_cast<int32_t>(at)});
    for (size_t i = 0; i < kPieceTokens; ++i) {
      const size_t row = static_cast<size_t>(first) + i;
      const bool real = i < count;
      token_[row] = real ? tokens[done + i] : 0;
      position_[row] = real ? static_cast<int32_t>(at + i) : 0;
      session_[row] = real ? 0 : -1;
      if (real) rows_.push_back(static_cast<int32_t>(row));
    }
    done += count;
  }
  const bool decode = form == kernels::RowForm::kDecode;
  table_ = {.form = form,
            .rows = decode ? 1 : static_cast<int32_t>(pieces_.size()) * kPieceTokens,
            .token = token_.data(),
            .position = position_.data(),
            .session = session_.data(),
            .pieces = pieces_.data(),
            .piece_count = decode ? 0 : static_cast<int32_t>(pieces_.size()),
            .sessions = nullptr,
            .session_count = 1};
}

Status MhlaModel::RunLayers(
    const std::function<Status(size_t layer, const kernels::Piece& piece)>& read) {
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
    for (const kernels::Piece& piece : pieces_) MNEME_TRY(read(index, piece));
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

Status MhlaModel::BlockRead(size_t layer, const kernels::Piece& piece,
                            const kernels::BlockState& state) {
  const auto row = static_cast<size_t>(piece.row);
  const kernels::Piece alone = {.row = 0, .tokens = piece.tokens, .position = piece.position};
  kernels::StepTable step = table_;
  if (table_.form == kernels::RowForm::kPrefill) {
    step.rows = kPieceTokens;
    step.pieces = &alone;
    step.piece_count = 1;
  }
  return kernels_.block_read(
      {.step = &step,
       .shape = shape_,
       .projected = projected_.data() + row * static_cast<size_t>(shape_.projected_width()),
       .states = &state,
       .norm_weight = layers_[layer].out_norm.data(),
       .epsilon = config_.epsilon,
       .out = mixed_.data() + row * static_cast<size_t>(shape_.value_width())},
      *stream_);
}

Status MhlaModel::Logits(const float* x, std::span<const int32_t> rows,
                         const kernels::Sampling* sampling) {
  kernels::StepTable step;
  step.rows = kMhlaRowsMax;
  return kernels_.logits_sample({.step = &step,
                                 .norm_weight = final_norm_.data(),
                                 .epsilon = config_.epsilon,
                                 .head = head_.get(),
                                 .vocab = config_.vocab,
                                 .x = x,
                                 .rows = rows.data(),
                                 .count = static_cast<int32_t>(rows.size()),
                                 .sampling = sampling,
                                 .logits = logits_.data(),
                                 .token = &drawn_,
                                 .norm = kernels::NormWeight::kPlain},
                                *stream_);
}

Status MhlaModel::StepLogits(std::span<float> logits) {
  const auto vocab = static_cast<size_t>(config_.vocab);
  if (logits.size() != rows_.size() * vocab)
    return Fail(ErrorCode::kInvalidArgument, "step logits: {} numbers for {} tokens of {}",
                logits.size(), rows_.size(), vocab);
  logits_.resize(std::max(logits_.size(), logits.size()));
  MNEME_TRY(Logits(x_.data(), rows_, nullptr));
  std::copy_n(logits_.data(), logits.size(), logits.data());
  return {};
}

MhlaSession::MhlaSession(MhlaModel& model) : model_(&model), layers_(model.layers_.size()) {}

MhlaSession MhlaSession::Fork() const {
  MhlaSession fork(*model_);
  fork.position_ = position_;
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

Status MhlaSession::CheckBlock(int64_t block) const {
  const auto first = static_cast<uint64_t>(block) * kMixBlockTokens;
  if (block >= kMhlaMatrixBlocks && model_->options_.beyond == BeyondMatrix::kRefuse)
    return Fail(Error(Reason::kContextLimit,
                      fmt::format("session: token {}: the mixing matrix knows {} blocks of {} "
                                  "tokens; let it serve by distance to go on",
                                  first, kMhlaMatrixBlocks, kMixBlockTokens)));
  // The blocks it reads, itself, and their mixture.
  const int64_t read = std::min<int64_t>(block, kMhlaMatrixBlocks - 1);
  const auto sums = static_cast<uint64_t>(read + 1 + (read > 0 ? 1 : 0));
  const uint64_t bytes =
      sums * static_cast<uint64_t>(model_->shape_.sum_numbers()) * layers_.size() * sizeof(float);
  if (bytes > model_->options_.session_bytes_max)
    return Fail(ErrorCode::kResourceExhausted,
                "session: token {}: the sums of {} blocks, this one and what they mix to take {}, "
                "at most {}",
                first, read, BytesText(bytes), BytesText(model_->options_.session_bytes_max));
  return {};
}

Result<size_t> MhlaSession::StepTokens(size_t count) const {
  size_t taken = 0;
  for (int piece = 0; piece < kMhlaRowsMax / kPieceTokens && taken < count; ++piece) {
    const uint64_t at = position_ + taken;
    if (at % kMixBlockTokens == 0) {
      const Status may = CheckBlock(static_cast<int64_t>(at / kMixBlockTokens));
      if (!may && taken == 0) return Fail(may.error());
      if (!may) break;
    }
    taken += std::min(count - taken, static_cast<size_t>(kMixBlockTokens - at % kMixBlockTokens));
  }
  return taken;
}

Status MhlaSession::OpenBlock(size_t layer, int64_t block) {
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

Status MhlaSession::ReadPiece(size_t layer, const kernels::Piece& piece) {
  const int64_t block = piece.position / kMixBlockTokens;
  if (piece.position % kMixBlockTokens == 0) MNEME_TRY(OpenBlock(layer, block));
  const LayerMemory& memory = layers_[layer];
  return model_->BlockRead(layer, piece,
                           {.open = memory.open->data(),
                            .prefix = memory.prefix == nullptr ? nullptr : memory.prefix->data(),
                            .own_weight = model_->layers_[layer].mixing.Weight(block, block)});
}

Status MhlaSession::Run(std::span<const int32_t> tokens, kernels::RowForm form) {
  MhlaModel& model = *model_;
  model.BeginStep(position_, tokens, form);
  MNEME_TRY(model.RunLayers(
      [this](size_t layer, const kernels::Piece& piece) { return ReadPiece(layer, piece); }));
  const auto width = static_cast<ptrdiff_t>(model.config_.hidden);
  const auto last = model.x_.begin() + model.rows_.back() * width;
  last_.assign(last, last + width);
  position_ += tokens.size();
  return {};
}

Status MhlaSession::Read(std::span<const int32_t> tokens,
                         const std::function<bool(size_t)>& progress) {
  MNEME_TRY(CheckTokens(tokens));
  size_t done = 0;
  while (done < tokens.size()) {
    const auto count = StepTokens(tokens.size() - done);
    MNEME_TRY(count);
    MNEME_TRY(Run(tokens.subspan(done, *count), kernels::RowForm::kPrefill));
    done += *count;
    if (progress && !progress(done)) return Fail(ErrorCode::kCancelled, "reading was stopped");
  }
  return {};
}

Result<int32_t> MhlaSession::Next(const kernels::Sampling& sampling, std::span<float> logits) {
  if (last_.empty())
    return Fail(ErrorCode::kInvalidArgument, "session: no token to draw the next one after");
  const int32_t row = 0;
  MNEME_TRY(model_->Logits(last_.data(), {&row, 1}, &sampling));
  if (!logits.empty())
    std::copy_n(model_->logits_.data(),
                std::min(logits.size(), static_cast<size_t>(model_->config_.vocab)), logits.data());
  return model_->drawn_;
}

Status MhlaSession::Feed(int32_t token) {
  MNEME_TRY(CheckTokens({&token, 1}));
  MNEME_TRY(StepTokens(1));
  return Run({&token, 1}, kernels::RowForm::kDecode);
}

}  // namespace mneme::model
