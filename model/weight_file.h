// WeightFile: one safetensors file, mapped, its header checked to the last byte before a tensor is
// looked at.
//
//   file   := u64 header_bytes, header (JSON, may end in spaces), tensor bytes
//   header := {"__metadata__": {text: text}, name: {"dtype": d, "shape": [n...],
//              "data_offsets": [begin, end]}, ...}          offsets count from the header's end
//
// Every offset and size is checked before anything is made of it: integers as integers, products in
// 64 bits without overflow, dtype x shape = range, ranges inside the file without overlap or gap,
// each name once. Nothing is allocated from a size that a file declares.
//
// Owns:     the mapping. Views of it live as long as the WeightFile.
// Errors:   kNotFound         there is no such file
//           kInvalidArgument  it is no regular file, or a limit below is passed
//           kCorruption       the bytes contradict themselves; the message names file, tensor, what
//                             was expected and what was found
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/dtype.h"
#include "model/mapped_file.h"

namespace mneme::model {

inline constexpr uint64_t kWeightFileBytesMax = 1024 * kGiB;
inline constexpr uint64_t kHeaderBytesMax = 16 * kMiB;
inline constexpr size_t kTensorsMax = 65536;        // in one file
inline constexpr size_t kRankMax = 8;               // dimensions of a tensor
inline constexpr size_t kTensorNameBytesMax = 512;  // bytes of its name
inline constexpr size_t kMetadataKeysMax = 1024;    // entries of __metadata__

// The number types a safetensors file may hold. Only F32, BF16, F16 and I32 are used by anything.
enum class StoredDtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};
uint64_t BytesOf(StoredDtype dtype);
std::string_view NameOf(StoredDtype dtype);

// A tensor as the file declares it.
struct StoredTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  uint8_t rank = 0;
  std::array<uint64_t, kRankMax> shape = {};
  ByteSpan bytes;  // [shape], row-major; may be unaligned

  // The type as kernels know it, where they do.
  std::optional<kernels::Dtype> kernel_dtype() const;
  // `[3, 4]`
  std::string ShapeText() const;
};

class WeightFile {
 public:
  static Result<WeightFile> Open(const std::filesystem::path& path);

  // The tensor of that name, or null. Good as long as the file.
  const StoredTensor* Find(std::string_view name) const;

  // Sorted by name.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& name() const { return file_.name(); }

  // Header included.
  ByteSpan bytes() const { return file_.bytes(); }
  const MappedFile& file() const { return file_; }

  // Reads every number. kCorruption where one is infinite or none, naming its tensor and place.
  Status CheckFinite() const;

  // As MappedFile::CheckUnchanged.
  Status CheckUnchanged() const { return file_.CheckUnchanged(); }

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace mneme::model
