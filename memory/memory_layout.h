// MemoryLayout: which layers of a model keep what, and how many bytes that is. Fixed once a model
// is loaded; every size in memory/ follows from it.
//
// Layers are counted in four ways: in the model, among the linear layers, among the paged layers
// (linear layers that keep pages) and among the routed layers (those with a router, a subset).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/page_group.h"
#include "kernels/shape.h"

namespace mneme::memory {

// How history enters a step.
enum class Reader : uint8_t {
  kNative,  // all of it, folded into one state
  kMhla,    // weighted by a fixed mixing matrix
  kHla      // chosen per query by gates
};

constexpr std::string_view NameOf(Reader reader) {
  switch (reader) {
    case Reader::kNative:
      return "native";
    case Reader::kMhla:
      return "mhla";
    case Reader::kHla:
      return "hla";
  }
  return "?";
}

struct MemoryLayout {
  Reader reader = Reader::kNative;
  int hidden = 0;  // D
  kernels::LinearShape linear;
  kernels::AttentionShape attention;
  kernels::Dtype page_dtype = kernels::Dtype::kF16;  // f16 or f32

  std::vector<int> linear_layers;     // index in the model of each linear layer
  std::vector<int> attention_layers;  // index in the model of each attention layer
  std::vector<int> paged_layers;      // index among the linear layers of each paged layer
  std::vector<int> routed_layers;     // index among the linear layers of each routed layer
  std::vector<int> recent_chunks;     // per paged layer: newest chunks always read
  std::vector<int> closed_layers;     // index among the paged layers: they read no others

  int chunk_tokens() const { return linear.chunk_tokens; }
  int groups_per_chunk() const { return static_cast<int>(paged_layers.size()) * linear.key_heads; }
  size_t group_bytes() const {
    return kernels::PageGroupBytes(linear.heads_per_group(), linear.key_dim, linear.value_dim,
                                   page_dtype, linear.transition);
  }
  // f16 representatives of one chunk: [routed layers, G, P, K].
  size_t representatives_count() const {
    return routed_layers.size() * static_cast<size_t>(linear.key_heads) *
           static_cast<size_t>(linear.representatives()) * static_cast<size_t>(linear.key_dim);
  }
  // First level of one chunk's index: [routed layers, G, K] and [routed layers, G].
  size_t centroid_count() const { return radius_count() * static_cast<size_t>(linear.key_dim); }
  size_t radius_count() const {
    return routed_layers.size() * static_cast<size_t>(linear.key_heads);
  }
  // One closed KV page: keys then values, [2, Hkv, T, E].
  size_t kv_page_bytes() const {
    return size_t{2} * static_cast<size_t>(attention.kv_heads) *
           static_cast<size_t>(attention.chunk_tokens) * static_cast<size_t>(attention.head_dim) *
           kernels::BytesOf(page_dtype);
  }
  // Floats of one linear layer's convolution tail: [kConvTaps - 1, conv width]; 0 without one.
  size_t conv_tail_floats() const {
    if (linear.conv_taps == 0) return 0;
    return static_cast<size_t>(kernels::kConvTaps - 1) * static_cast<size_t>(linear.conv_width());
  }
  // Floats of one linear layer's folded state: [H, K, V].
  size_t folded_floats() const {
    return static_cast<size_t>(linear.value_heads) * static_cast<size_t>(linear.key_dim) *
           static_cast<size_t>(linear.value_dim);
  }
  bool folds() const { return reader != Reader::kHla; }
};

}  // namespace mneme::memory
