#include "memory/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "memory/hash.h"

namespace mneme::memory {
namespace {

struct SlotHeader {
  char magic[8] = {'M', 'N', 'E', 'M', 'E', 'S', 'L', 'T'};
  uint32_t kind = 0;
  uint32_t payload_bytes = 0;
  uint64_t sequence = 0;
  Checksum128 checksum;
};
static_assert(sizeof(SlotHeader) == 40);
static_assert(kSlotBytes - sizeof(SlotHeader) == kSlotPayloadBytesMax);

using Slot = std::array<std::byte, kSlotBytes>;

bool AllZero(const Slot& slot) {
  for (const std::byte b : slot)
    if (b != std::byte{0}) return false;
  return true;
}

// Whether the slot is whole, whatever its kind; then `header` is its header.
bool Whole(const Slot& slot, SlotHeader* header) {
  std::memcpy(header, slot.data(), sizeof(*header));
  return std::memcmp(header->magic, SlotHeader().magic, sizeof(header->magic)) == 0 &&
         header->payload_bytes <= kSlotPayloadBytesMax &&
         Xxh3Without(slot, offsetof(SlotHeader, checksum)) == header->checksum;
}

Status WriteAt(int file, const std::string& name, ByteSpan bytes, off_t offset) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pwrite(file, bytes.data() + done, bytes.size() - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Fail(ErrorCode::kUnavailable, "write {}: {}", name,
                  std::strerror(n < 0 ? errno : EIO));
    done += static_cast<size_t>(n);
  }
  if (::fdatasync(file) != 0)
    return Fail(ErrorCode::kUnavailable, "flush {}: {}", name, std::strerror(errno));
  return {};
}

}  // namespace

Result<SlotFile> SlotFile::Open(const FileDescriptor& folder, const std::string& name,
                                uint32_t kind) {
  FileDescriptor file(::openat(folder.number(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.open()) return Fail(ErrorCode::kUnavailable, "open {}: {}", name, std::strerror(errno));
  SlotFile slots(std::move(file), name, kind);
  struct stat status = {};
  if (::fstat(slots.file_.number(), &status) != 0)
    return Fail(ErrorCode::kUnavailable, "stat {}: {}", name, std::strerror(errno));
  if (status.st_size == 0) {
    const std::array<std::byte, 2 * kSlotBytes> zeros = {};
    MNEME_TRY(WriteAt(slots.file_.number(), name, zeros, 0));
    if (::fsync(slots.file_.number()) != 0 || ::fsync(folder.number()) != 0)
      return Fail(ErrorCode::kUnavailable, "flush {}: {}", name, std::strerror(errno));
    return slots;
  }
  MNEME_TRY(slots.Load());
  return slots;
}

Status SlotFile::Load() {
  for (off_t index = 0; index < 2; ++index) {
    Slot slot = {};
    const ssize_t n =
        ::pread(file_.number(), slot.data(), slot.size(), index * static_cast<off_t>(kSlotBytes));
    if (n < 0) return Fail(ErrorCode::kUnavailable, "read {}: {}", name_, std::strerror(errno));
    if (static_cast<size_t>(n) != slot.size()) {
      damaged_slots_ += 1;
      continue;
    }
    if (AllZero(slot)) continue;
    SlotHeader header;
    if (!Whole(slot, &header)) {
      damaged_slots_ += 1;
      continue;
    }
    if (header.kind != kind_)
      return Fail(ErrorCode::kCorruption, "{} is of kind {}, expected {}", name_, header.kind,
                  kind_);
    if (payload_ && header.sequence < sequence_) continue;
    sequence_ = header.sequence;
    payload_.emplace(reinterpret_cast<const char*>(slot.data()) + sizeof(header),
                     header.payload_bytes);
  }
  if (!payload_ && damaged_slots_ == 2)
    return Fail(ErrorCode::kCorruption, "{}: neither of its two slots is whole", name_);
  return {};
}

Status SlotFile::Write(std::string_view payload) {
  MNEME_CHECK(payload.size() <= kSlotPayloadBytesMax, "{} of {} bytes", name_, payload.size());
  Slot slot = {};
  SlotHeader header;
  header.kind = kind_;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.sequence = sequence_ + 1;
  std::memcpy(slot.data(), &header, sizeof(header));
  std::memcpy(slot.data() + sizeof(header), payload.data(), payload.size());
  header.checksum = Xxh3Without(slot, offsetof(SlotHeader, checksum));
  std::memcpy(slot.data(), &header, sizeof(header));
  const auto offset = static_cast<off_t>(header.sequence % 2 * kSlotBytes);
  MNEME_TRY(WriteAt(file_.number(), name_, slot, offset));
  sequence_ = header.sequence;
  payload_.emplace(payload);
  return {};
}

}  // namespace mneme::memory
