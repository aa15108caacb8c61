// OpenChunk is the unfinished chunk of a running session: the rows (k, u, c) of every linear layer,
// raw route keys, convolution tails, the open KV page of every attention layer, and the last hidden
// row, from which the next token is drawn.
//
// Owns:     its memory, in one piece; only what has been written is ever resident.
// Threads:  engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/step_table.h"
#include "memory/memory_layout.h"

namespace mneme::memory {

class OpenChunk {
 public:
  explicit OpenChunk(const MemoryLayout& layout);

  OpenChunk(OpenChunk&&) noexcept = default;
  OpenChunk& operator=(OpenChunk&&) noexcept = default;

  // Back to a session's start: no rows, tails of zeros.
  void Reset();

  // Gives the memory of the rows from `tokens` on back to the system, in whole pages. What those
  // rows held is gone; they may be written again.
  void ReleaseRows(int tokens);

  // Bytes of `layout`'s open chunk once it is full.
  static size_t Bytes(const MemoryLayout& layout);
  // The part of them that `rows` rows take.
  static size_t RowBytes(const MemoryLayout& layout, int rows);

  // Takes over the first `tokens` rows, tails and hidden row of another open chunk.
  void CopyFrom(const OpenChunk& other, int tokens);

  const kernels::OpenRows* rows() const { return rows_.data(); }  // [linear layers]
  const kernels::OpenKv* kv() const { return kv_.data(); }        // [attention layers]

  int conv_read() const { return conv_read_; }
  // The step that wrote the other half is committed.
  void SwapConv() { conv_read_ = 1 - conv_read_; }

  // The tail that the next step reads: [kConvTaps - 1, conv width].
  float* conv_tail(int linear_layer);
  const float* conv_tail(int linear_layer) const;
  float* last_hidden() { return last_hidden_; }              // [D]
  const float* last_hidden() const { return last_hidden_; }  // [D]

 private:
  // Mapped for itself: from the heap, chunks of sessions that come and go leave holes in which
  // small things settle, and the heap grows with every session that was ever open.
  struct Unmap {
    size_t bytes;
    void operator()(float* floats) const;
  };

  const MemoryLayout* layout_;
  std::unique_ptr<float[], Unmap> storage_;
  std::vector<kernels::OpenRows> rows_;
  std::vector<kernels::OpenKv> kv_;
  float* last_hidden_ = nullptr;
  int conv_read_ = 0;
};

}  // namespace mneme::memory
