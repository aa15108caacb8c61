#include "memory/log_damage_rocksdb.h"

#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/file_error.h"
#include "base/log.h"

namespace mneme::memory {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemedy =
    "nothing was removed; restore the whole store folder from a copy";

struct LogFiles {
  std::vector<std::string> tables;
  size_t write_ahead_logs = 0;
  bool any_manifest = false;
};

Result<LogFiles> ListLogFiles(const std::string& path) {
  LogFiles files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".sst")) files.tables.push_back(name);
    if (name.ends_with(".log")) ++files.write_ahead_logs;
    files.any_manifest = files.any_manifest || name.starts_with("MANIFEST-");
  }
  if (error)
    return Fail(ErrorCode::kUnavailable, "log folder {}",
                FileErrorText(path, "listed", error.value()));
  std::sort(files.tables.begin(), files.tables.end());
  return files;
}

// What CURRENT names; empty where it names nothing.
std::string ManifestName(const std::string& path) {
  std::string name;
  std::getline(std::ifstream(path + "/CURRENT"), name);
  return name.starts_with("MANIFEST-") && name.find('/') == std::string::npos ? name : "";
}

bool Readable(const std::string& table) {
  rocksdb::SstFileReader reader{rocksdb::Options()};
  return reader.Open(table).ok() && reader.VerifyChecksum().ok();
}

// `000012.sst` where `text` names one. Of one that is missing RocksDB names the older extension.
std::string TableNamedIn(std::string_view text) {
  const size_t end = std::min(text.find(".sst"), text.find(".ldb"));
  if (end == std::string_view::npos) return "";
  size_t first = end;
  while (first > 0 && text[first - 1] >= '0' && text[first - 1] <= '9') --first;
  return fmt::format("{}.sst", text.substr(first, end - first));
}

Error Damage(std::string message) {
  return {ErrorCode::kCorruption, fmt::format("open log: {}; {}", message, kRemedy)};
}

}  // namespace

Status CheckLogFiles(const std::string& path) {
  const auto files = ListLogFiles(path);
  MNEME_TRY(files);
  std::error_code error;
  const bool current = fs::exists(path + "/CURRENT", error);
  if (!current && files->tables.empty() && files->write_ahead_logs == 0 && !files->any_manifest)
    return {};
  const std::string manifest = ManifestName(path);
  const auto turns = fmt::format("turns lie in {} tables and {} write-ahead logs beside it",
                                 files->tables.size(), files->write_ahead_logs);
  if (manifest.empty()) {
    return Fail(Damage(fmt::format(
        "CURRENT, which names the list of the log's tables, {}; {} and are not known to be lost",
        current ? "cannot be read" : "is missing", turns)));
  }
  if (!fs::exists(path + "/" + manifest, error)) {
    return Fail(Damage(
        fmt::format("{}, the list of the log's tables, is missing; {} and are not known to be lost",
                    manifest, turns)));
  }
  return {};
}

std::optional<Error> ExplainTableDamage(const std::string& path, const Error& cause) {
  const auto files = ListLogFiles(path);
  if (cause.code() != ErrorCode::kCorruption || !files) return std::nullopt;
  std::vector<std::string> bad;
  for (const std::string& table : files->tables)
    if (!Readable(path + "/" + table)) bad.push_back(table);
  const size_t whole = files->tables.size() - bad.size();
  const std::string named = TableNamedIn(cause.message());
  std::string what;
  if (!bad.empty()) {
    what = fmt::format("table {} cannot be read{}", bad.front(),
                       bad.size() > 1 ? fmt::format(", nor can {} more", bad.size() - 1) : "");
  } else if (named.empty()) {
    return std::nullopt;
  } else if (std::binary_search(files->tables.begin(), files->tables.end(), named)) {
    what = fmt::format("table {} is not the one that was written", named);
  } else {
    what = fmt::format("table {} is missing", named);
  }
  MNEME_LOG(kError, "log_damaged", "error=\"{}\"", cause.message());
  return Damage(fmt::format(
      "{}; what it held is lost unless a copy has it, the {} other tables are whole", what, whole));
}

Error ExplainLogDamage(const std::string& path, const Error& cause) {
  if (auto table = ExplainTableDamage(path, cause)) return *std::move(table);
  const auto files = ListLogFiles(path);
  if (!files) return files.error();
  MNEME_LOG(kError, "log_damaged", "error=\"{}\"", cause.message());
  return Damage(
      fmt::format("{}, the list of the log's tables, cannot be read; all {} tables are "
                  "whole, so their turns are not known to be lost",
                  ManifestName(path), files->tables.size()));
}

}  // namespace mneme::memory
