// SlotFile keeps one small record that changes in place: two slots of 4 KiB, each with a checksum,
// written in turn. A torn write spoils one slot and leaves the record before it whole.
//
//   file := slot slot
//   slot := "MNEMESLT" kind:u32 payload_bytes:u32 sequence:u64 xxh3_128:u64[2] payload zeros
//
// The checksum covers the whole slot with itself zero. The file never grows after it was made, so a
// full disk cannot stop it.
//
// Threads:  one at a time
// Errors:   kCorruption   neither slot is whole, or the file is of another kind
//           kUnavailable  the file system refused
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "memory/file_descriptor.h"

namespace mneme::memory {

inline constexpr size_t kSlotBytes = 4096;
inline constexpr size_t kSlotPayloadBytesMax = kSlotBytes - 40;

class SlotFile {
 public:
  // Opens `name` in `folder`, or makes it, flushed with its name. `kind` tells one use from
  // another.
  static Result<SlotFile> Open(const FileDescriptor& folder, const std::string& name,
                               uint32_t kind);

  // For messages.
  const std::string& path() const { return path_; }

  // The newest whole record; none in a file that was never written.
  const std::optional<std::string>& payload() const { return payload_; }

  // Slots that hold something, but nothing whole: 0, or 1 where the record may be the one before.
  int damaged_slots() const { return damaged_slots_; }

  // Replaces the record, flushed to the device before it returns. After an error it is unknown
  // which of the two is there.
  Status Write(std::string_view payload);

 private:
  SlotFile(FileDescriptor file, std::string path, uint32_t kind)
      : file_(std::move(file)), path_(std::move(path)), kind_(kind) {}

  Status Load();

  FileDescriptor file_;
  std::string path_;
  uint32_t kind_;
  uint64_t sequence_ = 0;  // of the newest whole slot; slot = sequence % 2
  int damaged_slots_ = 0;
  std::optional<std::string> payload_;
};

}  // namespace mneme::memory
