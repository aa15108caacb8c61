// A file system on top of the machine's that knows what has been flushed, so that a test can take
// the rest away as a power cut would: bytes written after the last flush of their file, names
// created or renamed since the last flush of their folder, deletions likewise. It also fails
// flushes and fills up on request.
//
// After PowerOff nothing more reaches the disk; the database is then closed, and LoseUnsynced makes
// the folder what the cut left.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace mneme::support {

enum class Loss : uint8_t {
  kEverything,   // each file ends where it was last flushed
  kSomeTail,     // a random part of what was not flushed is there
  kTornSectors,  // all lengths are there, but random sectors of what was not flushed are zeros
};

class PowerLossFileSystem : public rocksdb::FileSystemWrapper {
 public:
  PowerLossFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "PowerLossFileSystem"; }

  void PowerOff() { off_ = true; }
  void LoseUnsynced(Loss loss, uint32_t seed);

  // The flush after `flushes` more fails, once, and with it every write to nothing: as a disk does.
  void FailFlushAfter(int flushes) { flushes_left_ = flushes; }
  int failed_flushes() const { return failed_flushes_; }

  // Writes are refused as for a full disk while set, and there is no free space.
  void SetFull(bool full) { full_ = full; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* folder,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options,
                                 uint64_t* bytes, rocksdb::IODebugContext* debug) override {
    if (!full_) return target()->GetFreeSpace(path, options, bytes, debug);
    *bytes = 0;
    return rocksdb::IOStatus::OK();
  }

 private:
  friend class TrackedFile;
  friend class TrackedFolder;

  struct File {
    uint64_t bytes = 0;
    uint64_t flushed_bytes = 0;
    bool name_flushed = false;
  };
  // What a name held before it was renamed over or deleted, until its folder is flushed.
  struct Undo {
    std::string path;
    std::optional<std::string> content;  // none: there was no such name
  };

  rocksdb::IOStatus MayWrite() const;
  rocksdb::IOStatus MayFlush();
  void FolderFlushed(const std::string& folder);

  std::mutex mutex_;
  std::map<std::string, File> files_;
  std::vector<Undo> undo_;  // oldest first
  std::atomic<bool> off_{false};
  std::atomic<bool> full_{false};
  std::atomic<int> flushes_left_{-1};  // -1: none fails
  std::atomic<int> failed_flushes_{0};
};

}  // namespace mneme::support
