// Workspace: the activations of one step, sized at start and never grown.
//
// Owns:     all arrays. Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/step_table.h"
#include "model/loaded_model.h"

namespace mneme::model {

// Most rows of one step: a prefill slice ends at the chunk's border, and a decode batch is smaller.
inline constexpr int kRowsMax = 256;

struct Workspace {
  Workspace(const LoadedModel& model, int batch_max);

  // Activations, [kRowsMax, ...]; memory is resident only as far as rows have used it.
  using Floats = std::unique_ptr<float[]>;
  Floats x;                          // D
  Floats projected;                  // widest input projection
  Floats q, k, v;                    // G K, G K, H V
  Floats write_strength, log_decay;  // H
  Floats mixed;                      // widest mixer output
  Floats share;                      // G M
  Floats logits;                     // [batch_max, vocab]

  // The list that route fills, [kRowsMax, G, M] and [kRowsMax, G].
  std::vector<int32_t> list_chunk;
  std::vector<float> list_gate;
  std::vector<const std::byte*> list_group;
  std::vector<int32_t> list_count;
  kernels::RouteList list;

  // The step table and its arrays, [kRowsMax].
  std::vector<int32_t> token, position, session;
  std::vector<kernels::Piece> pieces;
  std::vector<kernels::SessionView> sessions;
  kernels::StepTable table;
};

}  // namespace mneme::model
