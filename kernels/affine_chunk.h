// AffineChunk: what a run of tokens does to the state of one head, S <- A S + B, for every kind of
// A (transition.h) and every model whose tokens follow a TokenRule. Whatever is done with history
// is one of six ops on it:
//
//   start     A = I, B = 0
//   step      one token more
//   append    a piece of up to kPieceTokens tokens more, with what each of its rows reads
//   merge     the newer after the older: (A2 A1, A2 B1 + B2)
//   read      newest to oldest, with gate w:   output <- output + w carry B
//                                              carry  <- carry + w (carry A - carry)
//   fold      oldest to newest, with gate w:   S <- (1 - w) S + w (A S + B)
//
// A read begins with carry = q and output = 0. All gates 1 is the plain recurrence; gates of a
// router are HLA; gates of a mixing matrix on identity chunks are MHLA, whose weight of the open
// chunk is a gate like any other. A state S0 from before the oldest chunk is an identity chunk with
// B = S0. A chunk whose gate is 0 is not touched.
//
// These are the definition that a fast path is held to: gdn_step.h, gdn_chunk.h and page_read.h
// serve Gated DeltaNet in f32. float and double are instantiated; sums of log decays are double in
// both.
//
// Shapes:   a as the kind needs (TransitionNumbers), b [K, V], row-major.
// Units:    a log decay is at most 0; below kLogDecayMin it is held there.
// Threads:  any; a workspace serves one call at a time.
// Order:    the bits of a row may depend on the other rows of its call. A NaN in a later token of a
//           piece reaches that piece's earlier rows.
// Errors:   kInvalidArgument  an array is null, a size or a gate is out of range; nothing was done
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/shape.h"
#include "kernels/transition.h"

namespace mneme::kernels {

inline constexpr double kLogDecayMin = -88.0;  // e^-88 is the end of f32's range

// One head; K and V need not be equal.
struct AffineShape {
  TokenRule rule;
  int key_dim = 0;    // K, at most kHeadDimMax
  int value_dim = 0;  // V, at most kHeadDimMax

  TransitionKind kind() const { return rule.kind(); }
  int64_t a_numbers() const { return TransitionNumbers(kind(), key_dim); }
  int64_t b_numbers() const { return int64_t{key_dim} * value_dim; }
};

// A chunk in the caller's memory. `a` may be null where the kind needs no number.
template <typename Real>
struct AffineChunk {
  Real* a = nullptr;
  Real* b = nullptr;
};

template <typename Real>
struct ConstAffineChunk {
  const Real* a = nullptr;
  const Real* b = nullptr;

  ConstAffineChunk() = default;
  ConstAffineChunk(const Real* numbers_a, const Real* numbers_b) : a(numbers_a), b(numbers_b) {}
  ConstAffineChunk(const AffineChunk<Real>& chunk) : a(chunk.a), b(chunk.b) {}  // NOLINT
};

// n tokens of one head. A stride is from token to token; 0 says that nothing lies between.
template <typename Real>
struct TokenRows {
  const Real* q = nullptr;      // [n, K]  scaled as the model wants; only `append` reads it
  const Real* k = nullptr;      // [n, K]  what is written to
  const Real* v = nullptr;      // [n, V]
  const Real* erase = nullptr;  // [n, K]  p; null: k. Only where the rule erases
  const Real* write_strength = nullptr;  // [n]  beta; null: 1
  const Real* log_decay = nullptr;       // [n] or [n, K], as the rule decays; else not read
  int64_t key_stride = 0;                // of q, k and erase
  int64_t value_stride = 0;
  int64_t strength_stride = 0;
  int64_t decay_stride = 0;
};

// Room for what the ops need in between, for every shape up to these sizes; n is kPieceTokens.
template <typename Real>
struct AffineWorkspace {
  AffineWorkspace(int key_dim_max, int value_dim_max);

  int key_dim = 0, value_dim = 0;
  std::vector<double> decay;       // [n + 1, K]  log decays summed, from 0 before the first token
  std::vector<Real> key;           // [n, K]
  std::vector<Real> reader;        // [2 n, K]    erase keys, then queries
  std::vector<Real> late_key;      // [n, K]      keys as a later token finds them
  std::vector<Real> late_reader;   // [2 n, K]  readers as from a token before them
  std::vector<Real> score;         // [2 n, n]
  std::vector<Real> written;       // [n, K + V]  uA, uB of gdn_step.h
  std::vector<Real> product;       // [n, K + V]
  std::vector<Real> a, a_product;  // [K, K]
  std::vector<Real> b, b_product;  // [K, V]
};

template <typename Real>
struct StepTokenArgs {
  AffineShape shape;
  TokenRows<Real> token;    // one
  AffineChunk<Real> chunk;  // in and out; with `a` null b alone is stepped: a plain state
  AffineWorkspace<Real>* workspace = nullptr;
};

template <typename Real>
struct AppendPieceArgs {
  AffineShape shape;
  int count = 0;  // n, at most kPieceTokens
  TokenRows<Real> tokens;
  AffineChunk<Real> chunk;  // in and out
  Real* carry = nullptr;    // [n, K]  out: q_i A_i, A_i of the chunk up to and with token i
  Real* output = nullptr;   // [n, V]  out: q_i B_i
  AffineWorkspace<Real>* workspace = nullptr;
};

template <typename Real>
struct MergeChunksArgs {
  AffineShape shape;
  ConstAffineChunk<Real> older, newer;
  AffineChunk<Real> out;  // may be one of them
  AffineWorkspace<Real>* workspace = nullptr;
};

template <typename Real>
struct ReadChunkArgs {
  AffineShape shape;
  ConstAffineChunk<Real> chunk;
  int count = 0;               // n rows
  const Real* gate = nullptr;  // [n]  w in [0, 1]; null: 1
  Real* carry = nullptr;       // [n, K]  in and out
  Real* output = nullptr;      // [n, V]  in and out
  AffineWorkspace<Real>* workspace = nullptr;
};

template <typename Real>
struct FoldChunkArgs {
  AffineShape shape;
  ConstAffineChunk<Real> chunk;
  Real gate = 1;          // w in [0, 1]
  Real* state = nullptr;  // [K, V]  in and out
  AffineWorkspace<Real>* workspace = nullptr;
};

template <typename Real>
Status Validate(const StepTokenArgs<Real>& args);
template <typename Real>
Status Validate(const AppendPieceArgs<Real>& args);
template <typename Real>
Status Validate(const MergeChunksArgs<Real>& args);
template <typename Real>
Status Validate(const ReadChunkArgs<Real>& args);
template <typename Real>
Status Validate(const FoldChunkArgs<Real>& args);

namespace cpu {

template <typename Real>
void StartChunk(const AffineShape& shape, AffineChunk<Real> chunk);

template <typename Real>
Status StepToken(const StepTokenArgs<Real>& args);

template <typename Real>
Status AppendPiece(const AppendPieceArgs<Real>& args);

template <typename Real>
Status MergeChunks(const MergeChunksArgs<Real>& args);

template <typename Real>
Status ReadChunk(const ReadChunkArgs<Real>& args);

template <typename Real>
Status FoldChunk(const FoldChunkArgs<Real>& args);

}  // namespace cpu

}  // namespace mneme::kernels
