// KernelTable: the ops a backend offers, as one struct of function pointers. These entries and no
// smaller ones: a backend is free to fuse what is inside an entry.
//
// Capacities and addresses are in the args by value; whatever changes from step to step is behind
// `step`. Activations are f32 on the CPU, row-major, the last letter innermost, and may not overlap
// unless said. `rows` in shapes is StepTable::rows.
//
// Order:    each op is queued on `stream`; arrays must live until the stream has passed it.
// Threads:  engine thread only.
// Errors:   kInvalidArgument  an array is null or a size is out of range; nothing was queued
//           kDeviceFailed     the device refused (cuda only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "kernels/dtype.h"
#include "kernels/shape.h"
#include "kernels/step_table.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace mneme::kernels {

// A weight matrix in the backend's own layout. Made once by pack_weights.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual int64_t rows() const = 0;       // outputs O
  virtual int64_t cols() const = 0;       // inputs I
  virtual size_t bytes() const = 0;       // memory it holds itself
  virtual size_t bytes_read() const = 0;  // bytes one pass over it reads
};

// x <- row `token` of the table, for every row.
struct EmbedArgs {
  const StepTable* step = nullptr;
  TensorView table;    // [vocab, D] in host memory (cpu) or as packed by the backend
  float* x = nullptr;  // [rows, D]
};

// out <- RMSNorm(x; norm_weight) W^T: all input projections of a layer in one matrix.
struct ProjectInArgs {
  const StepTable* step = nullptr;
  const float* norm_weight = nullptr;  // [D]
  float epsilon = 0;
  const PackedMatrix* weight = nullptr;  // [O, D]
  const float* x = nullptr;              // [rows, D]
  float* out = nullptr;                  // [rows, O]
  NormWeight norm = NormWeight::kZeroCentred;
};

// Short convolution and SiLU on q, k, v; l2norm of q and k; q scaled by K^-1/2; gates; raw route
// keys and the convolution's tail into the open chunk (models.md 3.1 steps 3 to 6).
struct GdnPrepareArgs {
  const StepTable* step = nullptr;
  LinearShape shape;
  int linear_layer = 0;                // index among the linear layers
  const float* projected = nullptr;    // [rows, projected width]
  const float* conv_weight = nullptr;  // [conv width, kConvTaps]; null without a convolution
  const float* decay_rate = nullptr;   // [H]  exp(A_log)
  const float* dt_bias = nullptr;      // [H]
  float* q = nullptr;                  // [rows, G, K]
  float* k = nullptr;                  // [rows, G, K]
  float* v = nullptr;                  // [rows, H, V]
  float* write_strength = nullptr;     // [rows, H]  beta
  float* log_decay = nullptr;          // [rows, H]  g <= 0
};

// Which closed chunks each row and key head reads, and how much of each (models.md 2.2):
//   s_j = log mean_b exp(W_q q_raw . rep_{j,b} K^-1/2),  w_j = sigmoid(s_j + bias),
// w_j < theta is 0; the newest `recent_chunks` always have w = 1 and count in M; of more than M the
// M largest stay, ties to the newer chunk.
struct RouteArgs {
  const StepTable* step = nullptr;
  LinearShape shape;
  int paged_layer = 0;               // index among the layers that keep pages
  int routed_layer = -1;             // index among the layers with a router; -1: only recent chunks
  const float* projected = nullptr;  // [rows, projected width]; raw q is its first G K columns
  const float* query_weight = nullptr;  // W_q [G, K, K], y = W x; null without a router
  const float* bias = nullptr;          // [G]
  float theta = 0;
  int recent_chunks = 0;
  RouteList list;             // out
  int32_t* misses = nullptr;  // out: entries of the list whose group is null
};

// One token after the other or in chunk form: writes the rows (k, u, c) of the open chunk and reads
// open rows plus history, then the gated norm:
//   out <- RMSNorm(y; norm_weight) SiLU(z),  y = q (open chunk) + history
// History is the list (newest first: y += w r B; r += w (r A - r)) or the folded state (y += r S).
struct GdnReadArgs {
  const StepTable* step = nullptr;
  LinearShape shape;
  int linear_layer = 0;
  const float* projected = nullptr;  // [rows, projected width]; z is taken from here
  const float* q = nullptr;          // as GdnPrepareArgs
  const float* k = nullptr;
  const float* v = nullptr;
  const float* write_strength = nullptr;
  const float* log_decay = nullptr;
  RouteList list;                      // chunk null: the layer reads no pages
  const float* norm_weight = nullptr;  // [V], plain
  float epsilon = 0;
  float* out = nullptr;    // [rows, H V]
  float* share = nullptr;  // [rows, G, M]  |w r B| / |y| over the group's heads; null: not wanted
};

