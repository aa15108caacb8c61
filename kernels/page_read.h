// Reads one closed chunk with row vectors that come from the newer chunks: per row, with gate w,
//
//   output <- output + w (carry B)        carry <- carry + w (carry A - carry)
//
// from the newest chunk to the oldest. w = 1 is the plain recurrence; a chunk with w = 0 is not
// read, and neither is any by a row whose carry is below kCarryDrop throughout: nothing older can
// show in its output. Where a dense A is not stored it is 0. The scale of a page is applied after
// the sum.
//
// Cost:     K (K+V) numbers a dense page, converted once for all rows that read it; K V numbers and
//           at most a row of A in the other kinds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/page_codec.h"
#include "kernels/shape.h"

namespace mneme::kernels {

// e^kDecayDrop, as a carry is made of such decays.
inline constexpr float kCarryDrop = 4.2e-18f;

struct PageReadArgs {
  PageView page;
  int key_dim = 0;               // K
  int value_dim = 0;             // V
  int count = 0;                 // rows that read the page, <= kPieceTokens
  const int32_t* row = nullptr;  // [count]  their places in carry and output, ascending
  const float* gate = nullptr;   // [count]  w in (0, 1]
  float* carry = nullptr;        // [rows, K]  in and out
  float* output = nullptr;       // [rows, V]  in and out
  float* square = nullptr;       // [count]  += |w carry B|^2
  float* scratch = nullptr;      // [PageReadScratch(...)]
};

constexpr size_t PageReadScratch(int key_dim, int value_dim) {
  const size_t width = static_cast<size_t>(key_dim) + static_cast<size_t>(value_dim);
  return static_cast<size_t>(key_dim) * width +
         static_cast<size_t>(kPieceTokens) * (static_cast<size_t>(key_dim) + width);
}

namespace cpu {

// Each row alone, straight from the page: the decode form.
void ReadPage(const PageReadArgs& args);

// All rows in one product with the page: the prefill form.
void ReadPageTogether(const PageReadArgs& args);

}  // namespace cpu

}  // namespace mneme::kernels
