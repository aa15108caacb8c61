// WeightFolder: the weight files of a checkpoint folder as one set of tensors: model.safetensors,
// or the shards that model.safetensors.index.json names.
//
// Shards are plain file names beside the index; anything with a path in it is refused. A tensor
// stands in one shard, the one the index says.
//
// Owns:     the mapped files.
// Errors:   kNotFound         no weights in the folder, or a shard is missing
//           otherwise as WeightFile; the message names file, tensor, expected and found
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/weight_file.h"

namespace mneme::model {

inline constexpr uint64_t kIndexBytesMax = 16 * kMiB;
inline constexpr size_t kShardsMax = 256;

class WeightFolder {
 public:
  static Result<WeightFolder> Open(const std::filesystem::path& folder);

  struct Found {
    const WeightFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  // Both null where no file holds it.
  Found Find(std::string_view name) const;

  // In order of name.
  const std::vector<WeightFile>& files() const { return files_; }

  // In order of name: what a fingerprint of the weights is taken over.
  std::vector<const MappedFile*> FingerprintFiles() const;
  uint64_t bytes() const;

  // As WeightFile::CheckFinite, of every file.
  Status CheckFinite() const;

  // kCorruption where a file is not what it was when it was opened.
  Status CheckUnchanged() const;

 private:
  std::vector<WeightFile> files_;
};

}  // namespace mneme::model
