// LogDamage: which file of the log's database cannot be read and what that means for its turns, in
// words a person can act on. RocksDB's own words say neither, and where its CURRENT file is gone it
// would make a new database and remove the old one's tables at the open after.
//
//   CURRENT          names the manifest in use
//   MANIFEST-000005  lists the tables in use; a table that is not listed may be an old one
//   000012.sst       a table of records
//   000013.log       the write-ahead log: what is in no table yet
//
// Threads:  any
// Errors:   kCorruption   names the file, what is known of the others, and what to do
//           kUnavailable  the folder cannot be read
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace mneme::memory {

// Before RocksDB may touch the folder: an empty one, or one whose lists are there.
Status CheckLogFiles(const std::string& path);

// Where a table is damaged or missing; none where `cause` must be something else. Reads every
// table.
std::optional<Error> ExplainTableDamage(const std::string& path, const Error& cause);

// For a log that RocksDB refused to open: a table, or else the list of them.
Error ExplainLogDamage(const std::string& path, const Error& cause);

}  // namespace mneme::memory
