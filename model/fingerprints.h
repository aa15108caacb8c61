// Fingerprints gives the SHA-256 of a checkpoint's files, and remembers them in a file of its own
// from one start to the next, so that a start does not hash gigabytes that nobody has touched.
//
// A hash is believed while path, size, device, inode, and the times of modification and of change
// (in nanoseconds; the second cannot be set by a program) are what they were. A file younger than
// two seconds is not remembered: it could change again within one tick of the file system's clock.
//
//   file := "mneme fingerprints 1\n" line{}
//   line := sha256 bytes modified_ns changed_ns device inode path check "\n"
//
// separated by tabs; `check` is the first 16 hexadecimal digits of SHA-256 of what precedes it in
// the line. A line that does not fit is forgotten, and its file hashed again.
//
// A folder may say itself what its files must be: SHA256SUMS, as `sha256sum *.json *.safetensors >
// SHA256SUMS` writes it there. CheckSums hashes what is listed, or remembers that it did.
//
// Threads:  one at a time.
// Errors:   of CheckSums: kCorruption, a file is not what is listed, with both hashes; kNotFound, a
//           listed file is missing; kInvalidArgument, the list cannot be read
//           of Save: kUnavailable, the file cannot be written; then the next start hashes again
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "memory/hash.h"
#include "model/mapped_file.h"

namespace mneme::model {

inline constexpr size_t kFingerprintsMax = 1024;                          // files remembered
inline constexpr uint64_t kSumsBytesMax = 256 * kKiB;                     // of SHA256SUMS
inline constexpr int64_t kFingerprintAgeNs = int64_t{2} * 1'000'000'000;  // least age of a file

class Fingerprints {
 public:
  // What `path` remembers; nothing where it is not there, damaged or of another version.
  static Fingerprints Open(const std::filesystem::path& path, Clock& clock = RealClock());

  memory::Digest Of(const MappedFile& file);

  // SHA-256 of the files' fingerprints one after the other, so that where one ends counts.
  memory::Digest Of(std::span<const MappedFile* const> files);

  // Files of `folder` against its SHA256SUMS; one without is a good answer too. Files that are not
  // listed are not looked at.
  Status CheckSums(const std::filesystem::path& folder);

  // Writes down what Of was asked for since Open, and nothing else: what is served no more is
  // forgotten.
  Status Save() const;

  // Bytes that had to be read since Open.
  uint64_t bytes_hashed() const { return bytes_hashed_; }

 private:
  struct Known {
    FileState state;
    memory::Digest digest = {};
  };
  using ByPath = std::map<std::string, Known>;

  Fingerprints(std::filesystem::path path, Clock& clock) : path_(std::move(path)), clock_(&clock) {}
  static void Read(const std::string& line, ByPath& known);
  const Known* Remembered(const std::string& path) const;

  std::filesystem::path path_;
  Clock* clock_;
  ByPath known_;  // as read
  ByPath asked_;
  uint64_t bytes_hashed_ = 0;
};

}  // namespace mneme::model
