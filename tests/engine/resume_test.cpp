// A session that was stopped, killed, or robbed of pages goes on as if nothing had happened: the
// same turns on an engine that was never disturbed give the same tokens and the same page bytes.
#include "memory/resume.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::EngineCase;
using support::Outcome;
using support::RandomIds;
using support::RandomScript;
using support::RunScript;
using support::ScriptTurn;

Outcome Undisturbed(const std::vector<ScriptTurn>& script, uint64_t seed,
                    const std::string& reader = "") {
  EngineCase engine("tests/golden/models/routed", reader);
  engine.Start();
  engine.Open("a");
  return RunScript(engine, "a", script, seed);
}

void ExpectSameAfterStops(StopMode mode, const std::string& reader) {
  const std::vector<ScriptTurn> script = RandomScript(2200, 3);
  const Outcome expected = Undisturbed(script, 3, reader);
  EngineCase engine("tests/golden/models/routed", reader);
  engine.Start();
  engine.Open("a");
  std::mt19937_64 random(5);
  int stops = 0;
  const Outcome found = RunScript(engine, "a", script, 3, [&](size_t) {
    if (random() % 2 != 0) return;
    engine.Restart(mode);
    ++stops;
  });
  EXPECT_GT(stops, 2);
  EXPECT_EQ(found.answers, expected.answers);
  EXPECT_TRUE(found.pages == expected.pages);
}

TEST(ResumeTest, ACleanStopChangesNothing) { ExpectSameAfterStops(StopMode::kFinish, "hla"); }
TEST(ResumeTest, AKillChangesNothing) { ExpectSameAfterStops(StopMode::kAtOnce, "hla"); }
TEST(ResumeTest, AKillChangesNothingWithFixedMixing) {
  ExpectSameAfterStops(StopMode::kAtOnce, "mhla");
}
TEST(ResumeTest, AKillChangesNothingForTheNativeReader) {
  ExpectSameAfterStops(StopMode::kAtOnce, "native");
}

TEST(ResumeTest, SaysWhatItRestoredAndReplayed) {
  EngineCase engine;
  engine.Start();
  engine.Open("a");
  engine.Append("a", RandomIds(1000, 1));
  ASSERT_TRUE(support::WaitForChunks(engine, "a", 3));
  engine.Restart(StopMode::kFinish);
  EXPECT_EQ(engine.Open("a").last().opened().memory().restored_tokens(), 768u);
  const Answer answer = engine.Generate("a", RandomIds(20, 2), 5);
  const v1::MemoryReport& memory = answer.done().memory();
  EXPECT_EQ(memory.restored_tokens(), 768u);
  EXPECT_EQ(memory.replayed_tokens(), 232u);
  EXPECT_EQ(memory.fresh_tokens(), 20 + answer.tokens().size() - 1);
  EXPECT_EQ(memory.tier(), "disk");
  EXPECT_EQ(memory.miss_reason(), "");
  EXPECT_EQ(engine.Stats().tokens_computed(), memory.replayed_tokens() + memory.fresh_tokens());
}

