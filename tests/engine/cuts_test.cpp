// Continuation after being cut off anywhere equals never having been: a client sends turns with
// idempotency keys and repeats what a kill left unanswered. Every answer and every page is then
// that of an engine that was never disturbed, under a cap that drops page groups. The number of
// cuts is MNEME_CUTS (25 by default; the long run takes 200).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;
using support::StoredPages;

constexpr int kDefaultCuts = 25;
constexpr uint64_t kChunkTokens = 256;

int Cuts() {
  const char* asked = std::getenv("MNEME_CUTS");
  return asked == nullptr ? kDefaultCuts : std::atoi(asked);
}

// Turn `index`: some tokens in, some out, under a key of its own.
v1::Request TurnOf(uint64_t index) {
  std::mt19937_64 random(index + 900);
  const auto ids = RandomIds(1 + random() % 90, index);
  v1::Request request = GenerateOf("a", ids, static_cast<uint32_t>(1 + random() % 30));
  request.mutable_generate()->set_idempotency_key("turn " + std::to_string(index));
  request.mutable_generate()->mutable_sampling()->set_seed(index);
  return request;
}

struct Kept {
  std::vector<std::string> answers;
  std::vector<std::pair<std::string, std::string>> pages;
  uint64_t position = 0;
};

void Settle(EngineCase& engine, Kept& kept) {
  const Answer settled = engine.Append("a", {10}, /*wait=*/true);
  ASSERT_FALSE(settled.failed()) << settled.last().failed().error().message();
  kept.position = settled.last().appended().receipt().head().position();
  ASSERT_TRUE(support::WaitForChunks(engine, "a", kept.position / kChunkTokens));
  kept.pages = StoredPages(engine, "a");
}

TEST(CutsTest, WhereverItIsCutItGoesOnAsIfItWasNot) {
  const auto turns = static_cast<uint64_t>(Cuts());
  Kept expected;
  {
    EngineCase engine;
    engine.Start();
    engine.Open("a");
    for (uint64_t turn = 0; turn < turns; ++turn) {
      const Answer answer = engine.Ask(TurnOf(turn));
      ASSERT_FALSE(answer.failed()) << answer.last().failed().error().message();
      expected.answers.push_back(answer.done().text());
    }
    ASSERT_NO_FATAL_FAILURE(Settle(engine, expected));
  }
  const uint64_t chunks = expected.position / kChunkTokens + 1;
  EngineCase engine;
  // One layer's groups of all chunks, and two chunks that are being saved.
  engine.options.host_bytes_max = engine.CapOf(2 * chunks + 12, chunks);
  engine.Start();
  engine.Open("a");
  std::mt19937_64 random(31);
  Kept found;
  uint64_t evicted = 0;
  int in_flight = 0;
  for (uint64_t turn = 0; turn < turns; ++turn) {
    const v1::Request request = TurnOf(turn);
    Asked cut = engine.Submit(request);
    if (random() % 2 == 0) {
      cut.WaitForTokens(random() % 20);
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    }
    evicted += engine.Stats().pages_evicted_from_host();
    engine.Restart(StopMode::kAtOnce);
    if (cut.Wait().failed()) ++in_flight;
    const Answer answer = engine.Ask(request);
    ASSERT_FALSE(answer.failed()) << turn << ": " << answer.last().failed().error().message();
    found.answers.push_back(answer.done().text());
  }
  ASSERT_NO_FATAL_FAILURE(Settle(engine, found));
  EXPECT_EQ(found.answers, expected.answers);
  EXPECT_EQ(found.position, expected.position);
  EXPECT_TRUE(found.pages == expected.pages);
  EXPECT_GT(in_flight, 0) << "some kills came before the answer was committed";
  if (turns >= 100) {
    EXPECT_GT(evicted, 0u);
  }
}

}  // namespace
}  // namespace mneme::engine
