#include "model/weight_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "model/strict_json.h"
#include "model/weight_header.h"

namespace mneme::model {
namespace {

struct DtypeRow {
  std::string_view name;
  uint64_t bytes;
};
// In the order of StoredDtype.
constexpr DtypeRow kDtypeRows[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8},
};

uint64_t LittleEndian64(ByteSpan bytes) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

// The bytes that dtype and shape call for; nothing where they pass 64 bits.
std::optional<uint64_t> NeededBytes(const StoredTensor& tensor) {
  uint64_t bytes = BytesOf(tensor.dtype);
  for (size_t i = 0; i < tensor.rank; ++i) {
    if (__builtin_mul_overflow(bytes, tensor.shape[i], &bytes)) return std::nullopt;
  }
  return bytes;
}

// Compares what the header declares with the bytes that follow it: sizes, order, gaps.
Status CheckRanges(std::vector<DeclaredTensor>& tensors, uint64_t bytes, std::string_view file) {
  std::sort(tensors.begin(), tensors.end(), [](const DeclaredTensor& a, const DeclaredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const DeclaredTensor& declared : tensors) {
    const StoredTensor& tensor = declared.tensor;
    const std::string name = Shown(tensor.name);
    const std::optional<uint64_t> needed = NeededBytes(tensor);
    if (!needed)
      return Fail(ErrorCode::kCorruption,
                  "{}: tensor {}: expected a size below 2^64 bytes, found {} of {}", file, name,
                  NameOf(tensor.dtype), tensor.ShapeText());
    if (declared.end < declared.begin || declared.end > bytes)
      return Fail(ErrorCode::kCorruption,
                  "{}: tensor {}: expected a range within {} bytes, found [{}, {})", file, name,
                  bytes, declared.begin, declared.end);
    if (declared.end - declared.begin != *needed)
      return Fail(ErrorCode::kCorruption,
                  "{}: tensor {}: expected {} bytes for {} of {}, found a range of {}", file, name,
                  *needed, NameOf(tensor.dtype), tensor.ShapeText(), declared.end - declared.begin);
    if (declared.begin != at)
      return Fail(ErrorCode::kCorruption,
                  "{}: tensor {}: expected to begin at byte {}, found {}: ranges {}", file, name,
                  at, declared.begin, declared.begin < at ? "overlap" : "leave a gap");
    at = declared.end;
  }
  if (at != bytes)
    return Fail(ErrorCode::kCorruption,
                "{}: tensor (end of file): expected {} bytes of tensors, found {}", file, at,
                bytes);
  return {};
}

// Index of the first number whose exponent is all ones, or the count. Whole blocks are looked at
// without a branch, at the speed of memory.
template <typename Bits>
uint64_t FirstWithExponent(ByteSpan bytes, Bits exponent) {
  constexpr uint64_t kBlock = 4096;
  const uint64_t count = bytes.size() / sizeof(Bits);
  const auto at = [&](uint64_t index) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + index * sizeof(Bits), sizeof(Bits));
    return static_cast<Bits>(bits & exponent) == exponent;
  };
  for (uint64_t first = 0; first < count; first += kBlock) {
    const uint64_t end = std::min(count, first + kBlock);
    Bits any = 0;
    for (uint64_t i = first; i < end; ++i) any = static_cast<Bits>(any | Bits{at(i)});
    for (uint64_t i = first; any != 0 && i < end; ++i)
      if (at(i)) return i;
  }
  return count;
}

// Index of the first number that is not finite, or the count.
uint64_t FiniteCount(ByteSpan bytes, kernels::Dtype dtype) {
  if (dtype == kernels::Dtype::kF32) return FirstWithExponent<uint32_t>(bytes, 0x7F800000u);
  return FirstWithExponent<uint16_t>(bytes, dtype == kernels::Dtype::kBf16 ? 0x7F80 : 0x7C00);
}

}  // namespace

uint64_t BytesOf(StoredDtype dtype) { return kDtypeRows[static_cast<size_t>(dtype)].bytes; }
std::string_view NameOf(StoredDtype dtype) { return kDtypeRows[static_cast<size_t>(dtype)].name; }

std::optional<kernels::Dtype> StoredTensor::kernel_dtype() const {
  switch (dtype) {
    case StoredDtype::kF32:
      return kernels::Dtype::kF32;
    case StoredDtype::kBf16:
      return kernels::Dtype::kBf16;
    case StoredDtype::kF16:
      return kernels::Dtype::kF16;
    default:
      return std::nullopt;
  }
}

std::string StoredTensor::ShapeText() const {
  return fmt::format("[{}]", fmt::join(std::span(shape).first(rank), ", "));
}

Result<WeightFile> WeightFile::Open(const std::filesystem::path& path) {
  auto mapped = MappedFile::Open(path, kWeightFileBytesMax);
  if (!mapped) return Fail(std::move(mapped).error());
  const uint64_t file_bytes = mapped->bytes().size();
  const std::string& file = mapped->name();
  if (file_bytes < sizeof(uint64_t))
    return Fail(ErrorCode::kCorruption,
                "{}: tensor (header): expected at least 8 bytes, found {}: no safetensors file",
                file, file_bytes);
  auto length = mapped->Read(0, sizeof(uint64_t));
  if (!length) return Fail(std::move(length).error());
  const uint64_t header_bytes = LittleEndian64(AsBytes(*length));
  if (header_bytes > kHeaderBytesMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: tensor (header): expected at most {} bytes of header, found {}", file,
                kHeaderBytesMax, header_bytes);
  if (header_bytes > file_bytes - sizeof(uint64_t))
    return Fail(ErrorCode::kCorruption,
                "{}: tensor (header): expected {} bytes of header, found {} left in the file: cut "
                "short",
                file, header_bytes, file_bytes - sizeof(uint64_t));
  auto text = mapped->Read(sizeof(uint64_t), header_bytes);
  if (!text) return Fail(std::move(text).error());

  auto header = ParseWeightHeader(*text, file);
  if (!header) return Fail(std::move(header).error());
  const uint64_t tensors_at = sizeof(uint64_t) + header_bytes;
  MNEME_TRY(CheckRanges(header->tensors, file_bytes - tensors_at, file));

  WeightFile result;
  result.metadata_ = std::move(header->metadata);
  result.tensors_.reserve(header->tensors.size());
  for (DeclaredTensor& declared : header->tensors) {
    declared.tensor.bytes =
        mapped->bytes().subspan(tensors_at + declared.begin, declared.end - declared.begin);
    result.tensors_.push_back(std::move(declared.tensor));
  }
  std::sort(result.tensors_.begin(), result.tensors_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  result.file_ = *std::move(mapped);
  return result;
}

Status WeightFile::CheckFinite() const {
  for (const StoredTensor& tensor : tensors_) {
    const auto dtype = tensor.kernel_dtype();
    if (!dtype || *dtype == kernels::Dtype::kI8) continue;  // has no others
    const uint64_t count = tensor.bytes.size() / kernels::BytesOf(*dtype);
    const uint64_t finite = FiniteCount(tensor.bytes, *dtype);
    if (finite != count)
      return Fail(ErrorCode::kCorruption,
                  "{}: tensor {}: expected finite numbers, found one that is not at {} of {}",
                  name(), tensor.name, finite, count);
  }
  return {};
}

const StoredTensor* WeightFile::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace mneme::model
