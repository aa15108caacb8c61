// Small layouts for tests of memory: sizes that nothing divides, in every combination of layers.
#pragma once

#include "memory/memory_layout.h"

namespace mneme::support {

// Three linear layers of which the first is closed with one recent chunk and the others are routed,
// then one attention layer; grouped value heads.
inline memory::MemoryLayout SmallLayout(memory::Reader reader = memory::Reader::kHla) {
  memory::MemoryLayout layout;
  layout.reader = reader;
  layout.hidden = 24;
  layout.linear = {.hidden = 24,
                   .key_heads = 2,
                   .value_heads = 4,
                   .key_dim = 6,
                   .value_dim = 10,
                   .chunk_tokens = 128,
                   .window_tokens = 16,
                   .pages_max = 4};
  layout.attention = {.hidden = 24,
                      .query_heads = 4,
                      .kv_heads = 2,
                      .head_dim = 8,
                      .rotary_dim = 4,
                      .rope_theta = 1e4,
                      .chunk_tokens = 128};
  layout.page_dtype = kernels::Dtype::kF16;
  layout.linear_layers = {0, 1, 2};
  layout.attention_layers = {3};
  if (reader == memory::Reader::kHla) {
    layout.paged_layers = {0, 1, 2};
    layout.routed_layers = {1, 2};
    layout.recent_chunks = {1, 0, 0};
    layout.closed_layers = {0};
  }
  return layout;
}

}  // namespace mneme::support
