#include "tests/support/power_loss_file_system.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace mneme::support {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr uint64_t kSectorBytes = 512;

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string FolderOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace

class TrackedFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  TrackedFile(PowerLossFileSystem* system, std::string path,
              std::unique_ptr<rocksdb::FSWritableFile>&& file)
      : FSWritableFileOwnerWrapper(std::move(file)), system_(system), path_(std::move(path)) {}

  IOStatus Append(const Slice& bytes, const IOOptions& options, IODebugContext* debug) override {
    if (IOStatus may = system_->MayWrite(); !may.ok()) return may;
    return Grown(target()->Append(bytes, options, debug), bytes.size());
  }
  IOStatus Append(const Slice& bytes, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return Append(bytes, options, debug);
  }
  IOStatus PositionedAppend(const Slice& bytes, uint64_t offset, const IOOptions& options,
                            IODebugContext* debug) override {
    if (IOStatus may = system_->MayWrite(); !may.ok()) return may;
    IOStatus status = target()->PositionedAppend(bytes, offset, options, debug);
    const std::lock_guard lock(system_->mutex_);
    auto& file = system_->files_[path_];
    if (status.ok()) file.bytes = std::max(file.bytes, offset + bytes.size());
    return status;
  }
  IOStatus PositionedAppend(const Slice& bytes, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(bytes, offset, options, debug);
  }
  IOStatus Truncate(uint64_t bytes, const IOOptions& options, IODebugContext* debug) override {
    if (IOStatus may = system_->MayWrite(); !may.ok()) return may;
    IOStatus status = target()->Truncate(bytes, options, debug);
    const std::lock_guard lock(system_->mutex_);
    if (status.ok()) system_->files_[path_].bytes = bytes;
    return status;
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return target()->Close(options, debug);
  }
  // The machine itself stays on, so nothing needs to reach its disk.
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return Flushed(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return Flushed(); }

 private:
  IOStatus Grown(IOStatus status, uint64_t bytes) {
    const std::lock_guard lock(system_->mutex_);
    if (status.ok()) system_->files_[path_].bytes += bytes;
    return status;
  }
  IOStatus Flushed() {
    if (IOStatus may = system_->MayFlush(); !may.ok()) return may;
    const std::lock_guard lock(system_->mutex_);
    auto& file = system_->files_[path_];
    file.flushed_bytes = file.bytes;
    return IOStatus::OK();
  }

  PowerLossFileSystem* system_;
  std::string path_;
};

class TrackedFolder : public rocksdb::FSDirectoryWrapper {
 public:
  TrackedFolder(PowerLossFileSystem* system, std::string path,
                std::unique_ptr<rocksdb::FSDirectory>&& folder)
      : FSDirectoryWrapper(std::move(folder)), system_(system), path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return Flushed(); }
  IOStatus FsyncWithDirOptions(const IOOptions&, IODebugContext*,
                               const rocksdb::DirFsyncOptions&) override {
    return Flushed();
  }

 private:
  IOStatus Flushed() {
    if (IOStatus may = system_->MayFlush(); !may.ok()) return may;
    system_->FolderFlushed(path_);
    return IOStatus::OK();
  }

  PowerLossFileSystem* system_;
  std::string path_;
};

IOStatus PowerLossFileSystem::MayWrite() const {
  if (off_) return IOStatus::IOError("the power is off");
  if (full_) return IOStatus::NoSpace("the disk is full");
  return IOStatus::OK();
}

IOStatus PowerLossFileSystem::MayFlush() {
  if (off_) return IOStatus::IOError("the power is off");
  if (flushes_left_ >= 0 && flushes_left_-- == 0) {
    failed_flushes_ += 1;
    return IOStatus::IOError("the flush failed");
  }
  return IOStatus::OK();
}

void PowerLossFileSystem::FolderFlushed(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  for (auto& [path, file] : files_)
    if (FolderOf(path) == folder) file.name_flushed = true;
  std::erase_if(undo_, [&](const Undo& undo) { return FolderOf(undo.path) == folder; });
}

