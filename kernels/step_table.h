// StepTable: all that changes from one step to the next, in the backend's memory. The ops read row
// counts, positions and addresses here, so that a recorded sequence of ops can run again.
//
// A step is either a decode step (one row for each of its sessions) or a prefill slice (one or more
// pieces of one session, each padded to kPieceTokens rows).
//
// Owns:     nothing; the step's plan and the sessions' memory own what the pointers name.
// Threads:  written by the engine thread between steps, read by the ops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/shape.h"

namespace mneme::kernels {

// The open chunk of one session as one linear layer sees it. Every row is addressed by its place in
// the chunk (position % T), so that writing it again changes nothing. f32 on the CPU.
//
// The state after row i, for any row vector x, with c the log decays summed from the chunk's start:
//   x A_i = e^{c_i} x + sum_{t <= i} e^{c_i - c_t} (x . k_t) uA_t        (A_i [K, K])
//   x B_i =             sum_{t <= i} e^{c_i - c_t} (x . k_t) uB_t        (B_i [K, V])
struct OpenRows {
  float* k = nullptr;  // [G, T, K]    normalised keys
  float* u = nullptr;  // [H, T, K+V]  uA then uB
  float* c = nullptr;  // [H, T]
  // Raw keys (before the convolution) of the open chunk, [G, T, K]; null where the layer has no
  // router.
  float* route_key = nullptr;
  // Pre-convolution columns of the last 3 tokens, oldest first: [2, kConvTaps-1, conv width]. A
  // step reads half `conv_read` of SessionView and writes the other; the halves swap when it is
  // committed. Not touched where the shape has no convolution.
  float* conv = nullptr;
};

// The open KV page of one session as one attention layer sees it. f32 on the CPU.
struct OpenKv {
  float* key = nullptr;    // [Hkv, T, E]  after norm and rotation
  float* value = nullptr;  // [Hkv, T, E]
};

// One closed chunk as routing and reading see it. Immutable but for residency.
struct ChunkView {
  // [paged layers, G] first byte of each page group, or null while it is not in memory. Paged
  // layers are the linear layers that keep pages, counted from 0.
  const std::byte* const* groups = nullptr;
  // Representatives as stored, f16: [routed layers, G, P, K]. Routed layers are counted from 0.
  const uint16_t* representatives = nullptr;
  // First level of the index: per routed layer and key head a centre and a radius that holds every
  // representative: |rep - scale * centroid| <= radius. [routed layers, G, K], [routed layers, G]
  // x2.
  const int8_t* centroid = nullptr;
  const float* centroid_scale = nullptr;
  const float* radius = nullptr;
  // [attention layers] KV pages, in memory whenever the session runs.
  const std::byte* const* kv = nullptr;
};

// One session's memory in this step.
struct SessionView {
  const OpenRows* open = nullptr;            // [linear layers]
  const OpenKv* open_kv = nullptr;           // [attention layers]
  const ChunkView* const* chunks = nullptr;  // [chunk_count], oldest first
  int32_t chunk_count = 0;                   // closed chunks: C
  int32_t conv_read = 0;                     // which half of OpenRows::conv holds the tail
  // Readers whose gates do not depend on the query: history as one state a linear layer,
  // [linear layers] of [H, K, V]; null for hla.
  const float* const* folded = nullptr;
};

// A run of prompt rows (kPrefill only). Its rows lie at [row, row + tokens) of every activation;
// rows up to row + kPieceTokens are padding, computed but never read.
struct Piece {
  int32_t row = 0;       // a multiple of kPieceTokens
  int32_t tokens = 0;    // 1 .. kPieceTokens
  int32_t position = 0;  // of the first token
};

struct StepTable {
  RowForm form = RowForm::kDecode;
  int32_t rows = 0;                   // kDecode: sessions; kPrefill: kPieceTokens * piece_count
  const int32_t* token = nullptr;     // [rows]  ids; 0 in padding
  const int32_t* position = nullptr;  // [rows]  in the session; 0 in padding
  const int32_t* session = nullptr;   // [rows]  index into sessions; -1 in padding
  const Piece* pieces = nullptr;      // [piece_count], in order of position; kPrefill only
  int32_t piece_count = 0;
  const SessionView* sessions = nullptr;
  int32_t session_count = 0;  // kPrefill: 1
};

// What `route` chose for each row and key head, newest chunk first. Rows of padding have count 0.
struct RouteList {
  int32_t* chunk = nullptr;           // [rows, G, M]  index of the closed chunk
  float* gate = nullptr;              // [rows, G, M]  w in (0, 1]
  const std::byte** group = nullptr;  // [rows, G, M]  the page group, or null: a miss
  int32_t* count = nullptr;           // [rows, G]     entries used, <= M
};

}  // namespace mneme::kernels
