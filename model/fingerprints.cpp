#include "model/fingerprints.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "model/weight_file.h"

namespace mneme::model {
namespace {

constexpr std::string_view kFirstLine = "mneme fingerprints 1";
constexpr size_t kCheckDigits = 16;
constexpr uint64_t kFileBytesMax = 8 * kMiB;
constexpr std::string_view kSumsName = "SHA256SUMS";
constexpr std::string_view kSumsRemedy =
    "restore the folder from where it came from, or, where it was changed on purpose, run "
    "sha256sum *.json *.safetensors > SHA256SUMS in it";

std::string HexOf(const memory::Digest& digest) {
  std::string hex;
  for (const std::byte each : digest) hex += fmt::format("{:02x}", std::to_integer<int>(each));
  return hex;
}

bool ReadHex(const std::string& hex, memory::Digest& digest) {
  if (hex.size() != 2 * digest.size()) return false;
  for (size_t i = 0; i < digest.size(); ++i) {
    int value = 0;
    for (const char c : {hex[2 * i], hex[2 * i + 1]}) {
      const bool letter = c >= 'a' && c <= 'f';
      if (!letter && (c < '0' || c > '9')) return false;
      value = value * 16 + (letter ? c - 'a' + 10 : c - '0');
    }
    digest[i] = static_cast<std::byte>(value);
  }
  return true;
}

std::string CheckOf(const std::string& text) {
  return HexOf(memory::Sha256(std::as_bytes(std::span(text)))).substr(0, kCheckDigits);
}

// A name with one of these could not be told from the rest of its line.
bool CanBeWritten(const std::string& path) {
  return path.find_first_of("\t\n") == std::string::npos;
}

}  // namespace

Fingerprints Fingerprints::Open(const std::filesystem::path& path, Clock& clock) {
  Fingerprints fingerprints(path, clock);
  const auto text = ReadTextFile(path, kFileBytesMax);
  if (!text) return fingerprints;
  std::istringstream lines(*text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return fingerprints;
  while (std::getline(lines, line) && fingerprints.known_.size() < kFingerprintsMax)
    Read(line, fingerprints.known_);
  return fingerprints;
}

void Fingerprints::Read(const std::string& line, ByPath& known) {
  const size_t end = line.rfind('\t');
  if (end == std::string::npos || line.substr(end + 1) != CheckOf(line.substr(0, end))) return;
  std::istringstream fields(line.substr(0, end));
  std::string hex;
  Known one;
  FileState& state = one.state;
  fields >> hex >> state.bytes >> state.modified_ns >> state.changed_ns >> state.device >>
      state.inode;
  std::string path;
  if (!fields || fields.get() != '\t' || !std::getline(fields, path) || !ReadHex(hex, one.digest))
    return;
  known[path] = one;
}

const Fingerprints::Known* Fingerprints::Remembered(const std::string& path) const {
  for (const ByPath* map : {&asked_, &known_}) {
    const auto found = map->find(path);
    if (found != map->end()) return &found->second;
  }
  return nullptr;
}

memory::Digest Fingerprints::Of(const MappedFile& file) {
  std::error_code failure;
  const std::string path = std::filesystem::absolute(file.path(), failure).string();
  Known one = {.state = file.state(), .digest = {}};
  if (const Known* before = Remembered(path); before != nullptr && before->state == one.state) {
    one.digest = before->digest;
  } else {
    one.digest = memory::Sha256(file.bytes());
    bytes_hashed_ += file.bytes().size();
  }
  const int64_t newest_ns = std::max(one.state.modified_ns, one.state.changed_ns);
  if (!failure && CanBeWritten(path) && clock_->WallUs() * 1000 - newest_ns >= kFingerprintAgeNs)
    asked_[path] = one;
  return one.digest;
}

memory::Digest Fingerprints::Of(std::span<const MappedFile* const> files) {
  std::vector<std::byte> digests;
  for (const MappedFile* file : files) {
    const memory::Digest digest = Of(*file);
    digests.insert(digests.end(), digest.begin(), digest.end());
  }
  return memory::Sha256(digests);
}

Status Fingerprints::CheckSums(const std::filesystem::path& folder) {
  const std::filesystem::path list = folder / kSumsName;
  std::error_code ignored;
  if (!std::filesystem::exists(list, ignored)) return {};
  const auto text = ReadTextFile(list, kSumsBytesMax);
  MNEME_TRY(text);
  std::istringstream lines(*text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    memory::Digest expected;
    const size_t name_begin = 2 * expected.size() + 2;
    // Two blanks, or a blank and a star, stand between hash and name.
    const bool shaped = line.size() > name_begin && line[name_begin - 2] == ' ' &&
                        ReadHex(line.substr(0, name_begin - 2), expected);
    const std::string name = shaped ? line.substr(name_begin) : "";
    if (name.empty() || name.find('/') != std::string::npos || number > kFingerprintsMax)
      return Fail(
          ErrorCode::kInvalidArgument,
          "{}: line {}: expected a hash, two blanks and the name of a file beside it, in at "
          "most {} lines; {}",
          list.string(), number, kFingerprintsMax, kSumsRemedy);
    const auto file = MappedFile::Open(folder / name, kWeightFileBytesMax);
    if (!file) return Fail(Error(file.error()).Within("a file that SHA256SUMS lists"));
    const memory::Digest found = Of(*file);
    if (found != expected)
      return Fail(ErrorCode::kCorruption, "{}: expected SHA-256 {}, found {}; {}",
                  file->path().string(), HexOf(expected), HexOf(found), kSumsRemedy);
  }
  return {};
}

Status Fingerprints::Save() const {
  std::string text(kFirstLine);
  text += '\n';
  for (const auto& [path, one] : asked_) {
    const FileState& state = one.state;
    const std::string line =
        fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}", HexOf(one.digest), state.bytes, state.modified_ns,
                    state.changed_ns, state.device, state.inode, path);
    text += line + '\t' + CheckOf(line) + '\n';
  }
  // Beside it and renamed, so that a reader meets the whole of one or of the other.
  const std::filesystem::path beside = path_.string() + ".next";
  std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  std::error_code failure;
  if (stream) std::filesystem::rename(beside, path_, failure);
  if (stream && !failure) return {};
  return Fail(ErrorCode::kUnavailable, "fingerprints {}: cannot be written", path_.string());
}

}  // namespace mneme::model
