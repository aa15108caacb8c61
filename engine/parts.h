// What the engine is made of: its options, the parts that others own, and those that the classes of
// its thread share.
//
// Threads:  EngineOptions and EngineInputs any; Parts engine thread only, but for what says more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "engine/identity.h"
#include "engine/input_encoder.h"
#include "engine/session_table.h"
#include "engine/turn_log.h"
#include "memory/page_cache.h"
#include "memory/page_mover.h"
#include "memory/page_store.h"
#include "memory/store_folder.h"
#include "memory/turn_store.h"
#include "model/loaded_model.h"
#include "model/step.h"
#include "model/tokenizer.h"

namespace mneme::engine {

struct EngineOptions {
  int threads = 1;                     // of the CPU backend
  int step_ms = 50;                    // longest that a prefill slice should take
  int batch_max = 8;                   // sessions that decode together
  int running_max = 16;                // sessions that hold an open chunk
  int paused_ms_max = 5'000;           // that a reader keeps a place which others wait for
  int idle_tokens_max = 1024;          // in open chunks of sessions with nothing to compute
  uint64_t host_bytes_max = 2 * kGiB;  // page groups, index entries and KV pages in memory
  int readers = 8;                     // threads that read the page store
  uint32_t unsaved_tokens_max = 1024;  // computed and not yet safe, before prefill waits
  uint64_t tokens_per_session_max = 16'000'000;
  uint32_t generated_tokens_max = 4096;      // of one Generate
  uint32_t generated_tokens_default = 1024;  // where it does not say
  size_t queue_max = 1024;                   // requests that wait to be looked at
  std::string model_name;
  IdentityParts identity;  // hashes; theta is taken from the model
};

// What the engine works with; all of it outlives the engine.
struct EngineInputs {
  const model::LoadedModel* model = nullptr;
  const model::Tokenizer* tokenizer = nullptr;
  const kernels::KernelTable* kernels = nullptr;
  const memory::StoreFolder* folder = nullptr;
  memory::TurnStore* log = nullptr;
  memory::PageStore* pages = nullptr;
  Clock* clock = nullptr;  // null: the machine's
};

// Since the start. The step counts what it computed; these say for what.
struct EngineCounters {
  uint64_t tokens_generated = 0;
  uint64_t tokens_replayed = 0;
  uint64_t tokens_restored = 0;
  uint64_t pages_missed = 0;
  uint64_t prefill_us = 0;
  uint64_t decode_us = 0;
};

struct Parts {
  using Answered = std::function<void(Result<memory::Committed>)>;
  using Encoded = std::function<void(Result<TurnInput>)>;

  const EngineOptions& options;
  const EngineInputs& inputs;
  const memory::MemoryLayout& layout;
  const std::string& identity;
  Clock& clock;
  memory::PageCache& cache;
  memory::PageMover& mover;
  model::Step& step;
  SessionTable& sessions;
  EngineCounters counters;
  std::vector<int32_t> end_ids;  // tokens that end an answer

  // Gives the entry to the log thread; `answered` runs on the engine thread.
  std::function<void(memory::LogEntry, Answered)> commit;

  // Gives the request to the encoder's thread; `encoded` runs on the engine thread.
  std::function<void(std::shared_ptr<const Call>, model::LogEnd, Encoded)> encode;

  // Counts what may have made room: a chunk was saved, a session parked.
  uint64_t room_changes = 1;
  uint64_t uses = 0;  // order of use of sessions

  const memory::TurnStore& log() const { return *inputs.log; }
  const model::Tokenizer& tokenizer() const { return *inputs.tokenizer; }
  bool Ends(int32_t token) const {
    for (const int32_t id : end_ids)
      if (id == token) return true;
    return false;
  }
};

}  // namespace mneme::engine