IOStatus PowerLossFileSystem::NewWritableFile(const std::string& path,
                                              const rocksdb::FileOptions& options,
                                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                                              IODebugContext* debug) {
  if (IOStatus may = MayWrite(); !may.ok()) return may;
  IOStatus status = target()->NewWritableFile(path, options, file, debug);
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  files_[path] = File();
  *file = std::make_unique<TrackedFile>(this, path, std::move(*file));
  return status;
}

IOStatus PowerLossFileSystem::ReopenWritableFile(const std::string& path,
                                                 const rocksdb::FileOptions& options,
                                                 std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                 IODebugContext* debug) {
  if (IOStatus may = MayWrite(); !may.ok()) return may;
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  IOStatus status = target()->ReopenWritableFile(path, options, file, debug);
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (!files_.contains(path) && !error)
    files_[path] = {.bytes = bytes, .flushed_bytes = bytes, .name_flushed = true};
  *file = std::make_unique<TrackedFile>(this, path, std::move(*file));
  return status;
}

IOStatus PowerLossFileSystem::NewDirectory(const std::string& path, const IOOptions& options,
                                           std::unique_ptr<rocksdb::FSDirectory>* folder,
                                           IODebugContext* debug) {
  IOStatus status = target()->NewDirectory(path, options, folder, debug);
  if (status.ok())
    *folder = std::make_unique<TrackedFolder>(
        this, std::filesystem::path(path + "/x").parent_path().string(), std::move(*folder));
  return status;
}

IOStatus PowerLossFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                         IODebugContext* debug) {
  if (off_) return IOStatus::IOError("the power is off");
  const std::lock_guard lock(mutex_);
  const auto file = files_.find(path);
  if (file == files_.end() || file->second.name_flushed)
    undo_.push_back({.path = path, .content = ContentOf(path)});
  IOStatus status = target()->DeleteFile(path, options, debug);
  if (status.ok()) files_.erase(path);
  return status;
}

IOStatus PowerLossFileSystem::RenameFile(const std::string& from, const std::string& to,
                                         const IOOptions& options, IODebugContext* debug) {
  if (off_) return IOStatus::IOError("the power is off");
  const std::lock_guard lock(mutex_);
  std::optional<std::string> before;
  if (std::filesystem::exists(to)) before = ContentOf(to);
  IOStatus status = target()->RenameFile(from, to, options, debug);
  if (!status.ok()) return status;
  undo_.push_back({.path = to, .content = std::move(before)});
  if (const auto file = files_.find(from); file != files_.end()) {
    files_[to] = file->second;
    files_[to].name_flushed = true;  // whether the name goes is decided by the undo
    files_.erase(from);
  }
  return status;
}

void PowerLossFileSystem::LoseUnsynced(Loss loss, uint32_t seed) {
  std::mt19937 random(seed);
  const std::lock_guard lock(mutex_);
  for (const auto& [path, file] : files_) {
    std::error_code error;
    if (!file.name_flushed && (loss == Loss::kEverything || random() % 2 == 0)) {
      std::filesystem::remove(path, error);
      continue;
    }
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (error || bytes <= file.flushed_bytes) continue;
    const uint64_t unsynced = bytes - file.flushed_bytes;
    if (loss == Loss::kTornSectors) {
      std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
      for (uint64_t at = file.flushed_bytes; at < bytes;) {
        const uint64_t end = std::min(bytes, (at / kSectorBytes + 1) * kSectorBytes);
        if (random() % 2 == 0) {
          stream.seekp(static_cast<std::streamoff>(at));
          stream << std::string(end - at, '\0');
        }
        at = end;
      }
      continue;
    }
    const uint64_t kept = loss == Loss::kSomeTail ? random() % (unsynced + 1) : 0;
    std::filesystem::resize_file(path, file.flushed_bytes + kept, error);
  }
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) {
    if (loss != Loss::kEverything && random() % 2 == 0) break;  // names go newest first
    std::error_code error;
    if (!undo->content) {
      std::filesystem::remove(undo->path, error);
    } else {
      std::ofstream(undo->path, std::ios::binary | std::ios::trunc) << *undo->content;
    }
  }
  files_.clear();
  undo_.clear();
}

}  // namespace mneme::support
