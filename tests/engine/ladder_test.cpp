// The ladder through the engine: a long history keeps on disk what starts need at its rungs and no
// more, goes on after kills within the replay bound, and when its newest chunks are lost falls to
// the next rung, each time with the answers of an engine that was never disturbed.
#include "memory/ladder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "memory/chunk_value.h"
#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using memory::NodeKey;
using support::Answer;
using support::EngineCase;
using support::RandomIds;

constexpr size_t kTokens = 41 * 256 + 100;
constexpr size_t kLargestValueBytes = 256 * kKiB;
constexpr const char* kModel = "tests/golden/models/routed";

// The session's nodes, oldest first.
std::vector<NodeKey> ChainOf(EngineCase& engine, const std::string& session) {
  std::vector<NodeKey> chain;
  const auto stored = engine.stores().log->FindSession("", session);
  NodeKey key{memory::DigestFrom(stored->head.newest_node())};
  while (!key.empty()) {
    chain.insert(chain.begin(), key);
    key.bytes = memory::DigestFrom(engine.stores().log->GetNode(key)->parent());
  }
  return chain;
}

bool Stored(EngineCase& engine, const memory::PageKey& key) {
  std::vector<std::byte> bytes(kLargestValueBytes);
  return bool{engine.stores().pages->Read(key, bytes)};
}

// Chunks of the chain that a start finds whole.
std::vector<uint32_t> StartsOf(EngineCase& engine, const std::vector<NodeKey>& chain) {
  const memory::MemoryLayout& layout = engine.model().layout();
  std::vector<uint32_t> starts;
  for (size_t chunk = chain.size(); chunk-- > 0;) {
    const bool boundary = Stored(engine, memory::BoundaryKeyOf(chain[chunk]));
    for (const int paged : layout.closed_layers)  // each reads one recent chunk
      for (int head = 0; head < layout.linear.key_heads; ++head)
        EXPECT_EQ(Stored(engine, memory::GroupKeyOf(layout, chain[chunk],
                                                    paged * layout.linear.key_heads + head)),
                  boundary)
            << chunk;
    if (boundary) starts.push_back(static_cast<uint32_t>(chunk));
  }
  return starts;
}

