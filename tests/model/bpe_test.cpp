// Bpe against the definition: look at all neighbouring pairs, join the one of the lowest rank, the
// leftmost first, start over. Quadratic and obvious; it lives only here.
#include "model/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>

namespace mneme::model {
namespace {

Bpe::ByteIds BytesAsIds() {
  Bpe::ByteIds ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) ids[byte] = static_cast<int32_t>(byte);
  return ids;
}

std::vector<int32_t> Define(std::string_view fragment, std::span<const BpeMerge> merges) {
  std::vector<int32_t> ids;
  for (const char byte : fragment) ids.push_back(static_cast<unsigned char>(byte));
  for (;;) {
    size_t best_rank = merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best_at = i;
        }
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].joined;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// Random tables, in any order: a merge may come before those that make its parts, which no trained
// table does.
std::vector<BpeMerge> RandomMerges(std::mt19937& random, size_t count) {
  std::vector<std::string> texts = {"a", "b", "c"};
  std::vector<int32_t> ids = {'a', 'b', 'c'};
  std::map<std::string, int32_t> id_of = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
  std::map<std::pair<int32_t, int32_t>, bool> listed;
  std::vector<BpeMerge> merges;
  while (merges.size() < count) {
    const size_t left = random() % texts.size();
    const size_t right = random() % texts.size();
    if (std::exchange(listed[{ids[left], ids[right]}], true)) continue;
    const std::string joined = texts[left] + texts[right];
    const auto [place, fresh] = id_of.emplace(joined, 256 + static_cast<int32_t>(id_of.size()));
    if (fresh) {
      texts.push_back(joined);
      ids.push_back(place->second);
    }
    merges.push_back({ids[left], ids[right], place->second});
  }
  std::shuffle(merges.begin(), merges.end(), random);
  return merges;
}

TEST(BpeTest, EqualsTheDefinition) {
  std::mt19937 random(3);
  Bpe::Scratch scratch;
  for (int round = 0; round < 300; ++round) {
    const auto merges = RandomMerges(random, 1 + random() % 30);
    const auto bpe = Bpe::Make(BytesAsIds(), merges);
    ASSERT_TRUE(bpe);
    for (int i = 0; i < 10; ++i) {
      std::string fragment(random() % 60, ' ');
      for (char& letter : fragment) letter = static_cast<char>('a' + random() % 3);
      std::vector<int32_t> ids;
      bpe->Encode(fragment, scratch, ids);
      ASSERT_EQ(ids, Define(fragment, merges)) << fragment;
    }
  }
}

TEST(BpeTest, AppendsToWhatIsThere) {
  const auto bpe = Bpe::Make(BytesAsIds(), {});
  ASSERT_TRUE(bpe);
  Bpe::Scratch scratch;
  std::vector<int32_t> ids = {7};
  bpe->Encode("", scratch, ids);
  bpe->Encode("\xFFz", scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{7, 255, 'z'}));
}

TEST(BpeTest, RefusesAPairListedTwice) {
  const std::vector<BpeMerge> merges = {{1, 2, 256}, {2, 1, 257}, {1, 2, 258}};
  const auto bpe = Bpe::Make(BytesAsIds(), merges);
  ASSERT_FALSE(bpe);
  EXPECT_EQ(bpe.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(bpe.error().message(), "merge 2 joins the same pair as merge 0");
}

}  // namespace
}  // namespace mneme::model
