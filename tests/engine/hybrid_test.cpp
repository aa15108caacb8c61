// A model with full-attention layers through the engine: its KV pages are saved with the chunks,
// read back after a restart or computed again where they are lost, and give the answers of an
// engine that never stopped; and the context limit is an answer that costs nothing.
#include <gtest/gtest.h>

#include "memory/chunk_value.h"
#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::EngineCase;
using support::RandomIds;

constexpr const char* kModel = "tests/golden/models/hybrid_tied";

class HybridTest : public ::testing::Test {
 protected:
  void SetUp() override {
    whole_.Start();
    whole_.Open("a");
    whole_.Append("a", RandomIds(1000, 1));
    expected_ = whole_.Generate("a", RandomIds(30, 2), 40).tokens();
    ASSERT_FALSE(expected_.empty());
    engine_.Start();
    engine_.Open("a");
    engine_.Append("a", RandomIds(1000, 1));
    ASSERT_TRUE(support::WaitForChunks(engine_, "a", 3));
  }

  // The session's chunk nodes, newest first.
  std::vector<memory::NodeKey> Nodes() {
    std::vector<memory::NodeKey> nodes;
    const auto stored = engine_.stores().log->FindSession("", "a");
    memory::NodeKey key{memory::DigestFrom(stored->head.newest_node())};
    while (!key.empty()) {
      nodes.push_back(key);
      const auto node = engine_.stores().log->GetNode(key);
      if (!node) break;
      key = memory::NodeKey{memory::DigestFrom(node->parent())};
    }
    return nodes;
  }

  EngineCase whole_{kModel, "native"};
  EngineCase engine_{kModel, "native"};
  std::vector<uint32_t> expected_;
};

TEST_F(HybridTest, KvPagesComeBackAfterAStop) {
  const memory::MemoryLayout& layout = engine_.model().layout();
  ASSERT_EQ(layout.attention_layers.size(), 1u);
  const auto nodes = Nodes();
  ASSERT_EQ(nodes.size(), 3u);
  std::vector<std::byte> page(memory::KvValueBytes(layout));
  for (const memory::NodeKey& node : nodes) {
    const auto read = engine_.stores().pages->Read(memory::KvKeyOf(layout, node, 0), page);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, page.size());
  }
  engine_.Restart(StopMode::kFinish);
  const Answer answer = engine_.Generate("a", RandomIds(30, 2), 40);
  ASSERT_FALSE(answer.failed());
  EXPECT_EQ(answer.tokens(), expected_);
  EXPECT_EQ(answer.done().memory().restored_tokens(), 768u);
  EXPECT_EQ(answer.done().memory().replayed_tokens(), 232u);
}

TEST_F(HybridTest, AKillChangesNothing) {
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(engine_.Generate("a", RandomIds(30, 2), 40).tokens(), expected_);
}

TEST_F(HybridTest, ALostKvPageCostsAReplay) {
  const auto nodes = Nodes();
  engine_.Restart(StopMode::kFinish);
  ASSERT_TRUE(engine_.stores().pages->Delete({&nodes[0], 1}));
  const Answer answer = engine_.Generate("a", RandomIds(30, 2), 40);
  ASSERT_FALSE(answer.failed());
  EXPECT_EQ(answer.tokens(), expected_);
  EXPECT_EQ(answer.done().memory().restored_tokens(), 512u);
  EXPECT_NE(answer.done().memory().miss_reason(), "");
}

TEST_F(HybridTest, BeyondTheModelsPositionsIsRefusedBeforeAnythingIsComputed) {
  ASSERT_FALSE(engine_.Append("a", RandomIds(3000, 3)).failed());
  const uint64_t computed = engine_.Stats().tokens_computed();
  ASSERT_EQ(computed, 4000u);
  EXPECT_EQ(engine_.Append("a", RandomIds(97, 4)).reason(), "context_limit");
  EXPECT_EQ(engine_.Generate("a", RandomIds(97, 4), 5).reason(), "context_limit");
  EXPECT_EQ(engine_.Stats().tokens_computed(), computed);
  EXPECT_EQ(engine_.Open("a").last().opened().head().position(), 4000u);
  const Answer last = engine_.Generate("a", RandomIds(90, 4), 4000);
  ASSERT_FALSE(last.failed()) << last.last().failed().error().message();
  EXPECT_LE(last.done().receipt().head().position(), 4096u);
  engine_.Open("b");
  EXPECT_FALSE(engine_.Generate("b", RandomIds(5, 5), 3).failed());
}

TEST(NativeReaderTest, RestoresItsFoldedStates) {
  EngineCase engine("tests/golden/models/routed", "native");
  engine.Start();
  engine.Open("a");
  engine.Append("a", RandomIds(900, 6));
  ASSERT_TRUE(support::WaitForChunks(engine, "a", 3));
  engine.Restart(StopMode::kFinish);
  const Answer found = engine.Generate("a", RandomIds(20, 7), 30);
  ASSERT_FALSE(found.failed());
  EXPECT_EQ(found.done().memory().restored_tokens(), 768u);
  EXPECT_EQ(found.done().memory().replayed_tokens(), 132u);
  EngineCase whole("tests/golden/models/routed", "native");
  whole.Start();
  whole.Open("a");
  whole.Append("a", RandomIds(900, 6));
  EXPECT_EQ(found.tokens(), whole.Generate("a", RandomIds(20, 7), 30).tokens());
}

}  // namespace
}  // namespace mneme::engine
