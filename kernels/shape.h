// Sizes of a layer that its ops share, the two forms in which a row can be computed, and the two in
// which the weight of a norm is stored.
//
// Letters as in docs/glossary.md: D model width, G key heads, H value heads, K and V their widths,
// T tokens of a chunk, P representatives of a chunk, M chunks a query may read.
#pragma once

#include <cstdint>

#include "kernels/transition.h"

namespace mneme::kernels {

// How a row is computed. The form is a function of the token's role in the log alone, so that the
// same log gives the same bits (architecture decision 8).
enum class RowForm : uint8_t {
  kDecode,  // a generated token: own row kernel, one row a session
  kPrefill  // a prompt token: pieces of at most kPieceTokens rows, padded to kPieceTokens
};

// What the norms before a layer, an MLP and the head are multiplied with.
enum class NormWeight : uint8_t {
  kZeroCentred,  // 1 + norm_weight, as Qwen3.5 stores it
  kPlain         // norm_weight
};

// Rows of one piece. A piece is the longest run of prompt tokens of one turn within one cell of the
// chunk's 64-token grid.
inline constexpr int kPieceTokens = 64;

// Taps of the short convolution; the last is the current token.
inline constexpr int kConvTaps = 4;

// A linear layer; Gated DeltaNet, while the transition is dense.
struct LinearShape {
  int hidden = 0;         // D
  int key_heads = 0;      // G
  int value_heads = 0;    // H, a multiple of G; value head h uses key head h / (H/G)
  int key_dim = 0;        // K
  int value_dim = 0;      // V
  int chunk_tokens = 0;   // T, a multiple of kPieceTokens
  int window_tokens = 0;  // tokens pooled into one representative; P = T / window_tokens
  int pages_max = 0;      // M, chunks read per query and key head
  TransitionKind transition = TransitionKind::kDense;  // of a chunk
  int conv_taps = kConvTaps;  // of the convolution on q, k, v: kConvTaps, or 0 for none

  int key_width() const { return key_heads * key_dim; }        // all key heads
  int value_width() const { return value_heads * value_dim; }  // all value heads
  int conv_width() const { return 2 * key_width() + value_width(); }
  // Columns of the layer's input projection: q, k, v, z, b, a in this order.
  int projected_width() const { return conv_width() + value_width() + 2 * value_heads; }
  int heads_per_group() const { return value_heads / key_heads; }
  int representatives() const { return chunk_tokens / window_tokens; }  // P
};

// A gated full-attention layer.
struct AttentionShape {
  int hidden = 0;       // D
  int query_heads = 0;  // Hq, a multiple of kv_heads
  int kv_heads = 0;     // Hkv
  int head_dim = 0;     // E
  int rotary_dim = 0;   // first dims of a head that turn with the position, even
  double rope_theta = 0;
  int chunk_tokens = 0;  // T, tokens of a KV page

  // Columns of the layer's input projection: per query head [query E, gate E], then k, then v.
  int projected_width() const { return 2 * query_heads * head_dim + 2 * kv_heads * head_dim; }
};

// A layer of MHLA's language model.
struct BlockShape {
  int heads = 0;      // H
  int key_dim = 0;    // K, even: all of it turns with the position
  int value_dim = 0;  // V
  double rope_theta = 0;

  int key_width() const { return heads * key_dim; }
  int value_width() const { return heads * value_dim; }
  // Columns of the layer's input projection: q, k, v and the output gate g, head after head.
  int projected_width() const { return 2 * key_width() + 2 * value_width(); }
  int64_t sum_numbers() const { return int64_t{heads} * key_dim * value_dim; }  // of a block's sum
};

}  // namespace mneme::kernels
