// PageCodec: packs a chunk's transition into the page of one value head, rounding once, and finds a
// page's parts again (page_group.h has the bytes).
//
// In f16 a number x is stored as f16(x / 2^e), ties to even, where e puts the largest magnitude of
// its matrix in [2^14, 2^15): numbers down to 2^-28 of the largest keep all their bits. Dividing by
// a power of two is exact, so that is the only rounding. In f32 nothing is rounded and e is 0, and
// neither is an A that is one number or a row.
//
// Errors:   kInvalidArgument  a number is not finite, so no page can hold it
//           kCorruption       a header that does not belong to the shape at hand
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/result.h"
#include "kernels/dtype.h"
#include "kernels/page_group.h"
#include "kernels/shape.h"

namespace mneme::kernels {

// Where the numbers of one value head lie, and what they are multiplied by.
struct PageView {
  Dtype dtype = Dtype::kF16;
  const std::byte* b = nullptr;  // [K, V]
  const std::byte* a = nullptr;  // as the kind needs; null where a dense A is read as 0
  float b_scale = 1;
  float a_scale = 1;
  TransitionKind transition = TransitionKind::kDense;

  // Of a scalar or diagonal A, which may lie unaligned.
  float NumberOfA(int channel) const {
    float number;
    const int index = transition == TransitionKind::kScalar ? 0 : channel;
    std::memcpy(&number, a + static_cast<size_t>(index) * sizeof(float), sizeof(float));
    return number;
  }
};

struct PackPageArgs {
  const float* a = nullptr;  // as the header's kind needs; null where that is nothing
  const float* b = nullptr;  // [K, V]
  int64_t a_stride = 0;      // from row to row of a dense A
  int64_t b_stride = 0;
  float log_gamma = 0;  // sum of the chunk's log decays; the channels' largest
  int head = 0;         // value head of the group
};

// A header for a group in which no head is packed yet.
PageGroupHeader MakePageGroupHeader(const LinearShape& shape, Dtype dtype, int layer, int key_head,
                                    uint64_t first_position);

// The header at the start of `group`, which holds PageGroupBytes and is aligned to 8 bytes.
Result<PageGroupHeader> ReadPageGroupHeader(const std::byte* group, const LinearShape& shape);

// Where value head `head`'s page begins in its group.
constexpr size_t PageOffset(const PageGroupHeader& header, int head) {
  return sizeof(PageGroupHeader) +
         static_cast<size_t>(head) *
             PageBytes(header.key_dim, header.value_dim, header.dtype, header.transition);
}

// The page of value head `head` of the group, 0 <= head < header.heads.
PageView PageOf(const std::byte* group, const PageGroupHeader& header, int head);

namespace cpu {

// Packs a chunk as a value head's page; fills the head's fields of `header`, which the caller
// stores when all heads are packed.
Status PackPage(const PackPageArgs& args, PageGroupHeader& header, std::byte* group);

}  // namespace cpu

}  // namespace mneme::kernels
