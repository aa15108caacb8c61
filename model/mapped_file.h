// MappedFile: a file of a checkpoint folder, read-only and mapped whole.
//
// Symbolic links are followed: a hub's cache is made of them, and the folder is the operator's own.
// Only regular files are opened.
//
// Owns:     the descriptor and the mapping, until it is destroyed.
// Errors:   kNotFound         there is no such file
//           kInvalidArgument  it is no regular file, or empty, or larger than the caller's limit
//           kCorruption       CheckUnchanged: the file is not what it was when it was opened
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace mneme::model {

// What tells a file from what it was, or from another under its name.
struct FileState {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // since 1970, as a program may set it
  int64_t changed_ns = 0;   // since 1970, as the system sets it
  bool operator==(const FileState&) const = default;
};

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::filesystem::path& path, uint64_t bytes_max);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { Swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~MappedFile();

  // Reads `count` bytes at `offset` through the descriptor, so that a file cut short meanwhile is
  // an answer and not a signal. kCorruption where the file does not hold `count` bytes any more.
  Result<std::string> Read(uint64_t offset, uint64_t count) const;

  // Compares size, time and identity with those at Open. A mapping of a file that was cut short
  // faults when it is read: call this when all that will be used has been looked up.
  Status CheckUnchanged() const;

  ByteSpan bytes() const { return bytes_; }
  // At Open.
  const FileState& state() const { return state_; }
  // The last part of the path, for messages.
  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void Swap(MappedFile& other) noexcept;

  int descriptor_ = -1;
  ByteSpan bytes_;
  std::filesystem::path path_;
  std::string name_;
  FileState state_;
};

// kNotFound where there is no folder at `path`, with where it was looked for and what it holds.
Status CheckModelFolder(const std::filesystem::path& path);

// The error of a file in `folder`, within `model folder FOLDER` where it does not name it yet.
Error InModelFolder(Error error, const std::filesystem::path& folder);

// The whole of a small text file. Errors as MappedFile::Open.
Result<std::string> ReadTextFile(const std::filesystem::path& path, uint64_t bytes_max);

}  // namespace mneme::model
