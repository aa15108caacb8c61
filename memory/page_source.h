// PageSource brings page groups back that are not in host memory.
//
// Threads:  Read from the engine thread; it returns when all reads are done.
// Errors:   of each read alone:
//           kNotFound, kCorruption  the group is lost or damaged; it can be made again from the log
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
  Status status;                     // out
};

class PageSource {
 public:
  virtual ~PageSource() = default;

  virtual void Read(std::span<GroupRead> reads) = 0;
};

}  // namespace mneme::memory
