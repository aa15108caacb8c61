// Which closed chunks a query of one key head reads, and how much of each (models.md 2.2):
//
//   s_j = log mean_b exp(W_q q_raw . rep_{j,b} K^-1/2)      w_j = sigmoid(s_j + bias)
//
// A gate below theta is 0. The newest `recent_chunks` have gate 1 unseen. Of more than M the M
// largest stay, ties to the newer chunk. The list is newest first.
//
// The first level of the index spares chunks whose bound says that no representative can lift the
// gate to theta. It never changes the list.
//
// Cost:     K bytes a chunk for the first level; 2 P K bytes where the bound lets the chunk pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/shape.h"
#include "kernels/step_table.h"

namespace mneme::kernels {

struct RouteHeadArgs {
  LinearShape shape;
  int routed_layer = 0;
  int key_head = 0;
  const float* query_weight = nullptr;  // [K, K] of this head; null: only recent chunks
  float bias = 0;
  float theta = 0;  // in [0, 1)
  int recent_chunks = 0;
  bool use_index = true;                     // false: every chunk is scored
  const ChunkView* const* chunks = nullptr;  // [chunk_count], oldest first
  int32_t chunk_count = 0;
  int rows = 0;                  // 1, or the tokens of a piece
  const float* query = nullptr;  // raw q of row 0
  int64_t query_stride = 0;      // between rows
  int32_t* chunk = nullptr;      // out: M places from row 0's first, as in RouteList
  float* gate = nullptr;         // out
  int64_t list_stride = 0;       // between rows
  int32_t* count = nullptr;      // out
  int64_t count_stride = 0;      // between rows
  float* scratch = nullptr;      // [RouteScratch(shape)]
};

// Representatives scored by one product in the prefill form.
inline size_t RouteBlock(const LinearShape& shape) {
  constexpr size_t kRows = 128;
  const size_t each = static_cast<size_t>(shape.representatives());
  return each >= kRows ? each : kRows / each * each;
}

inline size_t RouteScratch(const LinearShape& shape) {
  const size_t k = static_cast<size_t>(shape.key_dim), rows = static_cast<size_t>(kPieceTokens);
  return 2 * rows * k + k + RouteBlock(shape) * (k + rows) + 3 * rows;
}

namespace cpu {

// One row: the decode form.
void RouteRow(const RouteHeadArgs& args);

// The rows of a piece, each chunk's representatives converted once: the prefill form.
void RoutePiece(const RouteHeadArgs& args);

}  // namespace cpu

}  // namespace mneme::kernels
