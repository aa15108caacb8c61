// Bpe joins the bytes or characters of one fragment of text into tokens, by a ranked list of
// merges: of all neighbouring pairs that have a merge, the one of the lowest rank is joined, the
// leftmost first, until none is left.
//
// Threads:  const after Make; the scratch belongs to one caller.
// Cost:     n log n for a fragment of n bytes, and about 36 bytes of scratch per byte.
// Errors:   kInvalidArgument  Make: a pair is listed twice
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace mneme::model {

// One merge; its index in the list is its rank.
struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t joined = 0;
};

class Bpe {
 public:
  // The token of each byte alone.
  using ByteIds = std::array<int32_t, 256>;

  // What a fragment needs while it is encoded, kept between fragments to spare allocations.
  struct Scratch {
    struct Symbol {
      int32_t id = 0;  // kGone once joined to its left neighbour
      int32_t previous = 0;
      int32_t next = 0;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // a heap of (rank, position of the left symbol)
  };

  static Result<Bpe> Make(const ByteIds& byte_ids, std::span<const BpeMerge> merges);

  // Appends the tokens of `fragment`, which has fewer than 2^31 bytes.
  void Encode(std::string_view fragment, Scratch& scratch, std::vector<int32_t>& ids) const;

  // The same of a fragment that was made into tokens already, one for each of its parts.
  void Join(std::span<const int32_t> parts, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t joined = 0;
  };

  static constexpr uint64_t kNoPair = ~uint64_t{0};  // ids are not negative, so no pair is this

  Bpe() = default;

  // The slot of `pair`, or the free one where it would go.
  size_t SlotOf(uint64_t pair) const;
  void Queue(Scratch& scratch, int32_t position) const;
  // Joins scratch.symbols, each linked to its neighbours.
  void JoinSymbols(Scratch& scratch, std::vector<int32_t>& ids) const;

  ByteIds byte_ids_{};
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace mneme::model
