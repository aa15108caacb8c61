// A place for page groups outside the cache: a map in this process. Saved chunks may be dropped by
// the cache and come back from here, unless a test said that they are lost.
#pragma once

#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "memory/closed_chunk.h"
#include "memory/page_source.h"

namespace mneme::support {

class MapPageSource : public memory::PageSource {
 public:
  explicit MapPageSource(size_t group_bytes) : group_bytes_(group_bytes) {}

  // Copies all groups of a chunk that was just sealed; the cache may drop them from now on.
  void Save(memory::ClosedChunk& chunk) {
    for (int group = 0; group < chunk.groups(); ++group) {
      const std::byte* bytes = chunk.group(group);
      if (bytes != nullptr)
        groups_[{chunk.key(), group}] = std::vector<std::byte>(bytes, bytes + group_bytes_);
    }
    chunk.MarkSaved();
  }

  const std::vector<std::byte>& Saved(const memory::ClosedChunk& chunk, int group) const {
    return groups_.at({chunk.key(), group});
  }
  // Reads of the group fail from now on.
  void Lose(const memory::ClosedChunk& chunk, int group) { lost_.insert({chunk.key(), group}); }
  // So many reads from now on fail as those of a disk that is away.
  void FailReads(int count) { failures_ = count; }
  int reads() const { return reads_; }

  void Read(std::span<memory::GroupRead> reads) override {
    for (memory::GroupRead& read : reads) {
      ++reads_;
      const Name name = {read.chunk->key(), read.group};
      const auto found = groups_.find(name);
      if (failures_ > 0) {
        --failures_;
        read.status = Fail(ErrorCode::kUnavailable, "reads fail just now");
      } else if (found == groups_.end() || lost_.contains(name)) {
        read.status = Fail(ErrorCode::kNotFound, "group {} is lost", read.group);
      } else {
        std::memcpy(read.destination, found->second.data(), group_bytes_);
        read.status = {};
      }
    }
  }

 private:
  using Name = std::pair<memory::ChunkKey, int>;

  const size_t group_bytes_;
  std::map<Name, std::vector<std::byte>> groups_;
  std::set<Name> lost_;
  int failures_ = 0;
  int reads_ = 0;
};

}  // namespace mneme::support
