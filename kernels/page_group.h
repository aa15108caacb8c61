// PageGroup: the bytes of the pages of one key head of one (layer, chunk): a header, then for each
// of its r = H/G value heads B [K, V] and of A what its kind needs, row-major.
//
//   group  := header page{heads}
//   page   := B[K*V] A                 in the page's type
//   A      := [K*K]                    dense; in the layout even where a_stored is 0
//           | f32[1] | f32[K] |        scalar, diagonal, identity: few numbers, so never rounded
//
// A stored number x stands for x * 2^exponent; B and a dense A of a head have an exponent each. The
// f32 numbers of a page may lie unaligned. The same
// bytes lie in every tier, little endian. docs/formats.md says the same for readers of files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/transition.h"

namespace mneme::kernels {

inline constexpr uint32_t kPageGroupMagic = 0x47504e4d;  // "MNPG"
inline constexpr uint16_t kPageGroupVersion = 1;
inline constexpr int kGroupHeadsMax = 8;  // value heads of one key head

struct PageGroupHeader {
  uint32_t magic = kPageGroupMagic;
  uint16_t version = kPageGroupVersion;
  Dtype dtype = Dtype::kF16;  // f16 or f32
  uint8_t heads = 0;          // r, value heads in this group
  uint16_t layer = 0;         // index in the model
  uint16_t key_head = 0;
  uint16_t key_dim = 0;    // K
  uint16_t value_dim = 0;  // V
  uint32_t tokens = 0;     // tokens of the chunk
  TransitionKind transition = TransitionKind::kDense;
  uint8_t reserved[3] = {};
  uint64_t first_position = 0;
  int16_t b_exponent[kGroupHeadsMax] = {};
  int16_t a_exponent[kGroupHeadsMax] = {};
  float log_gamma[kGroupHeadsMax] = {};   // sum of the chunk's log decays; the channels' largest
  uint8_t a_stored[kGroupHeadsMax] = {};  // 0: dense and forgetting (kLogGammaDrop), A is read as 0
  uint8_t padding[8] = {};
  uint64_t checksum[2] = {};  // XXH3-128 of the group with this field zero; low word first
};
static_assert(sizeof(PageGroupHeader) == 128);

// Where log_gamma is below this and no number of A above e^kLogGammaDrop, the transition forgets
// everything that came before by more than f16 can show.
inline constexpr float kLogGammaDrop = -16.0f;

constexpr size_t PageBytes(int key_dim, int value_dim, Dtype dtype,
                           TransitionKind kind = TransitionKind::kDense) {
  const size_t a_bytes = kind == TransitionKind::kDense ? BytesOf(dtype) : sizeof(float);
  return static_cast<size_t>(key_dim) * static_cast<size_t>(value_dim) * BytesOf(dtype) +
         static_cast<size_t>(TransitionNumbers(kind, key_dim)) * a_bytes;
}

constexpr size_t PageGroupBytes(int heads, int key_dim, int value_dim, Dtype dtype,
                                TransitionKind kind = TransitionKind::kDense) {
  return sizeof(PageGroupHeader) +
         static_cast<size_t>(heads) * PageBytes(key_dim, value_dim, dtype, kind);
}

}  // namespace mneme::kernels
