// Opens one RocksDB instance with every trap of version 7.8.3 that we met closed, and turns its
// statuses into errors. The traps, each measured (docs/formats.md has the list of files):
//
//   * its default recovery drops acknowledged records behind a damaged one in silence;
//   * it opens with blob files missing or short and fails at the first read;
//   * MultiGet over blob files may return wrong values beside an error: we never call it;
//   * an explicit SyncWAL makes log tracking refuse a sound store: we sync through write options
//   only;
//   * after a failed flush it may try again and succeed by itself: switched off;
//   * its LOG file on a full disk ends the process by an assertion: it writes into our log instead.
//
// Threads:  any, one open at a time per folder
// Errors:   kCorruption   damaged, missing or short files; the message names them
//           store_full    no space on the disk
//           kUnavailable  anything else the file system or RocksDB refused
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace rocksdb {
class DB;
class Env;
class Status;
}  // namespace rocksdb

namespace mneme::memory {

struct DatabaseOptions {
  std::string path;
  // kLog: every write is flushed, so damage before the last batch refuses to open.
  // kPages: written behind; opens with the whole prefix that reached the disk. Values in blob
  // files.
  enum class Use : uint8_t { kLog, kPages } use = Use::kLog;
  rocksdb::Env* env = nullptr;  // nullptr: the machine's; tests bring faults
  size_t write_buffer_bytes = 16 * kMiB;
  size_t block_cache_bytes = 8 * kMiB;
  bool direct_io = false;      // where the file system can
  bool compacts = true;        // false: files stay as they are, whatever is written
  bool accept_damage = false;  // kLog: open with what is before the damage, and say so
};

struct OpenedDatabase {
  std::unique_ptr<rocksdb::DB> db;
  bool torn_tail_dropped = false;  // a batch that was never acknowledged was cut in the middle
  bool damage_accepted = false;    // acknowledged batches behind damage were dropped on request
};

Result<OpenedDatabase> OpenDatabase(const DatabaseOptions& options);

// `what` says which operation on which thing; the folder's own path is left out of the message.
Error ErrorFrom(const rocksdb::Status& status, std::string_view what, const std::string& path);

// Moves every byte that is still needed into fresh files and drops the rest.
Status CompactDatabase(rocksdb::DB& db, const std::string& path);

}  // namespace mneme::memory