// Full attention of a hybrid's layer: q and k norms, rotation, append to the open KV page, softmax
// over all pages, output gate (models.md 3.5).
struct AttentionArgs {
  const StepTable* step = nullptr;
  AttentionShape shape;
  int attention_layer = 0;           // index among the attention layers
  Dtype kv_dtype = Dtype::kF16;      // of closed KV pages
  const float* projected = nullptr;  // [rows, projected width]
  const float* q_norm = nullptr;     // [E], zero-centred
  const float* k_norm = nullptr;     // [E], zero-centred
  float epsilon = 0;
  float* out = nullptr;  // [rows, Hq E]
};

// x <- x + in W^T
struct ProjectOutArgs {
  const StepTable* step = nullptr;
  const PackedMatrix* weight = nullptr;  // [D, I]
  const float* in = nullptr;             // [rows, I]
  float* x = nullptr;                    // [rows, D]
};

// x <- x + W_down (SiLU(W_gate n) o (W_up n)),  n = RMSNorm(x; norm_weight)
struct MlpArgs {
  const StepTable* step = nullptr;
  const float* norm_weight = nullptr;  // [D]
  float epsilon = 0;
  const PackedMatrix* gate_up = nullptr;  // [2 F, D], gate rows first
  const PackedMatrix* down = nullptr;     // [D, F]
  float* x = nullptr;                     // [rows, D]
  NormWeight norm = NormWeight::kZeroCentred;
};

// How one row's next token is drawn. Counter-based: (seed, position) decides, no state is kept.
struct Sampling {
  float temperature = 0;  // 0: the most likely token, lowest id on ties
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  // divides positive and multiplies negative logits of `seen`
  uint64_t seed = 0;
  uint64_t position = 0;          // of the token to be drawn
  const int32_t* seen = nullptr;  // [seen_count] ids, each once
  int32_t seen_count = 0;
};

// logits <- head RMSNorm(x; norm_weight) for the chosen rows, and a token drawn from each.
struct LogitsSampleArgs {
  const StepTable* step = nullptr;
  const float* norm_weight = nullptr;  // [D]
  float epsilon = 0;
  const PackedMatrix* head = nullptr;  // [vocab rows, D]
  int32_t vocab = 0;                   // ids at and above are padding and never drawn
  const float* x = nullptr;            // [rows, D]
  const int32_t* rows = nullptr;       // [count]  which rows
  int32_t count = 0;
  const Sampling* sampling = nullptr;  // [count]; null: no token is drawn
  float* logits = nullptr;             // [count, vocab]
  int32_t* token = nullptr;            // [count]
  float* log_probability = nullptr;    // [count]  of the drawn token at temperature 1; may be null
  NormWeight norm = NormWeight::kZeroCentred;
};

// The router's pooling weights of one layer, y = W x per key head.
struct PoolWeights {
  const float* key = nullptr;     // [G, K, K]
  const float* value = nullptr;   // [G, K, K]
  const float* output = nullptr;  // [G, K, K]
};

// Pools the raw route keys of every window [first_window, last_window) of one session's open chunk,
// in all routed layers at once (models.md 2.2 step 2), rounding to f16 once.
struct RepresentArgs {
  LinearShape shape;
  std::span<const PoolWeights> pool;        // [routed layers]
  std::span<const float* const> route_key;  // [routed layers] of [G, T, K]
  int first_window = 0;
  int last_window = 0;                  // exclusive, <= P
  uint16_t* representatives = nullptr;  // f16 [routed layers, G, P, K]
};

// First level of the index of a full chunk from its stored representatives.
struct IndexArgs {
  LinearShape shape;
  int routed_layers = 0;
  const uint16_t* representatives = nullptr;  // f16 [routed layers, G, P, K]
  int8_t* centroid = nullptr;                 // [routed layers, G, K]
  float* centroid_scale = nullptr;            // [routed layers, G]
  float* radius = nullptr;                    // [routed layers, G], widened by the rounding
};

