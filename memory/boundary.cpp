#include "memory/boundary.h"

#include <bit>
#include <cstring>

namespace mneme::memory {
namespace {

static_assert(std::endian::native == std::endian::little, "stored formats are little endian");

size_t ConvFloats(const MemoryLayout& layout) {
  return layout.linear_layers.size() * layout.conv_tail_floats();
}

size_t FoldedFloats(const MemoryLayout& layout) {
  return layout.folds() ? layout.linear_layers.size() * layout.folded_floats() : 0;
}

}  // namespace

size_t Boundary::Bytes(const MemoryLayout& layout) {
  return (ConvFloats(layout) + static_cast<size_t>(layout.hidden) + FoldedFloats(layout)) *
         sizeof(float);
}

std::vector<std::byte> Boundary::Encode() const {
  std::vector<std::byte> bytes;
  for (const std::vector<float>* part : {&conv_tails, &last_hidden, &folded}) {
    const auto* first = reinterpret_cast<const std::byte*>(part->data());
    bytes.insert(bytes.end(), first, first + part->size() * sizeof(float));
  }
  return bytes;
}

Result<Boundary> Boundary::Decode(const MemoryLayout& layout, ByteSpan bytes) {
  if (bytes.size() != Bytes(layout)) {
    return Fail(ErrorCode::kCorruption, "boundary record: {} bytes expected, {} found",
                Bytes(layout), bytes.size());
  }
  Boundary boundary;
  boundary.conv_tails.resize(ConvFloats(layout));
  boundary.last_hidden.resize(static_cast<size_t>(layout.hidden));
  boundary.folded.resize(FoldedFloats(layout));
  const std::byte* from = bytes.data();
  for (std::vector<float>* part : {&boundary.conv_tails, &boundary.last_hidden, &boundary.folded}) {
    if (part->empty()) continue;
    std::memcpy(part->data(), from, part->size() * sizeof(float));
    from += part->size() * sizeof(float);
  }
  return boundary;
}

}  // namespace mneme::memory