void WaitUntilThinned(EngineCase& engine, const std::vector<NodeKey>& chain, size_t starts) {
  const auto count = [&] {
    size_t thick = 0;
    for (const NodeKey& node : chain) thick += *engine.stores().pages->IsThin(node) ? 0 : 1;
    return thick;
  };
  for (int i = 0; i < 2000 && count() > starts; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

uint64_t BytesStored(EngineCase& engine, const std::vector<NodeKey>& chain) {
  const memory::MemoryLayout& layout = engine.model().layout();
  std::vector<std::byte> bytes(kLargestValueBytes);
  uint64_t sum = 0;
  const auto add = [&](const memory::PageKey& key) {
    const auto read = engine.stores().pages->Read(key, bytes);
    if (read) sum += *read;
  };
  for (const NodeKey& node : chain) {
    for (int group = 0; group < layout.groups_per_chunk(); ++group)
      add(memory::GroupKeyOf(layout, node, group));
    add(memory::IndexKeyOf(node));
    add(memory::BoundaryKeyOf(node));
  }
  return sum;
}

class LadderEngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Start(EngineCase& engine, size_t tokens = kTokens) {
    engine.Start();
    engine.Open("a");
    ASSERT_FALSE(engine.Append("a", RandomIds(tokens, 1)).failed());
    ASSERT_TRUE(support::WaitForChunks(engine, "a", tokens / 256));
  }
};

TEST_P(LadderEngineTest, ALongHistoryKeepsItsRungsAndNoMore) {
  EngineCase engine(kModel, GetParam());
  ASSERT_NO_FATAL_FAILURE(Start(engine));
  engine.Restart(StopMode::kFinish);
  const std::vector<NodeKey> chain = ChainOf(engine, "a");
  ASSERT_EQ(chain.size(), 41u);
  EXPECT_EQ(StartsOf(engine, chain), memory::RungsOf(41));
  const uint64_t stored = BytesStored(engine, chain);
  EXPECT_EQ(engine.Stats("a").bytes().disk_bytes(), stored);
  EXPECT_EQ(engine.Stats().bytes().disk_bytes(), stored);
  EXPECT_EQ(engine.Open("a").last().opened().memory().restored_tokens(), 41u * 256);
}

TEST_P(LadderEngineTest, KillsReplayWithinTheBoundAndChangeNoAnswer) {
  EngineCase undisturbed(kModel, GetParam());
  EngineCase engine(kModel, GetParam());
  undisturbed.Start();
  engine.Start();
  undisturbed.Open("a");
  engine.Open("a");
  std::mt19937_64 random(3);
  uint64_t position = 0;
  for (uint64_t turn = 0; turn < 14; ++turn) {
    const auto ids = RandomIds(200 + random() % 1200, turn);
    const Answer expected = undisturbed.Generate("a", ids, 4);
    ASSERT_EQ(engine.Generate("a", ids, 4).tokens(), expected.tokens()) << turn;
    position = expected.done().receipt().head().position();
    engine.Restart(StopMode::kAtOnce);
    const auto memory = engine.Open("a").last().opened().memory();
    EXPECT_EQ(memory.miss_reason(), "") << turn;
    EXPECT_GE(memory.restored_tokens() + 255 + engine.options.unsaved_tokens_max, position) << turn;
  }
  EXPECT_GT(position, 5000u);
}

TEST_P(LadderEngineTest, LostChunksCostAReplayFromTheNextRung) {
  EngineCase undisturbed(kModel, GetParam());
  ASSERT_NO_FATAL_FAILURE(Start(undisturbed));
  const Answer expected = undisturbed.Generate("a", RandomIds(20, 2), 6);
  for (const auto& [lost, restored] :
       {std::pair(1u, 40u), std::pair(2u, 32u), std::pair(12u, 16u)}) {
    EngineCase engine(kModel, GetParam());
    ASSERT_NO_FATAL_FAILURE(Start(engine));
    const std::vector<NodeKey> chain = ChainOf(engine, "a");
    engine.Restart(StopMode::kFinish);
    ASSERT_TRUE(engine.stores().pages->Delete(std::span(chain).last(lost)));
    EXPECT_EQ(engine.Open("a").last().opened().memory().restored_tokens(), restored * 256u);
    EXPECT_EQ(engine.Generate("a", RandomIds(20, 2), 6).tokens(), expected.tokens()) << lost;
    ASSERT_TRUE(support::WaitForChunks(engine, "a", 41));
    engine.Restart(StopMode::kFinish);
    EXPECT_EQ(ChainOf(engine, "a"), chain);
    EXPECT_EQ(engine.Open("a").last().opened().memory().restored_tokens(), 41u * 256);
  }
}

// Why no tail records are needed for the bound: only the open chunk is computed again.
TEST_P(LadderEngineTest, ACleanStopReplaysTheOpenChunkAndNoMore) {
  EngineCase engine(kModel, GetParam());
  engine.Start();
  engine.Open("a");
  uint64_t position = 0;
  for (const size_t more : {1u, 254u, 1u, 255u, 256u, 700u, 37u}) {
    ASSERT_FALSE(engine.Append("a", RandomIds(more, position)).failed());
    position += more;
    engine.Restart(StopMode::kFinish);
    const auto memory = engine.Open("a").last().opened().memory();
    EXPECT_EQ(memory.restored_tokens(), position / 256 * 256) << position;
  }
}

// A kill may come between a node and its thinning; a store from before the ladder has all rungs.
TEST_P(LadderEngineTest, WhatWasNotThinnedIsThinnedAtTheNextUse) {
  EngineCase engine(kModel, GetParam());
  ASSERT_NO_FATAL_FAILURE(Start(engine));
  engine.Stop(StopMode::kFinish);
  engine.Start();
  const std::vector<NodeKey> chain = ChainOf(engine, "a");
  const memory::MemoryLayout& layout = engine.model().layout();
  // Boundaries come back as bytes of the right size: what matters is that they go.
  for (const NodeKey& node : chain) {
    if (!*engine.stores().pages->IsThin(node)) continue;
    std::vector<std::byte> value(memory::BoundaryValueBytes(layout));
    memory::ValueHeader header = {.kind = memory::ValueKind::kBoundary,
                                  .payload_bytes = value.size() - sizeof(memory::ValueHeader)};
    std::memcpy(value.data(), &header, sizeof(header));
    const memory::PageWrite write = {.key = memory::BoundaryKeyOf(node), .value = value};
    ASSERT_TRUE(engine.stores().pages->Write(std::span(&write, 1)));
  }
  engine.Open("a");
  WaitUntilThinned(engine, chain, memory::RungsOf(41).size());
  EXPECT_EQ(StartsOf(engine, chain), memory::RungsOf(41));
}

// Two sessions with one past: the one that stays behind starts where it stopped.
TEST_P(LadderEngineTest, ASharedChunkStaysAStartForWhoStoppedThere) {
  EngineCase engine(kModel, GetParam());
  ASSERT_NO_FATAL_FAILURE(Start(engine, 21 * 256 + 10));
  engine.Open("b");
  const auto ids = RandomIds(21 * 256 + 10, 1);
  ASSERT_FALSE(engine.Append("b", ids).failed());
  ASSERT_TRUE(support::WaitForChunks(engine, "b", 21));
  ASSERT_FALSE(engine.Append("a", RandomIds(20 * 256, 2)).failed());
  ASSERT_TRUE(support::WaitForChunks(engine, "a", 41));
  const auto chain = ChainOf(engine, "b");
  ASSERT_EQ(ChainOf(engine, "a")[20], chain[20]);
  ASSERT_FALSE(memory::IsRung(20, 41));
  const Answer expected = engine.Generate("b", RandomIds(5, 3), 8);
  ASSERT_FALSE(expected.failed());
  engine.Restart(StopMode::kFinish);
  const auto memory = engine.Open("b").last().opened().memory();
  EXPECT_EQ(memory.restored_tokens(), 21u * 256);
  EXPECT_EQ(memory.miss_reason(), "");
  const Answer again = engine.Generate("b", RandomIds(5, 3), 8);
  EXPECT_EQ(again.done().memory().miss_reason(), "");
}

INSTANTIATE_TEST_SUITE_P(Readers, LadderEngineTest, ::testing::Values("hla", "mhla", "native"),
                         [](const auto& reader) { return std::string(reader.param); });

}  // namespace
}  // namespace mneme::engine
