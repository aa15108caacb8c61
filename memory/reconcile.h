// Reconcile brings the stores in line at start: sessions that were opened and never written in go,
// and what was spilled for turns that were never committed, or for sessions deleted just before a
// crash, belongs to nobody and goes.
//
// Threads:  before anything else uses the stores
// Cost:     one key lookup per node in the page store
// Errors:   those of both stores
#pragma once

#include <cstdint>

#include "base/result.h"
#include "memory/page_store.h"
#include "memory/turn_store.h"

namespace mneme::memory {

struct Reconciled {
  uint64_t nodes_kept = 0;
  uint64_t nodes_removed = 0;
};

// Removes the empty sessions that were last used before that time, up to one commit's worth, and
// says how many; what they have in the page store is then an orphan.
Result<uint64_t> RemoveEmptySessions(TurnStore& log, int64_t used_before_wall_us);

Result<Reconciled> RemoveOrphans(const TurnStore& log, PageStore& pages);

}  // namespace mneme::memory
