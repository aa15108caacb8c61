// Watermark promises, outside RocksDB, how far the log had come: a later open that finds less, or
// something else, knows that acknowledged turns are missing. It names the sessions that changed
// last, so that a loss can be told session by session.
//
// The log is flushed before the watermark, so a sound log is never behind it.
//
// Threads:  the log thread
// Errors:   kUnavailable  the file could not be written or flushed
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "memory/hash.h"
#include "memory/slot_file.h"
#include "memory/store_folder.h"
#include "proto/mneme/v1/store.pb.h"

namespace mneme::memory {

struct WatermarkHead {
  SessionId session;
  TurnNumber turn;
  bool removed = false;  // the change was the session's deletion
};

class Watermark {
 public:
  // Reads what the last open promised. Damage of both slots counts as no promise: see found().
  static Result<Watermark> Open(const StoreFolder& folder);

  // Empty where there is none, or none that can be read.
  const std::optional<v1::WatermarkSlot>& found() const { return found_; }
  int damaged_slots() const { return damaged_slots_; }

  // From here on for a log that has made `counter` commits. Keeps the names it found where they are
  // still all that changed.
  void Continue(uint64_t counter);

  void Note(const WatermarkHead& head, uint64_t counter);

  Status Flush(const StoreId& store, uint64_t counter, const ChainHash& chain);

  uint64_t flushed_counter() const { return flushed_counter_; }
  // What the other slot promises, which counts when the newest is damaged: the log must be able to
  // prove both.
  uint64_t older_counter() const { return older_counter_; }

 private:
  explicit Watermark(SlotFile file) : file_(std::move(file)) {}

  SlotFile file_;
  std::optional<v1::WatermarkSlot> found_;
  int damaged_slots_ = 0;
  std::vector<v1::WatermarkHead> heads_;  // oldest change first, one per session
  uint64_t complete_since_ = 0;           // every session changed after this commit is in heads_
  uint64_t flushed_counter_ = 0;
  uint64_t older_counter_ = 0;
};

}  // namespace mneme::memory