// Turns the open rows of a full chunk into page groups (header fields but the checksum included),
// in all layers that keep pages at once, rounded once:
//   A = e^{c_T} I + sum_t e^{c_T - c_t} k_t^T uA_t,   B likewise from uB.
struct SealArgs {
  LinearShape shape;
  Dtype dtype = Dtype::kF16;
  uint64_t first_position = 0;
  std::span<const OpenRows> open;      // [paged layers]
  std::span<const int> layer;          // [paged layers] index in the model, for the header
  std::span<std::byte* const> groups;  // [paged layers, G] destinations of PageGroupBytes
  // KV pages, [2, Hkv, T, E] keys then values in `dtype`, and where they come from.
  AttentionShape attention;
  std::span<const OpenKv> open_kv;  // [attention layers]
  std::span<std::byte* const> kv;   // [attention layers]
};

// Native reader: S <- A S + B with the unrounded transition of the open rows, in all linear layers.
struct FoldArgs {
  LinearShape shape;
  std::span<const OpenRows> open;  // [linear layers]
  std::span<float* const> state;   // [linear layers] of [H, K, V], in and out
};

// MHLA reader: S <- (1 - w) S + w (A S + B) over one closed chunk's pages, in all paged layers.
struct FoldPagesArgs {
  LinearShape shape;
  const ChunkView* chunk = nullptr;
  std::span<const float> gate;    // [paged layers]  w
  std::span<float* const> state;  // [paged layers] of [H, K, V], in and out
};

// One session's memory of one MHLA layer in a step (block_mix.h).
struct BlockState {
  float* open = nullptr;          // C [H, K, V], in and out
  const float* prefix = nullptr;  // P [H, K, V]; null in the first block
  float own_weight = 0;           // m[i,i] of the open block
};

// relu and rotation of q and k, q scaled by K^-1/2; the row's keys and values into the open block
// and what it reads, then the gated norm (models.md 1.1 to 1.3):
//   out <- RMSNorm(o; norm_weight) SiLU(g)
// A prefill step has one piece, whose tokens lie in one block.
struct BlockReadArgs {
  const StepTable* step = nullptr;  // sessions are not read
  BlockShape shape;
  const float* projected = nullptr;    // [rows, projected width]
  const BlockState* states = nullptr;  // [session_count]
  const float* norm_weight = nullptr;  // [V], plain
  float epsilon = 0;
  float* out = nullptr;  // [rows, H V]
};

// prefix <- sum_j weight_j S_j, for one layer.
struct BlockPrefixArgs {
  BlockShape shape;
  std::span<const float* const> sums;  // [count] of [H, K, V]
  std::span<const float> weights;      // [count]
  float* prefix = nullptr;             // [H, K, V]
};

struct KernelTable {
  const char* name = "";  // "cpu", "cuda"

  // A stream with the backend's workers; `threads` matters on the CPU only.
  Result<std::unique_ptr<Stream>> (*make_stream)(int threads) = nullptr;

  // One matrix whose rows are the blocks' rows in order. All blocks have the same cols. bf16 stays
  // bf16 where every block is bf16, else f32. The views may be dropped afterwards.
  Result<std::unique_ptr<PackedMatrix>> (*pack_weights)(std::span<const TensorView> blocks) =
      nullptr;

  Status (*embed)(const EmbedArgs&, Stream&) = nullptr;
  Status (*project_in)(const ProjectInArgs&, Stream&) = nullptr;
  Status (*gdn_prepare)(const GdnPrepareArgs&, Stream&) = nullptr;
  Status (*route)(const RouteArgs&, Stream&) = nullptr;
  Status (*gdn_read)(const GdnReadArgs&, Stream&) = nullptr;
  Status (*attention)(const AttentionArgs&, Stream&) = nullptr;
  Status (*block_read)(const BlockReadArgs&, Stream&) = nullptr;
  Status (*block_prefix)(const BlockPrefixArgs&, Stream&) = nullptr;
  Status (*project_out)(const ProjectOutArgs&, Stream&) = nullptr;
  Status (*mlp)(const MlpArgs&, Stream&) = nullptr;
  Status (*logits_sample)(const LogitsSampleArgs&, Stream&) = nullptr;
  Status (*represent)(const RepresentArgs&, Stream&) = nullptr;
  Status (*index)(const IndexArgs&, Stream&) = nullptr;
  Status (*seal)(const SealArgs&, Stream&) = nullptr;
  Status (*fold)(const FoldArgs&, Stream&) = nullptr;
  Status (*fold_pages)(const FoldPagesArgs&, Stream&) = nullptr;
};

// The CPU backend: the reference, and what runs where there is no GPU.
const KernelTable& CpuKernels();

}  // namespace mneme::kernels
