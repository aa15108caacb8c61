#include "memory/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/file_error.h"
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

// For messages: the folder is known by its descriptor alone.
std::string PathIn(const FileDescriptor& folder, const std::string& name) {
  std::error_code failure;
  const auto link = fmt::format("/proc/self/fd/{}", folder.number());
  const std::filesystem::path path = std::filesystem::read_symlink(link, failure);
  return failure ? name : (path / name).string();
}

tl::unexpected<Error> Refused(const std::string& path, std::string_view done, int number) {
  return Fail(ErrorCode::kUnavailable, "{}", FileErrorText(path, done, number));
}

Status WriteAt(int file, const std::string& name, ByteSpan bytes, off_t offset) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pwrite(file, bytes.data() + done, bytes.size() - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Refused(name, "written", n < 0 ? errno : EIO);
    done += static_cast<size_t>(n);
  }
  if (::fdatasync(file) != 0) return Refused(name, "flushed", errno);
  return {};
}

}  // namespace

Result<SlotFile> SlotFile::Open(const FileDescriptor& folder, const std::string& name,
                                uint32_t kind) {
  FileDescriptor file(::openat(folder.number(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const int reason = errno;
  const std::string path = PathIn(folder, name);
  if (!file.open()) return Refused(path, "opened", reason);
  SlotFile slots(std::move(file), path, kind);
  struct stat status = {};
  if (::fstat(slots.file_.number(), &status) != 0) return Refused(path, "looked at", errno);
  if (status.st_size == 0) {
    const std::array<std::byte, 2 * kSlotBytes> zeros = {};
    MNEME_TRY(WriteAt(slots.file_.number(), path, zeros, 0));
    if (::fsync(slots.file_.number()) != 0 || ::fsync(folder.number()) != 0)
      return Refused(path, "flushed", errno);
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
    if (n < 0) return Refused(path_, "read", errno);
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
      return Fail(ErrorCode::kCorruption, "{} is of kind {}, expected {}", path_, header.kind,
                  kind_);
    if (payload_ && header.sequence < sequence_) continue;
    sequence_ = header.sequence;
    payload_.emplace(reinterpret_cast<const char*>(slot.data()) + sizeof(header),
                     header.payload_bytes);
  }
  if (!payload_ && damaged_slots_ == 2)
    return Fail(ErrorCode::kCorruption, "{}: neither of its two slots is whole", path_);
  return {};
}

Status SlotFile::Write(std::string_view payload) {
  MNEME_CHECK(payload.size() <= kSlotPayloadBytesMax, "{} of {} bytes", path_, payload.size());
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
  MNEME_TRY(WriteAt(file_.number(), path_, slot, offset));
  sequence_ = header.sequence;
  payload_.emplace(payload);
  return {};
}

}  // namespace mneme::memory
