#include "memory/page_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "memory/closed_chunk.h"

namespace mneme::memory {
namespace {

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Result<std::unique_ptr<PageCache>> PageCache::Make(const PageCacheOptions& options) {
  // Slots are whole pages of the machine, so that a freed one can be given back.
  const size_t slot_bytes = RoundUp(options.group_bytes, static_cast<size_t>(getpagesize()));
  if (options.group_bytes == 0 || options.bytes_max < slot_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                "page cache: a cap of {} bytes holds no page group of {} bytes", options.bytes_max,
                slot_bytes);
  }
  const size_t storage_bytes = options.bytes_max / slot_bytes * slot_bytes;
  void* storage = mmap(nullptr, storage_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (storage == MAP_FAILED) {
    return Fail(ErrorCode::kResourceExhausted,
                "page cache: the system refuses {} bytes of address space; lower the cap "
                "(memory.host_bytes_max, --host-mib) or raise the limit of the process (ulimit -v)",
                storage_bytes);
  }
  return std::unique_ptr<PageCache>(
      new PageCache(options, static_cast<std::byte*>(storage), storage_bytes));
}

PageCache::PageCache(const PageCacheOptions& options, std::byte* storage, size_t storage_bytes)
    : options_(options),
      slot_bytes_(RoundUp(options.group_bytes, static_cast<size_t>(getpagesize()))),
      storage_(storage),
      storage_bytes_(storage_bytes) {}

PageCache::~PageCache() {
  MNEME_CHECK(used_ == 0, "{} page groups are still held", used_);
  munmap(storage_, storage_bytes_);
}

Result<std::byte*> PageCache::Take(ClosedChunk& chunk, int group, bool saved) {
  MNEME_CHECK(chunk.group(group) == nullptr, "group {} is already held", group);
  while (used_ + 1 > SlotsAllowed()) {
    if (!DropOldest()) {
      return Fail(ErrorCode::kResourceExhausted,
                  "host memory: all {} page groups under the cap of {} bytes are in use; "
                  "raise memory.host_bytes_max",
                  SlotsAllowed(), options_.bytes_max);
    }
  }
  uint32_t slot;
  if (free_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  slots_[slot] = {.chunk = &chunk, .group = group, .saved = saved, .step = step_};
  PushNewest(slot);
  ++used_;
  chunk.SetGroup(group, address(slot));
  return address(slot);
}

void PageCache::Touch(ClosedChunk& chunk, int group) {
  const uint32_t slot = SlotOf(chunk, group);
  slots_[slot].step = step_;
  Unlink(slot);
  PushNewest(slot);
}

void PageCache::MarkSaved(ClosedChunk& chunk, int group) {
  if (chunk.group(group) != nullptr) slots_[SlotOf(chunk, group)].saved = true;
}

void PageCache::Release(ClosedChunk& chunk, int group) {
  if (chunk.group(group) != nullptr) Free(SlotOf(chunk, group));
}

Status PageCache::Charge(uint64_t bytes) {
  if (bytes > options_.bytes_max - charged_bytes_) {
    return Fail(ErrorCode::kResourceExhausted,
                "host memory: {} bytes more do not fit under the cap of {} bytes", bytes,
                options_.bytes_max);
  }
  charged_bytes_ += bytes;
  while (used_ > SlotsAllowed()) {
    if (DropOldest()) {
      madvise(address(free_.back()), slot_bytes_, MADV_DONTNEED);
      continue;
    }
    charged_bytes_ -= bytes;
    return Fail(ErrorCode::kResourceExhausted,
                "host memory: {} bytes more would need page groups that are in use", bytes);
  }
  return {};
}

void PageCache::Uncharge(uint64_t bytes) {
  MNEME_CHECK(bytes <= charged_bytes_, "{} bytes of {} charged", bytes, charged_bytes_);
  charged_bytes_ -= bytes;
}

uint32_t PageCache::SlotOf(const ClosedChunk& chunk, int group) const {
  const std::byte* held = chunk.group(group);
  MNEME_CHECK(held >= storage_ && held < storage_ + storage_bytes_, "group {} is not held", group);
  return static_cast<uint32_t>(static_cast<size_t>(held - storage_) / slot_bytes_);
}

bool PageCache::DropOldest() {
  for (uint32_t slot = oldest_; slot != kNone; slot = slots_[slot].newer) {
    if (!slots_[slot].saved || slots_[slot].step == step_) continue;
    Free(slot);
    ++dropped_groups_;
    return true;
  }
  return false;
}

void PageCache::Free(uint32_t slot) {
  Slot& freed = slots_[slot];
  freed.chunk->SetGroup(freed.group, nullptr);
  Unlink(slot);
  freed = {};
  free_.push_back(slot);
  --used_;
}

void PageCache::PushNewest(uint32_t slot) {
  slots_[slot].older = newest_;
  slots_[slot].newer = kNone;
  if (newest_ != kNone) slots_[newest_].newer = slot;
  newest_ = slot;
  if (oldest_ == kNone) oldest_ = slot;
}

void PageCache::Unlink(uint32_t slot) {
  const Slot& gone = slots_[slot];
  if (gone.older != kNone) slots_[gone.older].newer = gone.newer;
  if (gone.newer != kNone) slots_[gone.newer].older = gone.older;
  if (oldest_ == slot) oldest_ = gone.newer;
  if (newest_ == slot) newest_ = gone.older;
}

}  // namespace mneme::memory
