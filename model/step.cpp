#include "model/step.h"

#include <algorithm>

#include "base/check.h"

namespace mneme::model {

using kernels::kPieceTokens;
using kernels::RowForm;
using memory::ClosedChunk;
using memory::SessionMemory;

int SliceTokens(uint64_t position, uint64_t remaining, int chunk_tokens, int tokens_max) {
  const auto in_chunk = static_cast<int>(position % static_cast<uint64_t>(chunk_tokens));
  const int to_border = chunk_tokens - in_chunk;
  if (remaining <= static_cast<uint64_t>(std::min(to_border, tokens_max)))
    return static_cast<int>(remaining);
  // The cut must lie on the grid: the last cell that ends within tokens_max, at least one.
  const int cells_end = (in_chunk + tokens_max) / kPieceTokens * kPieceTokens;
  const int first_cell_end = (in_chunk / kPieceTokens + 1) * kPieceTokens;
  const int end = std::min(std::max(cells_end, first_cell_end), chunk_tokens);
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(end - in_chunk), remaining));
}

GateCount StepCounters::all_gates() const {
  GateCount all;
  for (const GateCount& layer : gates) all += layer;
  return all;
}

Step::Step(const LoadedModel& model, const kernels::KernelTable& kernels, kernels::Stream& stream,
           memory::PageCache& cache, memory::PageSource* source, int batch_max)
    : model_(model),
      kernels_(kernels),
      stream_(stream),
      cache_(cache),
      source_(source),
      batch_max_(batch_max),
      workspace_(model, batch_max) {
  MNEME_CHECK(batch_max > 0 && batch_max <= kRowsMax, "batch_max {}", batch_max);
  counters_.gates.resize(model.layout().routed_layers.size());
}

memory::Sealing Step::sealing() {
  return {.kernels = &kernels_,
          .stream = &stream_,
          .pool = model_.pool(),
          .mixing = [this](int paged_layer, uint32_t query,
                           uint32_t key) { return model_.Mixing(paged_layer, query, key); },
          .source = source_};
}

void Step::BeginTable(RowForm form, int32_t rows) {
  Workspace& w = workspace_;
  w.table = {.form = form,
             .rows = rows,
             .token = w.token.data(),
             .position = w.position.data(),
             .session = w.session.data(),
             .pieces = w.pieces.data(),
             .piece_count = static_cast<int32_t>(w.pieces.size()),
             .sessions = w.sessions.data(),
             .session_count = static_cast<int32_t>(w.sessions.size())};
}

Status Step::Decode(std::span<const DecodeRow> rows, std::span<DecodeResult> results) {
  MNEME_CHECK(rows.size() <= static_cast<size_t>(batch_max_) && results.size() == rows.size(),
              "{} rows, {} results, {} at most", rows.size(), results.size(), batch_max_);
  Workspace& w = workspace_;
  w.pieces.clear();
  w.sessions.clear();
  memories_.clear();
  for (size_t row = 0; row < rows.size(); ++row) {
    MNEME_CHECK(!rows[row].memory->full(), "row {}: the open chunk is not sealed", row);
    w.token[row] = rows[row].token;
    w.position[row] = static_cast<int32_t>(rows[row].memory->position());
    w.session[row] = static_cast<int32_t>(row);
    w.sessions.push_back(rows[row].memory->view());
    memories_.push_back(rows[row].memory);
    results[row] = {};
  }
  BeginTable(RowForm::kDecode, static_cast<int32_t>(rows.size()));
  statuses_.assign(rows.size(), {});
  explained_.clear();
  for (const DecodeRow& row : rows)
    explained_.emplace_back(row.explain ? row.memory->chunk_count() : 0, 0.0f);
  MNEME_TRY(RunLayers());

  sampled_rows_.clear();
  sampling_.clear();
  for (size_t row = 0; row < rows.size(); ++row) {
    results[row].status = statuses_[row];
    if (!statuses_[row] || !rows[row].sample) continue;
    sampled_rows_.push_back(static_cast<int32_t>(row));
    sampling_.push_back(rows[row].sampling);
  }
  tokens_.resize(sampled_rows_.size());
  log_probabilities_.resize(sampled_rows_.size());
  if (!sampled_rows_.empty()) MNEME_TRY(RunHead(w.x.get(), sampled_rows_, sampling_));
  for (size_t index = 0; index < sampled_rows_.size(); ++index) {
    DecodeResult& result = results[static_cast<size_t>(sampled_rows_[index])];
    result.next_token = tokens_[index];
    result.log_probability = log_probabilities_[index];
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!statuses_[row]) continue;
    rows[row].memory->Commit(1, w.x.get() + row * static_cast<size_t>(model_.layout().hidden));
    ++counters_.decode_tokens;
    results[row].shares = Largest(explained_[row]);
  }
  return {};
}