// A kill right after `done` loses no chunk that was saved: turn and nodes are one commit.
TEST(ResumeTest, AKillRightAfterALongAnswerReplaysLittle) {
  EngineCase engine;
  engine.Start();
  engine.Open("a");
  ASSERT_FALSE(engine.Generate("a", RandomIds(12'000, 1), 2).failed());
  engine.Restart(StopMode::kAtOnce);
  const v1::MemoryReport memory = engine.Open("a").last().opened().memory();
  EXPECT_GE(memory.restored_tokens() + 256 + engine.options.unsaved_tokens_max, 12'000u);
}

TEST(ResumeTest, ASmallCapSpillsAndReadsBackWithTheSameAnswers) {
  const std::vector<ScriptTurn> script = RandomScript(3000, 8);
  const Outcome expected = Undisturbed(script, 8);
  EngineCase engine;
  // One layer's groups of all chunks, and two chunks that are being saved.
  engine.options.host_bytes_max = engine.CapOf(2 * 13 + 12, 13);
  engine.Start();
  engine.Open("a");
  const Outcome found = RunScript(engine, "a", script, 8);
  EXPECT_EQ(found.answers, expected.answers);
  EXPECT_TRUE(found.pages == expected.pages);
  const v1::StatsReply stats = engine.Stats();
  EXPECT_GT(stats.pages_evicted_from_host(), 0u);
  EXPECT_GT(stats.page_store_reads(), 0u);
}

// Deletes or damages what the page store holds of the session's chunk `index`.
void Lose(EngineCase& engine, const std::string& session, uint32_t index) {
  const auto stored = engine.stores().log->FindSession("", session);
  memory::NodeKey key{memory::DigestFrom(stored->head.newest_node())};
  while (true) {
    const auto node = engine.stores().log->GetNode(key);
    ASSERT_TRUE(node);
    if (node->first_position() / 256 == index) break;
    key = memory::NodeKey{memory::DigestFrom(node->parent())};
  }
  ASSERT_TRUE(engine.stores().pages->Delete({&key, 1}));
}

TEST(ResumeTest, ALostChunkIsComputedAgainFromTheLog) {
  const auto history = RandomIds(1500, 4);
  EngineCase whole;
  whole.Start();
  whole.Open("a");
  whole.Append("a", history);
  const Answer expected = whole.Generate("a", RandomIds(30, 5), 20);
  EngineCase engine;
  engine.Start();
  engine.Open("a");
  engine.Open("b");
  engine.Append("a", history);
  engine.Append("b", RandomIds(600, 6));
  ASSERT_TRUE(support::WaitForChunks(engine, "a", 5));
  engine.Stop(StopMode::kFinish);
  engine.Start();
  Lose(engine, "a", 4);
  const Answer found = engine.Generate("a", RandomIds(30, 5), 20);
  ASSERT_FALSE(found.failed()) << found.last().failed().error().message();
  EXPECT_EQ(found.tokens(), expected.tokens());
  EXPECT_EQ(found.done().memory().restored_tokens(), 1024u);
  EXPECT_NE(found.done().memory().miss_reason(), "");
  EXPECT_GT(engine.Stats("a").pages_missed(), 0u);
  EXPECT_EQ(engine.Stats("b").pages_missed(), 0u);
  EXPECT_FALSE(engine.Generate("b", {11}, 2).failed());
  // What was computed again is whole on disk again.
  ASSERT_TRUE(support::WaitForChunks(engine, "a", 5));
  engine.Restart(StopMode::kFinish);
  EXPECT_EQ(engine.Open("a").last().opened().memory().restored_tokens(), 1536u);
}

// A group that is lost while the session runs: found when a query chooses it.
TEST(ResumeTest, AGroupLostWhileRunningIsComputedAgain) {
  const auto history = RandomIds(1500, 14);
  EngineCase whole;
  whole.Start();
  whole.Open("a");
  whole.Append("a", history);
  const Answer expected = whole.Generate("a", RandomIds(600, 15), 60);
  EngineCase engine;
  engine.Start();
  engine.Open("a");
  engine.Append("a", history);
  ASSERT_TRUE(support::WaitForChunks(engine, "a", 5));
  engine.Restart(StopMode::kFinish);
  ASSERT_EQ(engine.Open("a").last().opened().memory().restored_tokens(), 1280u);
  Lose(engine, "a", 1);
  const Answer found = engine.Generate("a", RandomIds(600, 15), 60);
  ASSERT_FALSE(found.failed()) << found.last().failed().error().message();
  EXPECT_EQ(found.tokens(), expected.tokens());
  const Answer more = engine.Generate("a", RandomIds(10, 16), 10);
  EXPECT_EQ(more.tokens(), whole.Generate("a", RandomIds(10, 16), 10).tokens());
}

}  // namespace
}  // namespace mneme::engine
