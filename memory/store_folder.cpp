#include "memory/store_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/file_error.h"
#include "base/log.h"
#include "proto/mneme/v1/store.pb.h"

namespace mneme::memory {
namespace {

constexpr uint32_t kEpochKind = 1;
constexpr uint32_t kEpochFormat = 1;
constexpr uint64_t kSoftBytes = kGiB;
constexpr uint64_t kHardBytes = 256 * kMiB;
constexpr int64_t kRoomAgeUs = 200'000;
constexpr auto kSlotBytesSigned = static_cast<off_t>(kSlotBytes);

StoreId RandomStoreId() {
  StoreId id;
  MNEME_CHECK(
      ::getrandom(id.bytes.data(), id.bytes.size(), 0) == static_cast<ssize_t>(id.bytes.size()),
      "no random bytes");
  return id;
}

Result<std::optional<v1::EpochSlot>> ReadSlot(const SlotFile& epochs) {
  if (!epochs.payload()) return std::optional<v1::EpochSlot>();
  v1::EpochSlot slot;
  if (!slot.ParseFromString(*epochs.payload()) || slot.store_id().size() != StoreId().bytes.size())
    return Fail(ErrorCode::kCorruption,
                "{}: its record cannot be read; restore the whole store folder from a copy",
                epochs.path());
  if (slot.format() > kEpochFormat)
    return Fail(ErrorCode::kCorruption,
                "{}: format {}, this server reads up to {}; serve it with the one that wrote it",
                epochs.path(), slot.format(), kEpochFormat);
  return std::optional<v1::EpochSlot>(std::move(slot));
}

tl::unexpected<Error> Refused(const std::string& path, std::string_view done, int number) {
  return Fail(ErrorCode::kUnavailable, "store folder {}", FileErrorText(path, done, number));
}

// Opening a pipe waits for its other end, which may never come, so nobody is to open one.
Status CheckFiles(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::file_status status = entry.status(error);
    if (!fs::is_fifo(status) && !fs::is_socket(status) && !fs::is_character_file(status) &&
        !fs::is_block_file(status))
      continue;
    return Fail(ErrorCode::kUnavailable,
                "store folder {}: it is a pipe, socket or device, where only files of the store "
                "should be; move it away, and where a file of that name is missing, restore the "
                "whole store folder from a copy",
                entry.path().string());
  }
  return {};
}

// Whom the folder belongs to, as far as its epoch file tells.
std::string HolderOf(const FileDescriptor& folder) {
  struct stat status = {};  // a file that is being made just now is left alone
  if (::fstatat(folder.number(), "epoch", &status, 0) != 0 || status.st_size < 2 * kSlotBytesSigned)
    return "another process";
  auto epochs = SlotFile::Open(folder, "epoch", kEpochKind);
  if (!epochs) return "another process";
  const auto slot = ReadSlot(*epochs);
  if (!slot || !*slot) return "another process";
  return fmt::format("process {} (epoch {})", (*slot)->process_id(), (*slot)->epoch());
}

}  // namespace

SpaceMarks MarksFor(const SpaceMarks& asked, uint64_t disk_bytes) {
  const uint64_t soft = std::min(std::max(disk_bytes / 20, kSoftBytes), disk_bytes / 4);
  const uint64_t hard = std::min(kHardBytes, disk_bytes / 16);
  return {.soft_bytes = asked.soft_bytes != 0 ? asked.soft_bytes : soft,
          .hard_bytes = asked.hard_bytes != 0 ? asked.hard_bytes : hard};
}

StoreFolder::StoreFolder(std::string path, FileDescriptor folder, SlotFile epochs,
                         const SpaceMarks& marks, Clock& clock)
    : path_(std::move(path)),
      folder_(std::move(folder)),
      epochs_(std::move(epochs)),
      marks_(marks),
      clock_(&clock),
      seen_(std::make_unique<SeenRoom>()) {}

Status StoreFolder::CheckRoomForNew(const std::string& path, const SpaceMarks& marks) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(path + "/epoch", ignored)) return {};
  fs::path there = fs::absolute(path, ignored);
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  struct statvfs disk = {};
  if (::statvfs(there.c_str(), &disk) != 0 || disk.f_blocks == 0) return {};
  const uint64_t disk_bytes = uint64_t{disk.f_blocks} * disk.f_frsize;
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t needed_bytes = std::max(kNewStoreBytesMin, MarksFor(marks, disk_bytes).soft_bytes);
  if (free_bytes >= needed_bytes) return {};
  return Fail(Reason::kStoreFull,
              "store folder {}: {} MiB of the {} MiB of its disk are free, and a store that begins "
              "needs {} MiB; free space, or name a folder on another disk",
              path, free_bytes / kMiB, disk_bytes / kMiB, needed_bytes / kMiB);
}