std::vector<ChunkShare> Step::Largest(const std::vector<float>& chunks) {
  std::vector<ChunkShare> shares;
  for (uint32_t chunk = 0; chunk < chunks.size(); ++chunk) {
    if (chunks[chunk] > 0) shares.push_back({.chunk = chunk, .share = chunks[chunk]});
  }
  std::sort(shares.begin(), shares.end(), [](const ChunkShare& one, const ChunkShare& other) {
    return one.share != other.share ? one.share > other.share : one.chunk < other.chunk;
  });
  return shares;
}

Status Step::Prefill(SessionMemory& memory, std::span<const int32_t> tokens,
                     std::vector<ChunkShare>* last_shares) {
  const int in_chunk = memory.open_tokens();
  MNEME_CHECK(
      !tokens.empty() && tokens.size() <= static_cast<size_t>(memory.chunk_tokens() - in_chunk),
      "{} tokens after {} in the open chunk", tokens.size(), in_chunk);
  Workspace& w = workspace_;
  w.pieces.clear();
  w.sessions.assign(1, memory.view());
  memories_.assign(1, &memory);
  prefill_rows_.clear();
  size_t done = 0;
  while (done < tokens.size()) {
    const int cell = (in_chunk + static_cast<int>(done)) % kPieceTokens;
    const auto count = std::min(tokens.size() - done, static_cast<size_t>(kPieceTokens - cell));
    const auto first_row = static_cast<int32_t>(w.pieces.size()) * kPieceTokens;
    w.pieces.push_back({.row = first_row,
                        .tokens = static_cast<int32_t>(count),
                        .position = static_cast<int32_t>(memory.position() + done)});
    for (int row = 0; row < kPieceTokens; ++row) {
      const auto at = static_cast<size_t>(first_row) + static_cast<size_t>(row);
      const bool real = static_cast<size_t>(row) < count;
      const size_t index = done + static_cast<size_t>(row);
      w.token[at] = real ? tokens[index] : 0;
      w.position[at] = real ? static_cast<int32_t>(memory.position() + index) : 0;
      w.session[at] = real ? 0 : -1;
      if (real) prefill_rows_.push_back(first_row + row);
    }
    done += count;
  }
  const auto rows = static_cast<int32_t>(w.pieces.size()) * kPieceTokens;
  MNEME_CHECK(rows <= kRowsMax, "{} rows", rows);
  BeginTable(RowForm::kPrefill, rows);
  statuses_.assign(1, {});
  explained_.clear();
  if (last_shares != nullptr) explained_.emplace_back(memory.chunk_count(), 0.0f);
  MNEME_TRY(RunLayers());
  MNEME_TRY(statuses_[0]);
  if (last_shares != nullptr) *last_shares = Largest(explained_[0]);
  memory.Commit(static_cast<int>(tokens.size()),
                w.x.get() + static_cast<size_t>(prefill_rows_.back()) *
                                static_cast<size_t>(model_.layout().hidden));
  counters_.prefill_tokens += tokens.size();
  return {};
}

