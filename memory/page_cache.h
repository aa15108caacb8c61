// PageCache holds page groups in host memory under one byte cap. Groups that are safe on disk are
// dropped when room is needed, the one unused for longest first; a chunk then sees null in its view
// and the group is read back when a query chooses it.
//
//   bytes_max = groups in use * group_bytes + charged bytes (index entries, KV pages) + free
//
// Owns:     the memory of the groups, reserved in one piece by Make and touched only as used.
// Threads:  engine thread only. Other threads may fill or read a group that was handed to them
// while
//           it is pinned by its step or not yet saved.
// Errors:   kResourceExhausted  every group is in use by this step or not yet on disk
// Bugs:     releasing what is not held aborts (MNEME_CHECK).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

namespace mneme::memory {

class ClosedChunk;

struct PageCacheOptions {
  size_t group_bytes = 0;  // bytes of one page group
  uint64_t bytes_max = 0;  // cap over groups and charged bytes
};

class PageCache {
 public:
  // kInvalidArgument for a cap below one group; kResourceExhausted when the address space is
  // refused.
  static Result<std::unique_ptr<PageCache>> Make(const PageCacheOptions& options);
  ~PageCache();
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // Groups touched or taken from now on are not dropped until the next call.
  void BeginStep() { ++step_; }

  // Room for group `group` of `chunk`, of unspecified contents, entered in its view. It cannot be
  // dropped before MarkSaved when `saved` is false.
  Result<std::byte*> Take(ClosedChunk& chunk, int group, bool saved);

  // The chunk's group is used in this step.
  void Touch(ClosedChunk& chunk, int group);

  // The group is on disk and may be dropped from now on.
  void MarkSaved(ClosedChunk& chunk, int group);

  // The chunk no longer needs the group in memory; it may be on disk or not.
  void Release(ClosedChunk& chunk, int group);

  // Counts bytes that lie elsewhere against the cap, dropping groups as needed.
  Status Charge(uint64_t bytes);
  void Uncharge(uint64_t bytes);

  uint64_t bytes_max() const { return options_.bytes_max; }
  uint64_t group_bytes_used() const { return used_ * slot_bytes_; }
  uint64_t charged_bytes() const { return charged_bytes_; }
  uint64_t dropped_groups() const { return dropped_groups_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Slot {
    ClosedChunk* chunk = nullptr;  // null: free
    int group = 0;
    bool saved = false;
    uint64_t step = 0;  // last step that used it
    uint32_t older = kNone;
    uint32_t newer = kNone;
  };

  PageCache(const PageCacheOptions& options, std::byte* storage, size_t storage_bytes);

  std::byte* address(uint32_t slot) const { return storage_ + size_t{slot} * slot_bytes_; }
  uint32_t SlotOf(const ClosedChunk& chunk, int group) const;
  uint64_t SlotsAllowed() const { return (options_.bytes_max - charged_bytes_) / slot_bytes_; }
  bool DropOldest();
  void Free(uint32_t slot);
  void PushNewest(uint32_t slot);
  void Unlink(uint32_t slot);

  const PageCacheOptions options_;
  const size_t slot_bytes_;
  std::byte* const storage_;
  const size_t storage_bytes_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;  // a stack: the slot freed last is the warmest
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  uint64_t step_ = 1;
  uint64_t used_ = 0;
  uint64_t charged_bytes_ = 0;
  uint64_t dropped_groups_ = 0;
};

}  // namespace mneme::memory
