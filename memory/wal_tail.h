// WalTail tells a torn write at the end of a RocksDB log file from damage in its middle.
//
// RocksDB itself offers only extremes: one mode refuses both, another drops everything after the
// first damaged record without a word (1,000 turns acknowledged, 500 there), and zeros in the
// middle are skipped in every mode. Our log flushes each batch before the next one is written, so
// at most one batch is unflushed: damage is a torn write exactly where no whole batch begins after
// it.
//
//   file   := block* (32 KiB each, the last shorter)
//   record := crc32c:u32 (masked) payload_bytes:u16 type:u8 payload
//   type   := 1 whole, 2 first, 3 middle, 4 last part of a batch
//
// Threads:  any
// Errors:   kUnavailable  the file cannot be read
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace mneme::memory {

enum class WalTail : uint8_t {
  kWhole,    // no damage; the end may be cut off inside a record
  kTorn,     // damage, and no batch begins after it
  kDamaged,  // damage, and a whole record that begins a batch after it
};

WalTail ExamineWal(ByteSpan file);

// The same of all log files in a RocksDB folder: the worst of them.
Result<WalTail> ExamineWals(const std::string& folder);

}  // namespace mneme::memory