Result<int32_t> Step::Sample(const SessionMemory& memory, const kernels::Sampling& sampling,
                             std::span<float> logits) {
  const int32_t row = 0;
  tokens_.resize(1);
  log_probabilities_.resize(1);
  BeginTable(RowForm::kDecode, 1);
  MNEME_TRY(RunHead(memory.last_hidden(), {&row, 1}, {&sampling, 1}));
  if (!logits.empty())
    std::copy_n(workspace_.logits.get(), std::min<size_t>(logits.size(), vocab()), logits.data());
  return tokens_[0];
}

Status Step::AllLogits(std::span<float> logits) {
  const size_t width = vocab();
  MNEME_CHECK(logits.size() == prefill_rows_.size() * width, "{} floats for {} rows", logits.size(),
              prefill_rows_.size());
  for (size_t done = 0; done < prefill_rows_.size();) {
    const size_t count = std::min(prefill_rows_.size() - done, static_cast<size_t>(batch_max_));
    MNEME_TRY(RunHead(workspace_.x.get(), std::span(prefill_rows_).subspan(done, count), {}));
    std::copy_n(workspace_.logits.get(), count * width, logits.data() + done * width);
    done += count;
  }
  return {};
}

Status Step::RunHead(const float* x, std::span<const int32_t> rows,
                     std::span<const kernels::Sampling> sampling) {
  return kernels_.logits_sample({.step = &workspace_.table,
                                 .norm_weight = model_.final_norm().data(),
                                 .epsilon = model_.config().epsilon,
                                 .head = &model_.head(),
                                 .vocab = model_.config().vocab,
                                 .x = x,
                                 .rows = rows.data(),
                                 .count = static_cast<int32_t>(rows.size()),
                                 .sampling = sampling.empty() ? nullptr : sampling.data(),
                                 .logits = workspace_.logits.get(),
                                 .token = tokens_.data(),
                                 .log_probability = log_probabilities_.data()},
                                stream_);
}

Status Step::RunLayers() {
  Workspace& w = workspace_;
  const kernels::StepTable* table = &w.table;
  const float epsilon = model_.config().epsilon;
  MNEME_TRY(kernels_.embed({.step = table, .table = model_.embedding(), .x = w.x.get()}, stream_));
  for (const DecoderLayer& layer : model_.layers()) {
    MNEME_TRY(kernels_.project_in({.step = table,
                                   .norm_weight = layer.mixer_norm.data(),
                                   .epsilon = epsilon,
                                   .weight = layer.linear ? layer.linear->project_in.get()
                                                          : layer.attention->project_in.get(),
                                   .x = w.x.get(),
                                   .out = w.projected.get()},
                                  stream_));
    MNEME_TRY(layer.linear ? RunLinear(*layer.linear) : RunAttention(*layer.attention));
    MNEME_TRY(kernels_.project_out({.step = table,
                                    .weight = layer.linear ? layer.linear->project_out.get()
                                                           : layer.attention->project_out.get(),
                                    .in = w.mixed.get(),
                                    .x = w.x.get()},
                                   stream_));
    MNEME_TRY(kernels_.mlp({.step = table,
                            .norm_weight = layer.mlp_norm.data(),
                            .epsilon = epsilon,
                            .gate_up = layer.gate_up.get(),
                            .down = layer.down.get(),
                            .x = w.x.get()},
                           stream_));
  }
  return {};
}

