#include "memory/chunk_value.h"

#include <cstring>
#include <string>

namespace mneme::memory {
namespace {

ChunkValue Begin(const PageKey& key, const MemoryLayout& layout, uint64_t first_position,
                 size_t payload_bytes, kernels::Dtype dtype) {
  ChunkValue value = {.key = key, .bytes = std::vector<std::byte>(sizeof(ValueHeader))};
  ValueHeader header;
  header.kind = key.kind;
  header.dtype = dtype;
  header.layer = key.layer;
  header.key_head = key.key_head;
  header.tokens = static_cast<uint32_t>(layout.chunk_tokens());
  header.first_position = first_position;
  header.payload_bytes = payload_bytes;
  std::memcpy(value.bytes.data(), &header, sizeof(header));
  value.bytes.reserve(sizeof(header) + payload_bytes);
  return value;
}

template <typename T>
void Append(std::vector<std::byte>& bytes, const T* from, size_t count) {
  const auto* first = reinterpret_cast<const std::byte*>(from);
  bytes.insert(bytes.end(), first, first + count * sizeof(T));
}

template <typename T>
void Take(const std::byte*& from, T* to, size_t count) {
  if (count != 0) std::memcpy(to, from, count * sizeof(T));
  from += count * sizeof(T);
}

Status ExpectBytes(std::string_view what, size_t expected, size_t found) {
  if (expected == found) return {};
  return Fail(ErrorCode::kCorruption, "{}: {} bytes expected, {} found", what, expected, found);
}

}  // namespace

PageKey GroupKeyOf(const MemoryLayout& layout, const NodeKey& node, int group) {
  const auto paged = static_cast<size_t>(group / layout.linear.key_heads);
  const auto linear = static_cast<size_t>(layout.paged_layers[paged]);
  return {.node = node,
          .kind = ValueKind::kPageGroup,
          .layer = static_cast<uint16_t>(layout.linear_layers[linear]),
          .key_head = static_cast<uint16_t>(group % layout.linear.key_heads)};
}

PageKey IndexKeyOf(const NodeKey& node) {
  return {.node = node, .kind = ValueKind::kIndex, .layer = 0, .key_head = 0};
}

PageKey KvKeyOf(const MemoryLayout& layout, const NodeKey& node, int attention_layer) {
  const int layer = layout.attention_layers[static_cast<size_t>(attention_layer)];
  return {.node = node,
          .kind = ValueKind::kKeyValue,
          .layer = static_cast<uint16_t>(layer),
          .key_head = 0};
}

PageKey BoundaryKeyOf(const NodeKey& node) {
  return {.node = node, .kind = ValueKind::kBoundary, .layer = 0, .key_head = 0};
}

size_t IndexValueBytes(const MemoryLayout& layout) {
  return sizeof(ValueHeader) + ClosedChunk::IndexBytes(layout);
}

size_t KvValueBytes(const MemoryLayout& layout) {
  return sizeof(ValueHeader) + layout.kv_page_bytes();
}

size_t BoundaryValueBytes(const MemoryLayout& layout) {
  return sizeof(ValueHeader) + Boundary::Bytes(layout);
}

uint64_t ChunkValueBytes(const MemoryLayout& layout) {
  uint64_t bytes = static_cast<uint64_t>(layout.groups_per_chunk()) * layout.group_bytes();
  if (!layout.routed_layers.empty()) bytes += IndexValueBytes(layout);
  if (!layout.attention_layers.empty())
    bytes += layout.attention_layers.size() * KvValueBytes(layout);
  return bytes + BoundaryValueBytes(layout);
}

ChunkValue IndexValue(const MemoryLayout& layout, ClosedChunk& chunk) {
  ChunkValue value = Begin(IndexKeyOf(NodeKeyFrom(chunk.key())), layout, chunk.first_position(),
                           ClosedChunk::IndexBytes(layout), kernels::Dtype::kF16);
  Append(value.bytes, chunk.representatives(), layout.representatives_count());
  Append(value.bytes, chunk.centroid(), layout.centroid_count());
  Append(value.bytes, chunk.centroid_scale(), layout.radius_count());
  Append(value.bytes, chunk.radius(), layout.radius_count());
  return value;
}

ChunkValue KvValue(const MemoryLayout& layout, ClosedChunk& chunk, int attention_layer) {
  ChunkValue value = Begin(KvKeyOf(layout, NodeKeyFrom(chunk.key()), attention_layer), layout,
                           chunk.first_position(), layout.kv_page_bytes(), layout.page_dtype);
  Append(value.bytes, chunk.kv_page(attention_layer), layout.kv_page_bytes());
  return value;
}

ChunkValue BoundaryValue(const MemoryLayout& layout, const ClosedChunk& chunk,
                         const Boundary& boundary) {
  const std::vector<std::byte> encoded = boundary.Encode();
  ChunkValue value = Begin(BoundaryKeyOf(NodeKeyFrom(chunk.key())), layout, chunk.first_position(),
                           encoded.size(), kernels::Dtype::kF32);
  Append(value.bytes, encoded.data(), encoded.size());
  return value;
}

Status TakeIndex(const MemoryLayout& layout, ByteSpan value, ClosedChunk& chunk) {
  MNEME_TRY(ExpectBytes("index of a chunk", IndexValueBytes(layout), value.size()));
  const std::byte* from = value.data() + sizeof(ValueHeader);
  Take(from, chunk.representatives(), layout.representatives_count());
  Take(from, chunk.centroid(), layout.centroid_count());
  Take(from, chunk.centroid_scale(), layout.radius_count());
  Take(from, chunk.radius(), layout.radius_count());
  return {};
}

Status TakeKv(const MemoryLayout& layout, ByteSpan value, int attention_layer, ClosedChunk& chunk) {
  MNEME_TRY(ExpectBytes("KV page of a chunk", KvValueBytes(layout), value.size()));
  const std::byte* from = value.data() + sizeof(ValueHeader);
  Take(from, chunk.kv_page(attention_layer), layout.kv_page_bytes());
  return {};
}

Result<Boundary> TakeBoundary(const MemoryLayout& layout, ByteSpan value) {
  MNEME_TRY(ExpectBytes("boundary record", BoundaryValueBytes(layout), value.size()));
  return Boundary::Decode(layout, value.subspan(sizeof(ValueHeader)));
}

v1::ChunkNodeRecord NodeRecordOf(const MemoryLayout& layout, const ClosedChunk& chunk,
                                 const NodeKey& parent) {
  v1::ChunkNodeRecord record;
  record.set_format(1);
  record.set_key(std::string(TextOf(chunk.key())));
  if (!parent.empty()) record.set_parent(std::string(TextOf(parent.bytes)));
  record.set_first_position(chunk.first_position());
  record.set_tokens(static_cast<uint32_t>(layout.chunk_tokens()));
  for (const int linear : layout.paged_layers) {
    record.add_group_layers(
        static_cast<uint32_t>(layout.linear_layers[static_cast<size_t>(linear)]));
  }
  record.set_groups_per_layer(static_cast<uint32_t>(layout.linear.key_heads));
  for (const int layer : layout.attention_layers)
    record.add_kv_layers(static_cast<uint32_t>(layer));
  record.set_has_boundary(true);
  record.set_stored_bytes(ChunkValueBytes(layout));
  return record;
}

}  // namespace mneme::memory
