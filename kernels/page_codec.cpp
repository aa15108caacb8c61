#include "kernels/page_codec.h"

#include <cmath>
#include <cstring>

namespace mneme::kernels {
PageGroupHeader MakePageGroupHeader(const LinearShape& shape, Dtype dtype, int layer, int key_head,
                                    uint64_t first_position) {
  PageGroupHeader header;
  header.dtype = dtype;
  header.heads = static_cast<uint8_t>(shape.heads_per_group());
  header.transition = shape.transition;
  header.layer = static_cast<uint16_t>(layer);
  header.key_head = static_cast<uint16_t>(key_head);
  header.key_dim = static_cast<uint16_t>(shape.key_dim);
  header.value_dim = static_cast<uint16_t>(shape.value_dim);
  header.tokens = static_cast<uint32_t>(shape.chunk_tokens);
  header.first_position = first_position;
  return header;
}

Result<PageGroupHeader> ReadPageGroupHeader(const std::byte* group, const LinearShape& shape) {
  if (reinterpret_cast<uintptr_t>(group) % alignof(PageGroupHeader) != 0)
    return Fail(ErrorCode::kInvalidArgument, "page group: not aligned to {} bytes",
                alignof(PageGroupHeader));
  PageGroupHeader header;
  std::memcpy(&header, group, sizeof(header));
  if (header.magic != kPageGroupMagic || header.version != kPageGroupVersion)
    return Fail(ErrorCode::kCorruption, "page group: magic {:#x} version {}", header.magic,
                header.version);
  if (header.dtype != Dtype::kF16 && header.dtype != Dtype::kF32)
    return Fail(ErrorCode::kCorruption, "page group: type {}", static_cast<int>(header.dtype));
  if (header.heads != shape.heads_per_group() || header.key_dim != shape.key_dim ||
      header.value_dim != shape.value_dim)
    return Fail(ErrorCode::kCorruption,
                "page group: {} heads of {} x {}, the layer has {} of {} x {}", header.heads,
                header.key_dim, header.value_dim, shape.heads_per_group(), shape.key_dim,
                shape.value_dim);
  if (header.transition != shape.transition)
    return Fail(ErrorCode::kCorruption, "page group: transition {}, the layer's is {}",
                static_cast<int>(header.transition), static_cast<int>(shape.transition));
  return header;
}

PageView PageOf(const std::byte* group, const PageGroupHeader& header, int head) {
  PageView page;
  page.dtype = header.dtype;
  page.transition = header.transition;
  page.b = group + PageOffset(header, head);
  page.b_scale = std::ldexp(1.0f, header.b_exponent[head]);
  if (header.a_stored[head] != 0) {
    page.a = page.b + size_t{header.key_dim} * header.value_dim * BytesOf(header.dtype);
    page.a_scale = std::ldexp(1.0f, header.a_exponent[head]);
  }
  return page;
}

}  // namespace mneme::kernels