Status Step::RunLinear(const LinearLayer& layer) {
  Workspace& w = workspace_;
  const kernels::LinearShape& shape = model_.layout().linear;
  MNEME_TRY(kernels_.gdn_prepare({.step = &w.table,
                                  .shape = shape,
                                  .linear_layer = layer.linear_layer,
                                  .projected = w.projected.get(),
                                  .conv_weight = layer.conv.empty() ? nullptr : layer.conv.data(),
                                  .decay_rate = layer.decay_rate.data(),
                                  .dt_bias = layer.dt_bias.data(),
                                  .q = w.q.get(),
                                  .k = w.k.get(),
                                  .v = w.v.get(),
                                  .write_strength = w.write_strength.get(),
                                  .log_decay = w.log_decay.get()},
                                 stream_));
  const bool reads_pages = layer.paged_layer >= 0 && model_.layout().reader == memory::Reader::kHla;
  if (reads_pages) MNEME_TRY(ChooseHistory(layer));
  MNEME_TRY(kernels_.gdn_read({.step = &w.table,
                               .shape = shape,
                               .linear_layer = layer.linear_layer,
                               .projected = w.projected.get(),
                               .q = w.q.get(),
                               .k = w.k.get(),
                               .v = w.v.get(),
                               .write_strength = w.write_strength.get(),
                               .log_decay = w.log_decay.get(),
                               .list = reads_pages ? w.list : kernels::RouteList{},
                               .norm_weight = layer.norm.data(),
                               .epsilon = model_.config().epsilon,
                               .out = w.mixed.get(),
                               .share = reads_pages ? w.share.get() : nullptr},
                              stream_));
  if (reads_pages && !explained_.empty()) AddShares();
  return {};
}

Status Step::ChooseHistory(const LinearLayer& layer) {
  Workspace& w = workspace_;
  const kernels::LinearShape& shape = model_.layout().linear;
  int32_t misses = 0;
  const bool opened = gates_open_ > 0 && layer.routed_layer >= 0;
  MNEME_TRY(kernels_.route(
      {.step = &w.table,
       .shape = shape,
       .paged_layer = layer.paged_layer,
       .routed_layer = layer.routed_layer,
       .projected = w.projected.get(),
       .query_weight = layer.route_query.empty() ? nullptr : layer.route_query.data(),
       .bias = layer.route_bias.empty() ? nullptr : layer.route_bias.data(),
       .theta = opened ? 0.0f : model_.theta(),
       .recent_chunks = layer.recent_chunks,
       .list = w.list,
       .misses = &misses},
      stream_));
  if (opened) ShortenLists(gates_open_);
  if (gates_closed_) ShortenLists(0);
  if (layer.routed_layer >= 0) CountGates(layer.routed_layer);
  HoldGroups(layer.paged_layer);
  return {};
}

// Newest entries first, so those that stay are the newest.
void Step::ShortenLists(int entries_max) {
  Workspace& w = workspace_;
  const auto heads = static_cast<size_t>(model_.layout().linear.key_heads);
  for (size_t list = 0; list < static_cast<size_t>(w.table.rows) * heads; ++list)
    w.list_count[list] = std::min(w.list_count[list], entries_max);
}

void Step::CountGates(int routed_layer) {
  const Workspace& w = workspace_;
  GateCount& gates = counters_.gates[static_cast<size_t>(routed_layer)];
  const auto heads = static_cast<size_t>(model_.layout().linear.key_heads);
  for (size_t row = 0; row < static_cast<size_t>(w.table.rows); ++row) {
    if (w.session[row] < 0) continue;
    gates.asked += heads;
    for (size_t list = row * heads; list < (row + 1) * heads; ++list)
      gates.open += static_cast<uint64_t>(w.list_count[list]);
  }
}

template <typename Visit>
void Step::VisitLists(Visit visit) {
  Workspace& w = workspace_;
  const auto heads = static_cast<size_t>(model_.layout().linear.key_heads);
  const auto pages_max = static_cast<size_t>(model_.layout().linear.pages_max);
  for (size_t row = 0; row < static_cast<size_t>(w.table.rows); ++row) {
    if (w.session[row] < 0) continue;
    const auto session = static_cast<size_t>(w.session[row]);
    for (size_t head = 0; head < heads; ++head) {
      const size_t list = row * heads + head;
      for (size_t entry = 0; entry < static_cast<size_t>(w.list_count[list]); ++entry)
        visit(session, static_cast<int>(head), list, list * pages_max + entry);
    }
  }
}

