#include "memory/watermark.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file_error.h"

namespace mneme::memory {
namespace {

constexpr uint32_t kWatermarkKind = 2;
constexpr uint32_t kWatermarkFormat = 1;
// At most 35 bytes each in Protobuf, so that all of them fit into a slot.
constexpr size_t kHeadsMax = 100;

}  // namespace

Result<Watermark> Watermark::Open(const StoreFolder& folder) {
  auto file = SlotFile::Open(folder.descriptor(), "watermark", kWatermarkKind);
  if (!file && file.error().code() == ErrorCode::kCorruption) {
    // Put aside, so that the next promise can be made; the log will be reported as unproven.
    if (::renameat(folder.descriptor().number(), "watermark", folder.descriptor().number(),
                   "watermark.damaged") != 0)
      return Fail(ErrorCode::kUnavailable, "damaged watermark {}",
                  FileErrorText(folder.path() + "/watermark", "put aside", errno));
    file = SlotFile::Open(folder.descriptor(), "watermark", kWatermarkKind);
    MNEME_TRY(file);
    Watermark watermark(std::move(*file));
    watermark.damaged_slots_ = 2;
    return watermark;
  }
  MNEME_TRY(file);
  Watermark watermark(std::move(*file));
  watermark.damaged_slots_ = watermark.file_.damaged_slots();
  if (const auto& payload = watermark.file_.payload()) {
    v1::WatermarkSlot slot;
    if (!slot.ParseFromString(*payload))
      return Fail(ErrorCode::kCorruption,
                  "{}: its record cannot be read; restore the whole store folder from a copy",
                  watermark.file_.path());
    if (slot.format() > kWatermarkFormat)
      return Fail(ErrorCode::kUnavailable,
                  "{}: format {}, this server reads up to {}; serve it with the one that wrote it",
                  watermark.file_.path(), slot.format(), kWatermarkFormat);
    watermark.found_ = std::move(slot);
  }
  return watermark;
}

void Watermark::Continue(uint64_t counter) {
  if (found_ && found_->commit_counter() == counter) {
    heads_.assign(found_->heads().begin(), found_->heads().end());
    complete_since_ = found_->complete_since();
  } else {
    complete_since_ = counter;
  }
}

void Watermark::Note(const WatermarkHead& head, uint64_t counter) {
  std::erase_if(heads_, [&](const auto& old) { return old.session_id() == head.session.value; });
  if (heads_.size() == kHeadsMax) {
    complete_since_ = std::max(complete_since_, heads_.front().commit_counter());
    heads_.erase(heads_.begin());
  }
  v1::WatermarkHead& noted = heads_.emplace_back();
  noted.set_session_id(head.session.value);
  noted.set_turn(head.turn.value);
  noted.set_commit_counter(counter);
  noted.set_removed(head.removed);
}

Status Watermark::Flush(const StoreId& store, uint64_t counter, const ChainHash& chain) {
  v1::WatermarkSlot slot;
  slot.set_format(kWatermarkFormat);
  slot.set_store_id(store.bytes.data(), store.bytes.size());
  slot.set_commit_counter(counter);
  slot.set_chain_hash(std::string(TextOf(chain.bytes)));
  slot.set_complete_since(complete_since_);
  for (const auto& head : heads_) *slot.add_heads() = head;
  MNEME_TRY(file_.Write(slot.SerializeAsString()));
  older_counter_ = flushed_counter_;
  flushed_counter_ = counter;
  return {};
}

}  // namespace mneme::memory
