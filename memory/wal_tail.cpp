#include "memory/wal_tail.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/file_error.h"
#include "memory/hash.h"

namespace mneme::memory {
namespace {

constexpr size_t kBlockBytes = 32 * kKiB;
constexpr size_t kHeaderBytes = 7;
constexpr uint8_t kWholeBatch = 1;
constexpr uint8_t kFirstPart = 2;

enum class Found : uint8_t { kRecord, kCutOff, kZeros, kBad };

struct Record {
  Found found = Found::kBad;
  uint8_t type = 0;
  size_t bytes = 0;  // header and payload
};

size_t LeftInBlock(size_t at) { return kBlockBytes - at % kBlockBytes; }

Record RecordAt(ByteSpan file, size_t at) {
  uint32_t masked = 0;
  uint16_t payload_bytes = 0;
  std::memcpy(&masked, file.data() + at, sizeof(masked));
  std::memcpy(&payload_bytes, file.data() + at + 4, sizeof(payload_bytes));
  const auto type = static_cast<uint8_t>(file[at + 6]);
  if (type == 0 && payload_bytes == 0) return {.found = Found::kZeros};
  const size_t bytes = kHeaderBytes + payload_bytes;
  if (bytes > LeftInBlock(at)) return {.found = Found::kBad};
  if (at + bytes > file.size()) return {.found = Found::kCutOff};
  const uint32_t crc = Crc32c(file.subspan(at + 6, bytes - 6));
  const uint32_t expected = ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
  if (expected != masked) return {.found = Found::kBad};
  return {.found = Found::kRecord, .type = type, .bytes = bytes};
}

bool BeginsBatch(const Record& record) {
  return record.found == Found::kRecord &&
         (record.type == kWholeBatch || record.type == kFirstPart);
}

// Whether a batch begins in the block at `block`, which is sound up to where its records break off.
bool BatchBeginsInBlock(ByteSpan file, size_t block) {
  const size_t end = std::min(block + kBlockBytes, file.size());
  for (size_t at = block; at + kHeaderBytes <= end;) {
    const Record record = RecordAt(file, at);
    if (BeginsBatch(record)) return true;
    if (record.found != Found::kRecord) return false;
    at += record.bytes;
  }
  return false;
}

bool BatchBeginsAfter(ByteSpan file, size_t damage) {
  // The length of the damaged record cannot be trusted, so every place in its block is tried.
  const size_t block_end = std::min(damage + LeftInBlock(damage), file.size());
  for (size_t at = damage + 1; at + kHeaderBytes <= block_end; ++at)
    if (BeginsBatch(RecordAt(file, at))) return true;
  for (size_t block = damage + LeftInBlock(damage); block < file.size(); block += kBlockBytes)
    if (BatchBeginsInBlock(file, block)) return true;
  return false;
}

}  // namespace

WalTail ExamineWal(ByteSpan file) {
  size_t at = 0;
  while (at + kHeaderBytes <= file.size()) {
    if (LeftInBlock(at) < kHeaderBytes) {
      at += LeftInBlock(at);
      continue;
    }
    const Record record = RecordAt(file, at);
    if (record.found != Found::kRecord) {
      if (BatchBeginsAfter(file, at)) return WalTail::kDamaged;
      return record.found == Found::kBad ? WalTail::kTorn : WalTail::kWhole;
    }
    at += record.bytes;
  }
  return WalTail::kWhole;
}

Result<WalTail> ExamineWals(const std::string& folder) {
  WalTail worst = WalTail::kWhole;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".log") continue;
    errno = 0;
    std::vector<std::byte> file(entry.file_size(error));
    std::ifstream stream(entry.path(), std::ios::binary);
    if (error || !stream.read(reinterpret_cast<char*>(file.data()),
                              static_cast<std::streamsize>(file.size())))
      return Fail(ErrorCode::kUnavailable, "log file {}",
                  FileErrorText(entry.path().string(), "read",
                                error        ? error.value()
                                : errno != 0 ? errno
                                             : EIO));
    worst = std::max(worst, ExamineWal(file));
  }
  if (error)
    return Fail(ErrorCode::kUnavailable, "log folder {}",
                FileErrorText(folder, "listed", error.value()));
  return worst;
}

}  // namespace mneme::memory
