// MemoryNeeds: the bytes a model takes before it is loaded: weights, one session, and each token of
// history for each reader. What `mneme model inspect` prints, and why a model that is too big is
// refused before anything is packed.
//
// Counted as the CPU backend keeps them: matrices packed as bf16 where every part is bf16, else as
// f32; vectors and the open chunk as f32; pages and KV in the page type; representatives as f16;
// the index's centroids as int8.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "kernels/dtype.h"
#include "memory/memory_layout.h"
#include "model/model_config.h"
#include "model/router_weights.h"
#include "model/weights.h"

namespace mneme::model {

// Which layers keep what under `reader`:
//   native  no pages, a folded state in every linear layer
//   mhla    pages of every linear layer that is not closed, and a folded state
//   hla     pages and representatives of the routed layers
// and for mhla and hla, pages of closed layers that read recent chunks. Without a router the window
// is the whole chunk and pages_max the largest of recent_chunks, at least 1.
memory::MemoryLayout LayoutOf(const ModelConfig& config, const RouterWeights& router,
                              memory::Reader reader, kernels::Dtype page_dtype);

// One session under one reader.
struct ReaderNeeds {
  memory::Reader reader = memory::Reader::kNative;
  bool offered = false;  // the folder has the weights for it

  // Per closed chunk of kChunkTokens tokens:
  uint64_t page_bytes = 0;            // pages of the layers that keep all of theirs
  uint64_t representative_bytes = 0;  // f16
  uint64_t index_bytes = 0;           // centroids, scales, radii: always in memory
  uint64_t kv_bytes = 0;              // of full-attention layers

  // Whatever the length:
  uint64_t open_chunk_bytes = 0;   // rows, raw route keys, convolution tails, open KV page
  uint64_t folded_bytes = 0;       // folded states
  uint64_t recent_page_bytes = 0;  // closed layers' recent chunks

  // On disk: of each closed chunk, and of each that is a rung (memory/ladder.h) besides.
  uint64_t disk_chunk_bytes = 0;
  uint64_t rung_bytes = 0;  // 0: every chunk is a start, and that is counted above

  uint64_t chunk_bytes() const {
    return page_bytes + representative_bytes + index_bytes + kv_bytes;
  }
  uint64_t session_bytes() const { return open_chunk_bytes + folded_bytes + recent_page_bytes; }
  double history_bytes_per_token() const {
    return static_cast<double>(chunk_bytes()) / kChunkTokens;
  }
  double disk_bytes_per_token() const {
    return static_cast<double>(disk_chunk_bytes) / kChunkTokens;
  }
  double kv_bytes_per_token() const { return static_cast<double>(kv_bytes) / kChunkTokens; }

  // Tokens of history that `cap_bytes` hold for one session, in whole chunks; nothing where the
  // length does not matter.
  std::optional<uint64_t> TokensWithin(uint64_t cap_bytes) const;
};

struct MemoryNeeds {
  uint64_t stored_bytes = 0;           // of the tensors in the files
  uint64_t weights_bytes = 0;          // once loaded, embedding and head included
  uint64_t workspace_bytes = 0;        // activations of one step
  std::array<ReaderNeeds, 3> readers;  // native, mhla, hla

  const ReaderNeeds& For(memory::Reader reader) const {
    return readers[static_cast<size_t>(reader)];
  }

  static MemoryNeeds Of(const ModelConfig& config, const Weights& weights,
                        const RouterWeights& router, kernels::Dtype page_dtype);
};

// kResourceExhausted, with needed and free bytes, where weights, workspace and one session with an
// open chunk do not fit into `available_bytes`.
Status CheckFits(const MemoryNeeds& needs, memory::Reader reader, uint64_t available_bytes);

// `1.5 GiB`, `12.0 KiB`, `7 B`.
std::string BytesText(uint64_t bytes);

}  // namespace mneme::model
