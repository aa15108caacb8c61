// Boundary is what layers need to start at a chunk's end besides pages: the tails of the
// convolutions, the last hidden row, and the folded states where the reader keeps them.
//
// Bytes (docs/formats.md, little endian f32):
//   boundary := conv{linear layers} hidden folded{linear layers or none}
//   conv     := [kConvTaps - 1, conv width]   hidden := [D]   folded := [H, K, V]
//
// conv is empty in a model without convolutions.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "memory/memory_layout.h"

namespace mneme::memory {

struct Boundary {
  std::vector<float> conv_tails;   // [linear layers, kConvTaps - 1, conv width]
  std::vector<float> last_hidden;  // [D]
  std::vector<float> folded;       // [linear layers, H, K, V]; empty unless the reader folds

  std::vector<std::byte> Encode() const;
  // kCorruption when the size is not the layout's.
  static Result<Boundary> Decode(const MemoryLayout& layout, ByteSpan bytes);
  static size_t Bytes(const MemoryLayout& layout);
};

}  // namespace mneme::memory
