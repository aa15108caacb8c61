// Step runs the model's layers once: either one row for each of several sessions (decode) or a
// slice of one session's prompt (prefill).
//
// What a row computes depends on the session's log alone: its neighbours, the slices before it and
// the number of threads never change a bit (architecture decision 8). Page groups that a layer
// needs and that are not in memory are read before the layer goes on.
//
// Owns:     the workspace. The model, cache and source must outlive it.
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "memory/session_memory.h"
#include "model/loaded_model.h"
#include "model/workspace.h"

namespace mneme::model {

struct DecodeRow {
  memory::SessionMemory* memory = nullptr;
  int32_t token = 0;           // goes to the session's position
  bool sample = true;          // whether the next token is wanted
  bool explain = false;        // whether shares are wanted
  kernels::Sampling sampling;  // of the next token
};

// How much one token read of one closed chunk, |w r B| / |y| summed over heads and layers.
struct ChunkShare {
  uint32_t chunk = 0;
  float share = 0;
};

struct DecodeResult {
  Status status;                   // why this row has no result; its memory is then as before
  int32_t next_token = -1;         // when sampled
  float log_probability = 0;       // of next_token, at temperature 1
  std::vector<ChunkShare> shares;  // largest first, when explained
};

// How many chunks the router of one layer let be read.
struct GateCount {
  uint64_t open = 0;   // entries of all lists
  uint64_t asked = 0;  // tokens times key heads

  GateCount& operator+=(const GateCount& other) {
    open += other.open;
    asked += other.asked;
    return *this;
  }
  double mean() const {
    return asked == 0 ? 0 : static_cast<double>(open) / static_cast<double>(asked);
  }
};

// What steps have done since the start.
struct StepCounters {
  uint64_t prefill_tokens = 0;
  uint64_t decode_tokens = 0;
  uint64_t group_reads = 0;  // page groups brought back from the source
  uint64_t group_read_bytes = 0;
  std::vector<GateCount> gates;  // [routed layers]

  GateCount all_gates() const;
};

// How many of `remaining` tokens of one run (prompt tokens of one turn) go into the next slice:
// ends at the chunk's 64-token grid or with the run, at the chunk's border at the latest, and
// within `tokens_max` unless that is below one cell.
int SliceTokens(uint64_t position, uint64_t remaining, int chunk_tokens, int tokens_max);

class Step {
 public:
  // `source` may be null where the cache never drops a group. At most `batch_max` rows decode at
  // once.
  Step(const LoadedModel& model, const kernels::KernelTable& kernels, kernels::Stream& stream,
       memory::PageCache& cache, memory::PageSource* source, int batch_max);

  // Computes one token for each row (no session twice) and commits those whose result has a good
  // status. The sessions' open chunks must not be full.
  // Errors: of the backend only; then nothing is committed.
  Status Decode(std::span<const DecodeRow> rows, std::span<DecodeResult> results);

  // Computes prompt tokens from the session's position on and commits them. `tokens` is one slice:
  // SliceTokens says how many there may be. An error leaves the memory as before. `last_shares`,
  // where given, is what the last token read, largest first.
  Status Prefill(memory::SessionMemory& memory, std::span<const int32_t> tokens,
                 std::vector<ChunkShare>* last_shares = nullptr);

  // Draws the token after the session's last one. Fills `logits` [vocab] when it is not empty.
  Result<int32_t> Sample(const memory::SessionMemory& memory, const kernels::Sampling& sampling,
                         std::span<float> logits = {});

  // Logits of every row of the last Prefill, for comparisons: [tokens, vocab].
  Status AllLogits(std::span<float> logits);

  const StepCounters& counters() const { return counters_; }
  int batch_max() const { return batch_max_; }
  memory::Sealing sealing();

  // While set, no query reads any closed chunk. The evaluation and tests use it to show what an
  // answer owes to memory.
  void CloseAllGates(bool closed) { gates_closed_ = closed; }

  // While above 0, every key head of a routed layer scores all closed chunks and reads `chunks` of
  // them, whatever theta says: the newest of those scored highest. `mneme bench` measures with it
  // what open gates cost.
  void OpenGates(int chunks) { gates_open_ = chunks; }

 private:
  void BeginTable(kernels::RowForm form, int32_t rows);
  Status RunLayers();
  Status RunLinear(const LinearLayer& layer);
  Status RunAttention(const AttentionLayer& layer);
  Status ChooseHistory(const LinearLayer& layer);
  void CountGates(int routed_layer);
  void ShortenLists(int entries_max);
  void HoldGroups(int paged_layer);
  void ReadMissing(int paged_layer);
  void AddShares();
  // Shares of one session, largest first.
  static std::vector<ChunkShare> Largest(const std::vector<float>& chunks);
  Status RunHead(const float* x, std::span<const int32_t> rows,
                 std::span<const kernels::Sampling> sampling);
  // Calls visit(session, key head, index of the list, index of the entry) for every list entry.
  template <typename Visit>
  void VisitLists(Visit visit);
  size_t vocab() const { return static_cast<size_t>(model_.config().vocab); }

  const LoadedModel& model_;
  const kernels::KernelTable& kernels_;
  kernels::Stream& stream_;
  memory::PageCache& cache_;
  memory::PageSource* const source_;
  const int batch_max_;
  Workspace workspace_;
  StepCounters counters_;
  bool gates_closed_ = false;
  int gates_open_ = 0;  // 0: as the router says

  // Of the step in progress; kept to save allocations.
  std::vector<memory::SessionMemory*> memories_;  // [sessions]
  std::vector<Status> statuses_;                  // [sessions]
  std::vector<std::vector<float>> explained_;     // [sessions] of [chunks]; empty: none wanted
  std::vector<int32_t> prefill_rows_;             // rows that are no padding
  std::vector<memory::GroupRead> reads_;
  std::vector<int32_t> sampled_rows_;
  std::vector<kernels::Sampling> sampling_;
  std::vector<int32_t> tokens_;
  std::vector<float> log_probabilities_;
};

}  // namespace mneme::model
