// ChunkValue: how the parts of a closed chunk lie under its node in the page store.
//
//   page groups   kPageGroup  layer in the model, key head     as sealed
//   index         kIndex      0, 0       representatives centroid centroid_scale radius, all layers
//   KV pages      kKeyValue   layer in the model, 0            one attention layer
//   boundary      kBoundary   0, 0                             Boundary::Encode
//
// Threads:  engine thread only
// Errors:   kCorruption  a value's sizes are not the layout's
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "memory/boundary.h"
#include "memory/closed_chunk.h"
#include "memory/memory_layout.h"
#include "memory/page_value.h"
#include "proto/mneme/v1/store.pb.h"

namespace mneme::memory {

// A value that owns its bytes, header first.
struct ChunkValue {
  PageKey key;
  std::vector<std::byte> bytes;
};

inline NodeKey NodeKeyFrom(const ChunkKey& key) { return {.bytes = key}; }

PageKey GroupKeyOf(const MemoryLayout& layout, const NodeKey& node, int group);
inline PageKey GroupKeyOf(const MemoryLayout& layout, const ClosedChunk& chunk, int group) {
  return GroupKeyOf(layout, NodeKeyFrom(chunk.key()), group);
}
PageKey IndexKeyOf(const NodeKey& node);
PageKey KvKeyOf(const MemoryLayout& layout, const NodeKey& node, int attention_layer);
PageKey BoundaryKeyOf(const NodeKey& node);

ChunkValue IndexValue(const MemoryLayout& layout, ClosedChunk& chunk);
ChunkValue KvValue(const MemoryLayout& layout, ClosedChunk& chunk, int attention_layer);
ChunkValue BoundaryValue(const MemoryLayout& layout, const ClosedChunk& chunk,
                         const Boundary& boundary);

// Bytes that the values above take, headers included.
size_t IndexValueBytes(const MemoryLayout& layout);
size_t KvValueBytes(const MemoryLayout& layout);
size_t BoundaryValueBytes(const MemoryLayout& layout);
// Of all values of one chunk.
uint64_t ChunkValueBytes(const MemoryLayout& layout);

// Checked values, as read from the store, into a chunk that is being made again.
Status TakeIndex(const MemoryLayout& layout, ByteSpan value, ClosedChunk& chunk);
Status TakeKv(const MemoryLayout& layout, ByteSpan value, int attention_layer, ClosedChunk& chunk);
Result<Boundary> TakeBoundary(const MemoryLayout& layout, ByteSpan value);

// The log's record of the chunk; `parent` empty for the first.
v1::ChunkNodeRecord NodeRecordOf(const MemoryLayout& layout, const ClosedChunk& chunk,
                                 const NodeKey& parent);

}  // namespace mneme::memory
