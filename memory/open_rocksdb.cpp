#include "memory/open_rocksdb.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/metadata.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file_error.h"
#include "base/log.h"
#include "memory/file_descriptor.h"
#include "memory/log_damage_rocksdb.h"
#include "memory/wal_tail.h"

namespace mneme::memory {
namespace {

// tmpfs and some network file systems refuse O_DIRECT.
bool CanDirectIo(const std::string& path) {
  const std::string probe = path + "/direct_probe";
  const FileDescriptor file(::open(probe.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  ::unlink(probe.c_str());
  return file.open();
}

// RocksDB's own LOG file lies on the disk it reports on, and the second line it cannot write there
// ends the process (an assertion Debian's build keeps). So its errors go to our log instead.
class ForwardingLogger : public rocksdb::Logger {
 public:
  ForwardingLogger() : Logger(rocksdb::InfoLogLevel::ERROR_LEVEL) {}
  using rocksdb::Logger::Logv;

  void Logv(const char* format, va_list arguments) override {
    char text[512];
    if (std::vsnprintf(text, sizeof(text), format, arguments) <= 0) return;
    std::string_view line(text);
    while (line.ends_with('\n')) line.remove_suffix(1);
    MNEME_LOG(kWarning, "rocksdb", "text=\"{}\"", line);
  }
};

void SetBlobOptions(rocksdb::Options* db) {
  db->enable_blob_files = true;
  db->min_blob_size = 4 * kKiB;
  db->blob_file_size = 256 * kMiB;
  db->enable_blob_garbage_collection = true;
  db->blob_garbage_collection_age_cutoff = 0.25;
  db->blob_garbage_collection_force_threshold = 0.5;
  db->blob_compaction_readahead_size = 2 * kMiB;
}

rocksdb::Options OptionsFor(const DatabaseOptions& options) {
  rocksdb::Options db;
  db.create_if_missing = true;
  if (options.env != nullptr) db.env = options.env;
  db.paranoid_checks = true;
  db.track_and_verify_wals_in_manifest = true;
  db.memtable_protection_bytes_per_key = 8;
  db.max_bgerror_resume_count = 0;  // a flush that failed is not tried again: reopen
  db.wal_recovery_mode = options.use == DatabaseOptions::Use::kLog
                             ? rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords
                             : rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.recycle_log_file_num = 0;  // a recycled file's old records look like damage
  db.write_buffer_size = options.write_buffer_bytes;
  db.max_write_buffer_number = 2;
  db.max_total_wal_size = 4 * kMiB;  // with one column family: only how much is preallocated
  db.manifest_preallocation_size = 64 * kKiB;
  db.max_background_jobs = 2;
  db.disable_auto_compactions = !options.compacts;
  db.max_open_files = 512;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  db.info_log = std::make_shared<ForwardingLogger>();
  db.compression = rocksdb::kNoCompression;
  db.use_direct_reads = options.direct_io;
  db.use_direct_io_for_flush_and_compaction = options.direct_io;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  table.cache_index_and_filter_blocks = true;  // so that they count in the cache's cap
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.checksum = rocksdb::kXXH3;
  db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  if (options.use == DatabaseOptions::Use::kPages) SetBlobOptions(&db);
  return db;
}

// RocksDB looks at table files when it opens, but at blob files only when it reads them.
Status CheckBlobFiles(rocksdb::DB& db, const std::string& path) {
  rocksdb::ColumnFamilyMetaData family;
  db.GetColumnFamilyMetaData(&family);
  for (const rocksdb::BlobMetaData& blob : family.blob_files) {
    std::error_code error;
    const std::string name = std::filesystem::path(blob.blob_file_name).filename();
    const uint64_t bytes = std::filesystem::file_size(std::filesystem::path(path) / name, error);
    if (error) return Fail(ErrorCode::kCorruption, "blob file {} is missing", name);
    if (bytes < blob.blob_file_size)
      return Fail(ErrorCode::kCorruption, "blob file {} has {} of {} bytes", name, bytes,
                  blob.blob_file_size);
  }
  return {};
}

rocksdb::Status TryOpen(const rocksdb::Options& options, const std::string& path,
                        std::unique_ptr<rocksdb::DB>* db) {
  rocksdb::DB* opened = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options, path, &opened);
  db->reset(opened);
  return status;
}

// What to do where RocksDB's text ends with a reason of the system's.
std::string_view RemedyIn(std::string_view text) {
  constexpr int kNumbers[] = {EACCES,  EPERM,  EROFS,  ENOSPC, EDQUOT, ENOENT,
                              ENOTDIR, EEXIST, EISDIR, EMFILE, ENFILE, EIO};
  for (const int number : kNumbers)
    if (text.ends_with(std::strerror(number))) return FileRemedy(number);
  return "";
}

// Of the whole folder: RocksDB's text names files in it, so its path and the remedy are added.
Error OpenError(const rocksdb::Status& status, std::string_view what, const std::string& path) {
  Error error = ErrorFrom(status, what, path);
  if (error.code() != ErrorCode::kUnavailable && error.reason() != Reason::kStoreFull) return error;
  const std::string_view remedy = RemedyIn(error.message());
  const std::string message =
      fmt::format("{}: {}{}{}", path, error.message(), remedy.empty() ? "" : "; ", remedy);
  return error.reason() == Reason::kStoreFull ? Error(Reason::kStoreFull, message).RetryAfter(5'000)
                                              : Error(error.code(), message);
}

Error RefusedLog(const DatabaseOptions& options, const rocksdb::Status& status,
                 std::string_view what) {
  Error error = OpenError(status, what, options.path);
  if (!status.IsCorruption() && !status.IsPathNotFound()) return error;
  return ExplainLogDamage(options.path, {ErrorCode::kCorruption, error.message()});
}

// The log is damaged somewhere: what is before the damage, and nothing behind it.
Status OpenUpToDamage(const DatabaseOptions& options, rocksdb::Options db_options,
                      OpenedDatabase* opened) {
  db_options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  if (const auto status = TryOpen(db_options, options.path, &opened->db); !status.ok())
    return Fail(RefusedLog(options, status, "open log without its damaged end"));
  return {};
}

Status OpenLog(const DatabaseOptions& options, OpenedDatabase* opened) {
  MNEME_TRY(CheckLogFiles(options.path));
  auto tail = ExamineWals(options.path);
  MNEME_TRY(tail);
  const rocksdb::Options db_options = OptionsFor(options);
  if (*tail != WalTail::kDamaged) {
    const rocksdb::Status status = TryOpen(db_options, options.path, &opened->db);
    if (status.ok()) return {};
    if (!status.IsCorruption() || *tail != WalTail::kTorn)
      return Fail(RefusedLog(options, status, "open log"));
    MNEME_LOG(kWarning, "log_torn_tail", "error=\"{}\"",
              ErrorFrom(status, "open log", options.path).message());
    opened->torn_tail_dropped = true;
    return OpenUpToDamage(options, db_options, opened);
  }
  if (!options.accept_damage)
    return Fail(ErrorCode::kCorruption,
                "open log: acknowledged turns lie behind damaged bytes of its write-ahead log; "
                "restore a copy, or start once with --accept-loss to keep what is before them");
  MNEME_LOG(kWarning, "log_damage_accepted", "turns behind the damage are dropped");
  opened->damage_accepted = true;
  return OpenUpToDamage(options, db_options, opened);
}

}  // namespace

Result<OpenedDatabase> OpenDatabase(const DatabaseOptions& asked) {
  DatabaseOptions options = asked;
  options.direct_io = asked.direct_io && CanDirectIo(asked.path);
  OpenedDatabase opened;
  if (options.use == DatabaseOptions::Use::kLog) {
    MNEME_TRY(OpenLog(options, &opened));
  } else {
    const rocksdb::Status status = TryOpen(OptionsFor(options), options.path, &opened.db);
    if (!status.ok()) {
      const Error error = OpenError(status, "open page store", options.path);
      // A file that the others name and that is gone is damage like any other.
      if (status.IsPathNotFound()) return Fail(ErrorCode::kCorruption, "{}", error.message());
      return Fail(error);
    }
  }
  MNEME_TRY(CheckBlobFiles(*opened.db, options.path));
  return opened;
}

Error ErrorFrom(const rocksdb::Status& status, std::string_view what, const std::string& path) {
  std::string text = status.ToString();
  for (size_t at = text.find(path); at != std::string::npos; at = text.find(path))
    text.erase(at, path.size() + (at + path.size() < text.size() ? 1 : 0));
  std::string message = fmt::format("{}: {}", what, text);
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kSpaceLimit)
    return Error(Reason::kStoreFull, std::move(message)).RetryAfter(5'000);
  if (status.IsNotFound()) return {ErrorCode::kNotFound, std::move(message)};
  if (status.IsCorruption()) return {ErrorCode::kCorruption, std::move(message)};
  return {ErrorCode::kUnavailable, std::move(message)};
}

Status CompactDatabase(rocksdb::DB& db, const std::string& path) {
  rocksdb::CompactRangeOptions options;
  options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
  options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
  options.blob_garbage_collection_age_cutoff = 1.0;
  options.exclusive_manual_compaction = true;
  const rocksdb::Status status = db.CompactRange(options, nullptr, nullptr);
  if (!status.ok()) return Fail(ErrorFrom(status, "compact", path));
  return {};
}

}  // namespace mneme::memory
