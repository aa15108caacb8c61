// Resume makes a running session's memory again from what the log and the page store hold: the
// chain of chunk nodes back from the newest, their index entries and KV pages, and the boundary
// record at the end. Page groups stay on disk until a query chooses them.
//
// It goes in steps of a few chunks, so that other sessions decode in between. What is lost or
// damaged shortens the chain: memory then ends at the last chunk that is whole, and the rest is to
// be computed again from the log.
//
// Threads:  engine thread only.
// Errors:   kResourceExhausted  index entries and KV pages do not fit under the cap just now
//           kUnavailable        a store cannot be read just now
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory/page_mover.h"
#include "memory/session_memory.h"
#include "memory/turn_store.h"

namespace mneme::memory {

struct ResumeReport {
  uint64_t restored_tokens = 0;
  uint32_t chunks_missed = 0;  // nodes in the log that could not be used
  std::string miss_reason;     // empty where nothing was missed
};

class Resume {
 public:
  // `newest` empty: the session has no node.
  Resume(const MemoryLayout& layout, PageCache& cache, const TurnStore& log, PageMover& mover,
         const NodeKey& newest);

  // Reads about `chunks_max` chunks more; true when memory is ready to be taken.
  Result<bool> Advance(int chunks_max);

  // Once, after Advance gave true.
  std::unique_ptr<SessionMemory> Take();

  const ResumeReport& report() const { return report_; }

  // Chunks that are no rungs (memory/ladder.h) and were not thinned: a kill came before that.
  const std::vector<uint32_t>& stale_rungs() const { return stale_rungs_; }

 private:
  Status WalkChain(int nodes_max);
  void LookForStaleRung(const v1::ChunkNodeRecord& node);
  Status ReadChunks(int chunks_max);
  Status ReadBoundary();
  // Chunks from index `first` on cannot be used.
  void Miss(size_t first, const Error& error);

  const MemoryLayout& layout_;
  PageCache& cache_;
  const TurnStore& log_;
  PageMover& mover_;

  NodeKey next_;         // of the chain still to be walked; empty: at its root
  bool walked_ = false;  // chain_ is whole, oldest first
  std::vector<NodeKey> chain_;
  uint32_t logged_chunks_ = 0;
  std::vector<uint32_t> stale_rungs_;
  std::vector<std::shared_ptr<ClosedChunk>> chunks_;
  std::unique_ptr<SessionMemory> memory_;
  ResumeReport report_;
};

}  // namespace mneme::memory
