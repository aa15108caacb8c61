#include "engine/chunk_keeper.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "memory/ladder.h"

namespace mneme::engine {

using memory::NodeKey;

Status ChunkKeeper::Seal(Session& session) {
  memory::SessionMemory& memory = *session.memory;
  const auto tokens = static_cast<uint64_t>(memory.chunk_tokens());
  const auto ids = session.Collect(memory.position() - tokens, tokens);
  MNEME_TRY(ids);
  NodeKey parent;
  if (memory.chunk_count() > 0)
    parent = memory::NodeKeyFrom(memory.chunk(memory.chunk_count() - 1).key());
  const NodeKey key = memory::NodeKeyOf(AsBytes(parts_.identity), "", parent, *ids);
  const auto sealed = memory.Seal(key.bytes, parts_.step.sealing());
  MNEME_TRY(sealed);
  const uint64_t ticket = next_ticket_++;
  Order(session, *sealed, ticket);
  session.nodes.push_back({.key = key,
                           .ticket = ticket,
                           .end_position = memory.position(),
                           .record = memory::NodeRecordOf(parts_.layout, **sealed, parent)});
  ++in_use_[key];
  MNEME_LOG(kDebug, "sealed", "session={} chunk={} node={}", session.id.value,
            memory.chunk_count() - 1, memory::ShortHex(key.bytes));
  return {};
}

void ChunkKeeper::Order(Session& session, const std::shared_ptr<memory::ClosedChunk>& chunk,
                        uint64_t ticket) {
  const memory::MemoryLayout& layout = parts_.layout;
  memory::SaveOrder order = {
      .ticket = ticket, .node = memory::NodeKeyFrom(chunk->key()), .groups = {}, .values = {}};
  for (int group = 0; group < chunk->groups(); ++group) {
    order.groups.emplace_back(memory::GroupKeyOf(layout, *chunk, group),
                              ByteSpan(chunk->group(group), layout.group_bytes()));
  }
  if (!layout.routed_layers.empty()) order.values.push_back(memory::IndexValue(layout, *chunk));
  for (size_t layer = 0; layer < layout.attention_layers.size(); ++layer)
    order.values.push_back(memory::KvValue(layout, *chunk, static_cast<int>(layer)));
  order.values.push_back(memory::BoundaryValue(layout, *chunk, session.memory->boundary()));
  pinned_.emplace(ticket, Pinned{.chunk = chunk, .session = session.id});
  parts_.mover.Save(std::move(order));
}

void ChunkKeeper::OnSaved(const memory::SaveReceipt& receipt) {
  const auto pinned = pinned_.find(receipt.ticket);
  MNEME_CHECK(pinned != pinned_.end(), "ticket {}", receipt.ticket);
  if (receipt.status) pinned->second.chunk->MarkSaved();
  Session* session = parts_.sessions.Get(pinned->second.session);
  pinned_.erase(pinned);
  ++parts_.room_changes;
  if (!receipt.status) {
    if (receipt.status.error().code() != ErrorCode::kCancelled) {
      MNEME_LOG(kError, "chunk_not_saved", "node={} error=\"{}\"",
                memory::ShortHex(receipt.node.bytes), receipt.status.error().message());
      // Nothing after it can be added either; the next resume computes it again.
      if (session != nullptr) {
        session->chain_broken = true;
        for (const NodeWaiting& one : session->nodes) Unuse(one.key);
        session->nodes.clear();
      }
    }
    return;
  }
  if (session == nullptr) return;
  for (NodeWaiting& node : session->nodes) {
    if (node.ticket == receipt.ticket) node.saved = true;
  }
  AddNodes(*session);
}

void ChunkKeeper::AddNodes(Session& session, uint64_t position) {
  if (session.chain_broken || session.moving_back) return;
  for (NodeWaiting& node : session.nodes) {
    if (node.ordered) continue;
    if (!node.saved || node.end_position > position) return;
    node.ordered = true;
    parts_.commit(memory::AddNode{.session = session.id, .node = node.record},
                  [this, id = session.id, key = node.key](Result<memory::Committed> result) {
                    OnNodeAdded(id, key, std::move(result));
                  });
  }
}

void ChunkKeeper::OnNodeAdded(SessionId id, const NodeKey& key, Result<memory::Committed> result) {
  if (result) DeleteFreed(result->freed);
  Session* session = parts_.sessions.Get(id);
  if (session == nullptr) return;
  const auto node = std::find_if(session->nodes.begin(), session->nodes.end(),
                                 [&key](const NodeWaiting& one) { return one.key == key; });
  if (node == session->nodes.end()) return;
  if (result || session->moving_back) {
    const uint64_t end = node->end_position;
    Unuse(key);
    session->nodes.erase(node);
    if (result && !session->moving_back && session->memory != nullptr) {
      const auto chunks =
          static_cast<uint32_t>(end / static_cast<uint64_t>(parts_.layout.chunk_tokens()));
      Thin(*session, chunks, memory::RungsDroppedAt(chunks));
    }
    return;
  }
  if (node->end_position > session->head.position()) {  // its turn was refused
    Unuse(key);
    session->nodes.erase(node);
    return DeleteFreed({key});
  }
  if (result.error().reason() == Reason::kStoreFull) {
    node->ordered = false;  // tried again with the next chunk or turn
    return;
  }
  // Without this node none after it can be added; the next resume computes their tokens again.
  MNEME_LOG(kWarning, "node_refused", "session={} node={} error=\"{}\"", id.value,
            memory::ShortHex(key.bytes), result.error().message());
  session->chain_broken = true;
  for (const NodeWaiting& one : session->nodes) Unuse(one.key);
  session->nodes.clear();
}

void ChunkKeeper::Thin(Session& session, std::span<const uint32_t> rungs) {
  // In parts, so that a store from before there was a ladder is not taken on at once.
  constexpr size_t kRungsAtOnce = 64;
  for (; !rungs.empty(); rungs = rungs.subspan(std::min(kRungsAtOnce, rungs.size())))
    Thin(session, session.memory->chunk_count(), rungs.first(std::min(kRungsAtOnce, rungs.size())));
}

void ChunkKeeper::Thin(Session& session, uint32_t chunks, std::span<const uint32_t> rungs) {
  if (rungs.empty() || !memory::HasLadder(parts_.layout)) return;
  const memory::SessionMemory& memory = *session.memory;
  const memory::Chain chain = {
      .chunks = chunks,
      .key = [&](uint32_t chunk) { return memory::NodeKeyFrom(memory.chunk(chunk).key()); },
      .shared =
          [&](uint32_t chunk) {
            const NodeKey key = memory::NodeKeyFrom(memory.chunk(chunk).key());
            const auto node = parts_.log().GetNode(key);
            return in_use_.contains(key) || !node || node->references() != 1;
          }};
  parts_.mover.Thin(memory::ThinnedBy(parts_.layout, chain, rungs));
}

void ChunkKeeper::DropUncommitted(Session& session) {
  size_t first = 0;
  while (first < session.nodes.size() &&
         session.nodes[first].end_position <= session.head.position())
    ++first;
  DropNodes(session, first);
}

void ChunkKeeper::DropNodes(Session& session, size_t first) {
  std::vector<NodeKey> orphans;
  for (size_t index = first; index < session.nodes.size();) {
    const NodeWaiting& node = session.nodes[index];
    if (node.ordered) {  // its answer comes before that of anything ordered from now on
      ++index;
      continue;
    }
    orphans.push_back(node.key);
    Unuse(node.key);
    session.nodes.erase(session.nodes.begin() + static_cast<ptrdiff_t>(index));
  }
  DeleteFreed(orphans);
}

void ChunkKeeper::DeleteFreed(const std::vector<NodeKey>& freed) {
  std::vector<NodeKey> gone;
  for (const NodeKey& key : freed) {
    if (in_use_.contains(key)) continue;
    const auto logged = parts_.log().HasNode(key);
    if (logged && !*logged) gone.push_back(key);
  }
  parts_.mover.Delete(std::move(gone));
}

void ChunkKeeper::LoseChunks(Session& session, const memory::GroupMiss& miss) {
  const auto tokens = static_cast<uint64_t>(parts_.layout.chunk_tokens());
  const auto lost = static_cast<uint32_t>(miss.first_position / tokens);
  ++parts_.counters.pages_missed;
  ++session.counters.pages_missed;
  session.parts.miss_reason = miss.error.message();
  MNEME_LOG(kWarning, "pages_missed", "session={} chunk={} of={} error=\"{}\"", session.id.value,
            lost, session.memory->chunk_count(), miss.error.message());
  NodeKey before;
  if (lost > 0) before = memory::NodeKeyFrom(session.memory->chunk(lost - 1).key());
  // The log is told only if it knows, or will know, of the chunk that was lost.
  bool known = false;
  for (const NodeWaiting& node : session.nodes)
    known = known || (node.ordered && node.end_position > miss.first_position);
  const auto stored = parts_.log().GetSession(session.id);
  if (stored && !stored->head.newest_node().empty()) {
    const auto newest =
        parts_.log().GetNode(NodeKey{memory::DigestFrom(stored->head.newest_node())});
    known = known || !newest || newest->first_position() >= miss.first_position;
  }
  session.memory.reset();
  session.at_head.reset();
  DropNodes(session, 0);
  session.phase = Phase::kMovingBack;
  session.moving_back = true;
  ++parts_.room_changes;
  if (known) {
    MoveTo(session, before);
  } else {
    session.moving_back = false;
  }
}

void ChunkKeeper::MoveBack(Session& session) {
  NodeKey newest;
  const uint32_t count = session.memory->chunk_count();
  if (count > 0) newest = memory::NodeKeyFrom(session.memory->chunk(count - 1).key());
  session.phase = Phase::kMovingBack;
  session.moving_back = true;
  MoveTo(session, newest);
}

void ChunkKeeper::MoveTo(Session& session, const NodeKey& node) {
  parts_.commit(memory::MoveToNode{.session = session.id, .node = node},
                [this, id = session.id](Result<memory::Committed> result) {
                  if (result) DeleteFreed(result->freed);
                  Session* moved = parts_.sessions.Get(id);
                  if (moved == nullptr) return;
                  if (!result) {
                    MNEME_LOG(kWarning, "not_moved_back", "session={} error=\"{}\"", id.value,
                              result.error().message());
                    moved->chain_broken = true;
                  }
                  moved->moving_back = false;
                });
}

void ChunkKeeper::DropAll(Session& session) { DropNodes(session, 0); }

uint64_t ChunkKeeper::UnsavedTokens(const Session& session) const {
  uint64_t nodes = 0;
  for (const NodeWaiting& node : session.nodes) {
    if (!node.saved || node.end_position <= session.head.position()) ++nodes;
  }
  return nodes * static_cast<uint64_t>(parts_.layout.chunk_tokens());
}

void ChunkKeeper::Unuse(const NodeKey& key) {
  const auto used = in_use_.find(key);
  if (used != in_use_.end() && --used->second == 0) in_use_.erase(used);
}

}  // namespace mneme::engine