// Groups of the layer's lists are brought into memory: those present are pinned first, so that
// making room for the missing ones does not drop them.
void Step::HoldGroups(int paged_layer) {
  Workspace& w = workspace_;
  cache_.BeginStep();
  bool missing = false;
  VisitLists([&](size_t session, int head, size_t, size_t entry) {
    ClosedChunk& chunk = memories_[session]->chunk(static_cast<uint32_t>(w.list_chunk[entry]));
    const int group = chunk.GroupOf(paged_layer, head);
    if (chunk.group(group) != nullptr) {
      cache_.Touch(chunk, group);
    } else {
      missing = true;
    }
  });
  if (missing) ReadMissing(paged_layer);
  VisitLists([&](size_t session, int head, size_t list, size_t entry) {
    ClosedChunk& chunk = memories_[session]->chunk(static_cast<uint32_t>(w.list_chunk[entry]));
    w.list_group[entry] = chunk.group(chunk.GroupOf(paged_layer, head));
    if (!statuses_[session]) w.list_count[list] = 0;  // the row has failed; nothing of it is kept
  });
}

void Step::ReadMissing(int paged_layer) {
  Workspace& w = workspace_;
  reads_.clear();
  VisitLists([&](size_t session, int head, size_t, size_t entry) {
    ClosedChunk& chunk = memories_[session]->chunk(static_cast<uint32_t>(w.list_chunk[entry]));
    const int group = chunk.GroupOf(paged_layer, head);
    if (chunk.group(group) != nullptr || !statuses_[session]) return;
    MNEME_CHECK(source_ != nullptr, "group {} was dropped without a store", group);
    const Result<std::byte*> taken = cache_.Take(chunk, group, true);
    if (!taken) {
      statuses_[session] = Fail(taken.error());
      return;
    }
    reads_.push_back({.chunk = &chunk, .group = group, .destination = *taken, .status = {}});
  });
  source_->Read(reads_);
  counters_.group_reads += reads_.size();
  counters_.group_read_bytes += reads_.size() * model_.layout().group_bytes();
  for (const memory::GroupRead& read : reads_) {
    if (read.status) continue;
    // Every row that chose the group fails; the others do not notice.
    VisitLists([&](size_t session, int head, size_t, size_t entry) {
      ClosedChunk& chunk = memories_[session]->chunk(static_cast<uint32_t>(w.list_chunk[entry]));
      if (&chunk == read.chunk && chunk.GroupOf(paged_layer, head) == read.group)
        statuses_[session] = read.status;
    });
    cache_.Release(const_cast<ClosedChunk&>(*read.chunk), read.group);
  }
}

void Step::AddShares() {
  Workspace& w = workspace_;
  // In a prefill only the last row is asked for: it is what the first drawn token comes from.
  const bool prefill = w.table.form == RowForm::kPrefill;
  const auto heads = static_cast<size_t>(model_.layout().linear.key_heads);
  const size_t first_list = prefill ? static_cast<size_t>(prefill_rows_.back()) * heads : 0;
  VisitLists([&](size_t session, int, size_t list, size_t entry) {
    if (prefill && (list < first_list || list >= first_list + heads)) return;
    std::vector<float>& chunks = explained_[session];
    if (!chunks.empty()) chunks[static_cast<size_t>(w.list_chunk[entry])] += w.share[entry];
  });
}

Status Step::RunAttention(const AttentionLayer& layer) {
  return kernels_.attention({.step = &workspace_.table,
                             .shape = model_.layout().attention,
                             .attention_layer = layer.attention_layer,
                             .kv_dtype = model_.layout().page_dtype,
                             .projected = workspace_.projected.get(),
                             .q_norm = layer.q_norm.data(),
                             .k_norm = layer.k_norm.data(),
                             .epsilon = model_.config().epsilon,
                             .out = workspace_.mixed.get()},
                            stream_);
}

}  // namespace mneme::model
