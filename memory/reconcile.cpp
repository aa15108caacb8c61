#include "memory/reconcile.h"

#include <vector>

namespace mneme::memory {
namespace {

Result<bool> BelongsToSomebody(const TurnStore& log, const NodeKey& key) {
  const SessionId session = TailSessionOf(key);
  if (session.value == 0) return log.HasNode(key);
  const auto found = log.GetSession(session);
  if (found) return true;
  if (found.error().code() == ErrorCode::kNotFound) return false;
  return Fail(found.error());
}

// A start waits for one commit of these at most.
constexpr size_t kRemovedAtOnceMax = 4096;

}  // namespace

Result<uint64_t> RemoveEmptySessions(TurnStore& log, int64_t used_before_wall_us) {
  std::vector<LogEntry> entries;
  for (const StoredSession& session : log.ListEmptySessions()) {
    if (entries.size() == kRemovedAtOnceMax) break;
    if (static_cast<int64_t>(session.head.last_used_wall_us()) < used_before_wall_us)
      entries.emplace_back(DeleteSession{.session = {session.record.id()}});
  }
  for (const auto& removed : log.Commit(entries)) MNEME_TRY(removed);
  return uint64_t{entries.size()};
}

Result<Reconciled> RemoveOrphans(const TurnStore& log, PageStore& pages) {
  const auto nodes = pages.List();
  MNEME_TRY(nodes);
  std::vector<NodeKey> orphans;
  for (const NodeKey& node : *nodes) {
    const auto kept = BelongsToSomebody(log, node);
    MNEME_TRY(kept);
    if (!*kept) orphans.push_back(node);
  }
  if (!orphans.empty()) MNEME_TRY(pages.Delete(orphans));
  return Reconciled{.nodes_kept = nodes->size() - orphans.size(), .nodes_removed = orphans.size()};
}

}  // namespace mneme::memory
