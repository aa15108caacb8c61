// PageSource brings page groups back that are not in host memory.
//
// Threads:  Read from the engine thread; it returns when all reads are done.
// Errors:   kNotFound, kCorruption  a group is lost or damaged: it can be made again from the log
//           kUnavailable            the store cannot be read just now
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "memory/closed_chunk.h"

namespace mneme::memory {

struct GroupRead {
  const ClosedChunk* chunk = nullptr;
  int group = 0;                     // as ClosedChunk::GroupOf
  std::byte* destination = nullptr;  // [group_bytes]
};

class PageSource {
 public:
  virtual ~PageSource() = default;

  // All or an error that names the first group that failed; destinations are then unspecified.
  virtual Status Read(std::span<const GroupRead> reads) = 0;
};

}  // namespace mneme::memory
