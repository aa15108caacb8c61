#include "memory/resume.h"

#include <algorithm>

#include "base/check.h"
#include "memory/ladder.h"

namespace mneme::memory {
namespace {

// Lost or damaged: made again from the log. Anything else is tried again later.
bool IsLost(const Error& error) {
  return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kCorruption ||
         error.code() == ErrorCode::kInvalidArgument;
}

}  // namespace

Resume::Resume(const MemoryLayout& layout, PageCache& cache, const TurnStore& log, PageMover& mover,
               const NodeKey& newest)
    : layout_(layout), cache_(cache), log_(log), mover_(mover), next_(newest) {}

Result<bool> Resume::Advance(int chunks_max) {
  if (memory_ != nullptr) return true;
  if (!walked_) {
    // A node's record is a thousandth of its chunk.
    MNEME_TRY(WalkChain(chunks_max * 64));
    return false;
  }
  if (chunks_.size() < chain_.size()) {
    MNEME_TRY(ReadChunks(chunks_max));
    return false;
  }
  MNEME_TRY(ReadBoundary());
  return memory_ != nullptr;
}

std::unique_ptr<SessionMemory> Resume::Take() {
  MNEME_CHECK(memory_ != nullptr, "memory is not ready");
  return std::move(memory_);
}

Status Resume::WalkChain(int nodes_max) {
  for (int node = 0; node < nodes_max && !next_.empty(); ++node) {
    const auto record = log_.GetNode(next_);
    if (!record) {
      if (!IsLost(record.error())) return Fail(record.error());
      // What is above the missing node has no past, so none of it can be used.
      Miss(0, record.error());
      next_ = {};
      break;
    }
    chain_.push_back(next_);
    next_ = NodeKey{DigestFrom(record->parent())};
    const auto tokens = static_cast<uint64_t>(layout_.chunk_tokens());
    const bool first = record->first_position() == 0;
    if (record->tokens() != tokens || record->level() != 0 || first != next_.empty() ||
        record->first_position() % tokens != 0) {
      Miss(0, Error(ErrorCode::kCorruption, "a chunk node's span does not fit its chain"));
      next_ = {};
      break;
    }
    LookForStaleRung(*record);
  }
  if (next_.empty()) {
    walked_ = true;
    std::reverse(chain_.begin(), chain_.end());
  }
  return {};
}

void Resume::LookForStaleRung(const v1::ChunkNodeRecord& node) {
  const auto tokens = static_cast<uint64_t>(layout_.chunk_tokens());
  const auto chunk = static_cast<uint32_t>(node.first_position() / tokens);
  if (logged_chunks_ == 0) logged_chunks_ = chunk + 1;
  if (!HasLadder(layout_) || IsRung(chunk, logged_chunks_) || node.references() != 1) return;
  if (!mover_.IsThin(chain_.back())) stale_rungs_.push_back(chunk);
}

Status Resume::ReadChunks(int chunks_max) {
  cache_.BeginStep();  // what the last step used may go
  const size_t first = chunks_.size();
  const size_t last = std::min(chain_.size(), first + static_cast<size_t>(chunks_max));
  const size_t index_bytes = layout_.routed_layers.empty() ? 0 : IndexValueBytes(layout_);
  const size_t kv_bytes = layout_.attention_layers.empty() ? 0 : KvValueBytes(layout_);
  const size_t chunk_bytes = index_bytes + layout_.attention_layers.size() * kv_bytes;
  std::vector<std::byte> bytes((last - first) * chunk_bytes);
  std::vector<ValueRead> reads;
  for (size_t chunk = first; chunk < last; ++chunk) {
    MutableByteSpan rest(bytes.data() + (chunk - first) * chunk_bytes, chunk_bytes);
    if (index_bytes != 0) {
      reads.push_back({IndexKeyOf(chain_[chunk]), rest.first(index_bytes), {}});
      rest = rest.subspan(index_bytes);
    }
    for (size_t layer = 0; layer < layout_.attention_layers.size(); ++layer) {
      reads.push_back({KvKeyOf(layout_, chain_[chunk], static_cast<int>(layer)),
                       rest.subspan(layer * kv_bytes, kv_bytes),
                       {}});
    }
  }
  mover_.ReadValues(reads);
  const size_t reads_per_chunk = reads.size() / (last - first);
  for (size_t chunk = first; chunk < last; ++chunk) {
    auto made = ClosedChunk::Make(layout_, cache_, chain_[chunk].bytes,
                                  chunk * static_cast<uint64_t>(layout_.chunk_tokens()));
    MNEME_TRY(made);
    Status taken;
    for (size_t at = 0; at < reads_per_chunk && taken; ++at) {
      const ValueRead& read = reads[(chunk - first) * reads_per_chunk + at];
      taken = read.status;
      if (!taken) break;
      if (read.key.kind == ValueKind::kIndex) {
        taken = TakeIndex(layout_, read.destination, **made);
      } else {
        const size_t layer = at - (index_bytes != 0 ? 1 : 0);
        taken = TakeKv(layout_, read.destination, static_cast<int>(layer), **made);
      }
    }
    if (!taken) {
      if (!IsLost(taken.error())) return taken;
      Miss(chunk, taken.error());
      return {};
    }
    (*made)->MarkSaved();
    chunks_.push_back(std::move(*made));
  }
  return {};
}

Status Resume::ReadBoundary() {
  if (chunks_.empty()) {
    memory_ = std::make_unique<SessionMemory>(layout_, cache_);
    return {};
  }
  std::vector<std::byte> bytes(BoundaryValueBytes(layout_));
  ValueRead read = {BoundaryKeyOf(chain_.back()), bytes, {}};
  mover_.ReadValues({&read, 1});
  if (read.status) {
    const auto boundary = TakeBoundary(layout_, bytes);
    if (boundary) {
      report_.restored_tokens = chunks_.size() * static_cast<uint64_t>(layout_.chunk_tokens());
      memory_ = std::make_unique<SessionMemory>(layout_, cache_, std::move(chunks_), *boundary);
      return {};
    }
    read.status = Fail(boundary.error());
  }
  if (!IsLost(read.status.error())) return read.status;
  Miss(chain_.size() - 1, read.status.error());
  chunks_.pop_back();
  return {};
}

void Resume::Miss(size_t first, const Error& error) {
  report_.chunks_missed += static_cast<uint32_t>(std::max(chain_.size() - first, size_t{1}));
  if (report_.miss_reason.empty()) report_.miss_reason = error.message();
  chain_.resize(first);
}

}  // namespace mneme::memory
