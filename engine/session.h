// Session is a name, a head in the log, and, while it runs, a memory.
//
//   parked --(something to compute, or Open)--> queued --(a slot)--> resuming --> running
//     ^                                                                  |         |   ^
//     |                                                    moving back <-+---------+   |
//     +------------------(its slot is needed, or Close)------------------ idle <-------+
//
//   parked       no memory; everything is in the stores
//   queued       waits for one of the slots for running sessions
//   resuming     its memory is being read
//   moving back  part of its memory was lost; the log learns where it ends now
//   running      memory, and something to compute
//   idle         memory, and nothing to compute
//   closed       deleted
//
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "engine/logged_tokens.h"
#include "engine/writing.h"
#include "memory/resume.h"
#include "memory/session_memory.h"
#include "memory/turn_store.h"
#include "model/step.h"

namespace mneme::engine {

enum class Phase : uint8_t {
  kParked,
  kQueued,
  kResuming,
  kMovingBack,
  kRunning,
  kIdle,
  kClosed,
};
std::string_view NameOf(Phase phase);

// A sealed chunk on its way into the log as a node.
struct NodeWaiting {
  memory::NodeKey key;
  uint64_t ticket = 0;        // of its save
  uint64_t end_position = 0;  // first position after it
  v1::ChunkNodeRecord record;
  bool saved = false;
  bool ordered = false;  // the log thread has it
};

// What the memory is made of, since it was last told with a finished write.
struct MemoryParts {
  uint64_t restored = 0;
  uint64_t replayed = 0;
  uint64_t fresh = 0;
  uint64_t pages_from_disk = 0;
  double restore_ms = 0;
  bool from_disk = false;  // restored from the page store
  std::string miss_reason;
};

// Since the server started.
struct SessionCounters {
  uint64_t tokens_computed = 0;
  uint64_t tokens_generated = 0;
  uint64_t tokens_replayed = 0;
  uint64_t tokens_restored = 0;
  uint64_t page_reads = 0;
  uint64_t pages_missed = 0;
};

struct Session {
  Session(const memory::TurnStore& store, const memory::StoredSession& stored);

  const SessionId id;
  const std::string name;
  const int64_t created_us;
  v1::HeadRecord head;
  Phase phase = Phase::kParked;
  std::unique_ptr<Writing> writing;

  std::unique_ptr<memory::Resume> resume;  // while resuming
  int64_t resume_began_us = 0;
  std::unique_ptr<memory::SessionMemory> memory;   // running and idle
  std::unique_ptr<memory::SessionMemory> at_head;  // as it was before tokens no turn holds yet
  std::deque<NodeWaiting> nodes;                   // in order of position
  bool moving_back = false;   // the log is being told, or about to be, where memory ends
  bool chain_broken = false;  // a node was refused: no more until the next resume
  bool close_wanted = false;
  LoggedTokens logged;

  uint64_t computed_once = 0;    // tokens before it were computed before, so again is replay
  uint64_t used_at = 0;          // order of use
  uint64_t blocked_until = 0;    // number of changes of room seen before it is tried again
  int64_t blocked_until_us = 0;  // or this moment
  bool alone = false;            // its next decode row runs without neighbours
  bool small_slices = false;     // the cap has no room for what a long slice reads
  int read_retries = 0;          // of a store that cannot be read just now
  // What the last prompt token read, for explaining the first drawn token.
  std::vector<model::ChunkShare> last_shares;
  std::unordered_map<const memory::ClosedChunk*, uint32_t> last_reads;
  MemoryParts parts;
  SessionCounters counters;

  // Tokens that are known: logged ones, then those of a Generate in flight.
  uint64_t tokens_known() const {
    return head.position() + (computes_uncommitted() ? writing->tokens() : 0);
  }
  bool computes_uncommitted() const {
    return writing != nullptr && writing->kind == WriteKind::kGenerate;
  }
  bool generating() const {
    return computes_uncommitted() && writing->stage == WriteStage::kComputing;
  }
  // The reader of its answer keeps it from going on.
  bool paused() const {
    return generating() && position() >= head.position() && writing->call->paused();
  }
  // Somebody waits until tokens are computed.
  bool awaited() const {
    return writing != nullptr && (generating() || writing->stage == WriteStage::kCommitted);
  }
  uint64_t position() const { return memory == nullptr ? 0 : memory->position(); }
  bool has_memory() const { return phase == Phase::kRunning || phase == Phase::kIdle; }

  // The run of tokens at `position`, which lies before tokens_known().
  Result<TokenRun> RunAt(uint64_t position);
  // Ids of `count` tokens from `first` on.
  Result<std::vector<int32_t>> Collect(uint64_t first, uint64_t count);
  // Whether there is something to compute that should not wait for the next write: a lone last
  // token of an answer waits.
  Result<bool> HasWork();
};

}  // namespace mneme::engine
