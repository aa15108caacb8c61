#include "model/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace mneme::model {
namespace {

constexpr int32_t kGone = -1;
constexpr int32_t kNone = -1;

uint64_t PairOf(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Every bit of the pair reaches the low bits, which choose the slot (the finalizer of splitmix64).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

Result<Bpe> Bpe::Make(const ByteIds& byte_ids, std::span<const BpeMerge> merges) {
  Bpe bpe;
  bpe.byte_ids_ = byte_ids;
  bpe.slots_.resize(std::bit_ceil(2 * merges.size() + 2));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    MNEME_CHECK(merge.left >= 0 && merge.right >= 0 && merge.joined >= 0, "merge {}", rank);
    const uint64_t pair = PairOf(merge.left, merge.right);
    Slot& slot = bpe.slots_[bpe.SlotOf(pair)];
    if (slot.pair == pair) {
      return Fail(ErrorCode::kInvalidArgument, "merge {} joins the same pair as merge {}", rank,
                  slot.rank);
    }
    slot = {.pair = pair, .rank = static_cast<uint32_t>(rank), .joined = merge.joined};
  }
  return bpe;
}

size_t Bpe::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t at = Mix(pair) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kNoPair) at = (at + 1) & mask;
  return at;
}

// Puts the pair whose left symbol is at `position` in line, if it has a merge.
void Bpe::Queue(Scratch& scratch, int32_t position) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<size_t>(position)];
  if (left.next == kNone) return;
  const int32_t right = scratch.symbols[static_cast<size_t>(left.next)].id;
  const Slot& slot = slots_[SlotOf(PairOf(left.id, right))];
  if (slot.pair == kNoPair) return;
  scratch.queue.push_back(uint64_t{slot.rank} << 32 | static_cast<uint32_t>(position));
}

void Bpe::Encode(std::string_view fragment, Scratch& scratch, std::vector<int32_t>& ids) const {
  MNEME_CHECK(fragment.size() < size_t{1} << 31, "a fragment of {} bytes", fragment.size());
  const auto count = static_cast<int32_t>(fragment.size());
  scratch.symbols.resize(fragment.size());
  for (int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(fragment[static_cast<size_t>(i)]);
    scratch.symbols[static_cast<size_t>(i)] = {
        .id = byte_ids_[byte], .previous = i - 1, .next = i + 1 < count ? i + 1 : kNone};
  }
  JoinSymbols(scratch, ids);
}

void Bpe::Join(std::span<const int32_t> parts, Scratch& scratch, std::vector<int32_t>& ids) const {
  MNEME_CHECK(parts.size() < size_t{1} << 31, "a fragment of {} parts", parts.size());
  const auto count = static_cast<int32_t>(parts.size());
  scratch.symbols.resize(parts.size());
  for (int32_t i = 0; i < count; ++i) {
    scratch.symbols[static_cast<size_t>(i)] = {.id = parts[static_cast<size_t>(i)],
                                               .previous = i - 1,
                                               .next = i + 1 < count ? i + 1 : kNone};
  }
  JoinSymbols(scratch, ids);
}

void Bpe::JoinSymbols(Scratch& scratch, std::vector<int32_t>& ids) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto count = static_cast<int32_t>(symbols.size());
  queue.clear();
  for (int32_t i = 0; i < count; ++i) Queue(scratch, i);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t entry = queue.back();
    queue.pop_back();
    const auto position = static_cast<int32_t>(entry & 0xFFFFFFFF);
    Scratch::Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.id == kGone || left.next == kNone) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Slot& slot = slots_[SlotOf(PairOf(left.id, right.id))];
    // A neighbour was joined since this entry was made, so it speaks of a pair that is no more.
    if (slot.pair == kNoPair || slot.rank != entry >> 32) continue;

    left.id = slot.joined;
    right.id = kGone;
    left.next = right.next;
    if (left.next != kNone) symbols[static_cast<size_t>(left.next)].previous = position;
    for (const int32_t start : {left.previous, position}) {
      if (start == kNone) continue;
      const size_t before = queue.size();
      Queue(scratch, start);
      if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  }
  for (int32_t i = count > 0 ? 0 : kNone; i != kNone; i = symbols[static_cast<size_t>(i)].next) {
    ids.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace mneme::model
