// StoreFolder is the folder DIR of one server: it keeps every other process out, numbers the opens,
// and knows how much room the disk has.
//
//   DIR/epoch DIR/watermark   slot files (memory/slot_file.h)
//   DIR/log/ DIR/pages/       the two RocksDB instances
//   DIR/fingerprints          hashes of the model's files (model/fingerprints.h)
//
// The lock is an exclusive flock on the handle of DIR itself. RocksDB's own LOCK files are not
// enough: with the file deleted a second process opened a live store and left it unopenable. The
// lock is on the folder, not its name, so a symlink or bind mount leads to the same one, and it
// goes with the process.
//
// Owns:     the lock, for as long as it lives. Outlives the stores opened in it.
// Threads:  Open and RaiseEpoch one at a time; the rest any
// Errors:   kConflict     another process has the folder
//           kCorruption   the epoch file is damaged, or is another store's than the log
//           kUnavailable  the file system refused, or a pipe, socket or device lies in it
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "memory/file_descriptor.h"
#include "memory/slot_file.h"

namespace mneme::memory {

// Made at random with the store, and in every receipt.
struct StoreId {
  std::array<std::byte, 16> bytes = {};
  auto operator<=>(const StoreId&) const = default;
};

struct SpaceMarks {
  // Below it no session is made and no page is spilled. 0: 5 % of the disk, at least 1 GiB, but no
  // more than a quarter of a small one.
  uint64_t soft_bytes = 0;
  // Below it no turn is logged. 0: 256 MiB, but no more than a sixteenth of a small disk.
  uint64_t hard_bytes = 0;
};

// What zeros stand for on a disk of so many bytes.
SpaceMarks MarksFor(const SpaceMarks& asked, uint64_t disk_bytes);

// How much room the disk has.
enum class DiskRoom : uint8_t { kEnough, kBelowSoft, kBelowHard };

// A store that begins needs as much of its disk free: two write buffers of the log and two of the
// pages, each of which is on disk twice while it is flushed.
inline constexpr uint64_t kNewStoreBytesMin = 192 * kMiB;

class StoreFolder {
 public:
  // store_full where no store is at `path` yet and its disk has less free than kNewStoreBytesMin or
  // the soft mark, so that no session could be made. Makes nothing.
  static Status CheckRoomForNew(const std::string& path, const SpaceMarks& marks = {});

  // Makes the folder and its parents where missing. Changes no byte in it when another process has
  // it.
  static Result<StoreFolder> Open(const std::string& path, const SpaceMarks& marks = {},
                                  Clock& clock = RealClock());

  // Begins this open: one more than every epoch before it, flushed before it returns. `log_store`
  // and `log_epoch` are what the log says of itself, where there is one. Called by the log's open,
  // once.
  Status RaiseEpoch(const std::optional<StoreId>& log_store, uint64_t log_epoch);

  const std::string& path() const { return path_; }
  std::string log_path() const { return path_ + "/log"; }
  std::string pages_path() const { return path_ + "/pages"; }
  std::string fingerprints_path() const { return path_ + "/fingerprints"; }
  const FileDescriptor& descriptor() const { return folder_; }

  // After RaiseEpoch.
  const StoreId& store_id() const { return store_id_; }
  uint64_t epoch() const { return epoch_; }

  // At most 200 ms old; kEnough where the file system does not say.
  DiskRoom room() const;
  // For whom it refuses: how much is free and how much is wanted.
  std::string RoomText() const;

 private:
  struct SeenRoom {
    std::atomic<int64_t> at_us{-1};  // monotonic; -1: never looked
    std::atomic<DiskRoom> room{DiskRoom::kEnough};
  };

  struct Space {
    uint64_t free_bytes = 0;
    SpaceMarks marks = {};
  };
  // None where the file system does not say.
  std::optional<Space> LookAtDisk() const;

  StoreFolder(std::string path, FileDescriptor folder, SlotFile epochs, const SpaceMarks& marks,
              Clock& clock);

  std::string path_;
  FileDescriptor folder_;
  SlotFile epochs_;
  SpaceMarks marks_;
  Clock* clock_;
  StoreId store_id_;
  uint64_t epoch_ = 0;
  std::unique_ptr<SeenRoom> seen_;
};

}  // namespace mneme::memory
