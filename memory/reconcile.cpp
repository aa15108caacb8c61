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

}  // namespace

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
