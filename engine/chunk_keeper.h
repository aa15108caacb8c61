// ChunkKeeper sees to it that what a session computes lasts: it seals full chunks, has them
// written, tells the log of those whose tokens are committed, and takes back what turned out not to
// count or not to be there.
//
// Order:    a node enters the log after its values are in the page store and its tokens in the log.
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/parts.h"

namespace mneme::engine {

class ChunkKeeper {
 public:
  explicit ChunkKeeper(Parts& parts) : parts_(parts) {}

  // Seals the session's full open chunk and orders it to be saved.
  // Errors: kResourceExhausted  no room just now; nothing changed
  //         kNotFound, kCorruption  a group it needed is lost: LoseChunks
  Status Seal(Session& session);

  void OnSaved(const memory::SaveReceipt& receipt);

  // Tells the log of chunks that are saved and committed, or will be by the turn that is ordered
  // just before and ends at `position`.
  void AddNodes(Session& session, uint64_t position);
  void AddNodes(Session& session) { AddNodes(session, session.head.position()); }

  // Forgets the chunks past the head: a Generate was cancelled.
  void DropUncommitted(Session& session);

  // A group of the session's could not be read: memory goes back to before its chunk. The session
  // is resumed once the log knows.
  void LoseChunks(Session& session, const memory::GroupMiss& miss);

  // After a resume that found less than the log knew: the log moves back to what memory holds.
  void MoveBack(Session& session);

  // After a resume: what it found kept that no start needs.
  void Thin(Session& session, std::span<const uint32_t> rungs);

  // Of a deleted session.
  void DropAll(Session& session);
  void DeleteFreed(const std::vector<memory::NodeKey>& freed);

  // Tokens of the session in chunks that a crash now would lose.
  uint64_t UnsavedTokens(const Session& session) const;
  uint64_t saves_in_flight() const { return pinned_.size(); }

 private:
  struct Pinned {
    std::shared_ptr<memory::ClosedChunk> chunk;
    SessionId session;
  };

  void Order(Session& session, const std::shared_ptr<memory::ClosedChunk>& chunk, uint64_t ticket);
  void OnNodeAdded(SessionId id, const memory::NodeKey& key, Result<memory::Committed> result);
  void MoveTo(Session& session, const memory::NodeKey& node);
  // Of the session's first `chunks`, which the log knows: these are no rungs any more.
  void Thin(Session& session, uint32_t chunks, std::span<const uint32_t> rungs);
  // Removes waiting nodes that the log does not know from index `first` on, and their values.
  void DropNodes(Session& session, size_t first);
  void Unuse(const memory::NodeKey& key);

  Parts& parts_;
  std::unordered_map<uint64_t, Pinned> pinned_;  // by ticket, until the receipt
  // How many sessions wait with this node: its values must not be deleted.
  std::unordered_map<memory::NodeKey, int> in_use_;
  uint64_t next_ticket_ = 1;
};

}  // namespace mneme::engine