Result<StoreFolder> StoreFolder::Open(const std::string& path, const SpaceMarks& marks,
                                      Clock& clock) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Refused(path, "made", error.value());
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) return Refused(path, "opened", errno);
  if (::flock(folder.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Refused(path, "locked", errno);
    return Fail(ErrorCode::kConflict,
                "store folder {} is in use by {}; stop it or choose another folder", path,
                HolderOf(folder));
  }
  for (const char* part : {"", "/log", "/pages"}) MNEME_TRY(CheckFiles(path + part));
  auto epochs = SlotFile::Open(folder, "epoch", kEpochKind);
  MNEME_TRY(epochs);
  StoreFolder opened(path, std::move(folder), std::move(*epochs), marks, clock);
  for (const std::string& part : {opened.log_path(), opened.pages_path()}) {
    std::filesystem::create_directory(part, error);
    if (error) return Refused(part, "made", error.value());
  }
  if (::fsync(opened.folder_.number()) != 0) return Refused(path, "flushed", errno);
  return opened;
}

Status StoreFolder::RaiseEpoch(const std::optional<StoreId>& log_store, uint64_t log_epoch) {
  auto found = ReadSlot(epochs_);
  MNEME_TRY(found);
  uint64_t before = log_epoch;
  std::optional<StoreId> mine;
  if (*found) {
    before = std::max(before, (*found)->epoch());
    mine.emplace();
    std::memcpy(mine->bytes.data(), (*found)->store_id().data(), mine->bytes.size());
  }
  if (mine && log_store && *mine != *log_store)
    return Fail(
        ErrorCode::kCorruption,
        "{}: the epoch file and the log belong to two different stores; restore both from one "
        "copy",
        path_);
  if (log_store && (!*found || epochs_.damaged_slots() > 0)) {
    MNEME_LOG(kWarning, "epoch_renewed", "found={} damaged_slots={} epoch_of_log={}",
              found->has_value(), epochs_.damaged_slots(), log_epoch);
  }
  store_id_ = log_store ? *log_store : mine ? *mine : RandomStoreId();
  // A damaged slot may have held the newest epoch, one above the other's.
  epoch_ = before + 1 + static_cast<uint64_t>(epochs_.damaged_slots());
  v1::EpochSlot slot;
  slot.set_format(kEpochFormat);
  slot.set_store_id(store_id_.bytes.data(), store_id_.bytes.size());
  slot.set_epoch(epoch_);
  slot.set_process_id(static_cast<uint64_t>(::getpid()));
  return epochs_.Write(slot.SerializeAsString());
}

std::optional<StoreFolder::Space> StoreFolder::LookAtDisk() const {
  struct statvfs disk = {};
  if (::fstatvfs(folder_.number(), &disk) != 0 || disk.f_blocks == 0) return std::nullopt;
  return Space{.free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize,
               .marks = MarksFor(marks_, uint64_t{disk.f_blocks} * disk.f_frsize)};
}

std::string StoreFolder::RoomText() const {
  const auto space = LookAtDisk();
  if (!space) return "the disk is nearly full";
  return fmt::format(
      "the disk is nearly full: {} MiB are free; pages and sessions need {} MiB, "
      "turns {} MiB",
      space->free_bytes / kMiB, space->marks.soft_bytes / kMiB, space->marks.hard_bytes / kMiB);
}

DiskRoom StoreFolder::room() const {
  const int64_t now_us = clock_->MonotonicUs();
  const int64_t at_us =
      seen_->at_us.load(std::memory_order_relaxed);  // an old answer is a fine one
  // A refusal is of now.
  if (at_us >= 0 && now_us - at_us < kRoomAgeUs &&
      seen_->room.load(std::memory_order_relaxed) == DiskRoom::kEnough)
    return DiskRoom::kEnough;
  DiskRoom room = DiskRoom::kEnough;
  if (const auto space = LookAtDisk()) {
    if (space->free_bytes < space->marks.hard_bytes) {
      room = DiskRoom::kBelowHard;
    } else if (space->free_bytes < space->marks.soft_bytes) {
      room = DiskRoom::kBelowSoft;
    }
  }
  seen_->room.store(room, std::memory_order_relaxed);
  seen_->at_us.store(now_us, std::memory_order_relaxed);
  return room;
}

}  // namespace mneme::memory
