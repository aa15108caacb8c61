// Same log, same bits: one script of turns under random schedules (slice lengths, neighbours,
// places, threads, restarts, caps) gives the same tokens and page bytes; and a long prompt delays
// its neighbours by no more than one slice. MNEME_SCHEDULES says how many schedules: 6, or 50 in
// the long run.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "engine/scheduler.h"
#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::Outcome;
using support::RandomIds;
using support::RandomScript;
using support::RunScript;

TEST(ScheduleTest, TheLogAloneDecidesWhatIsComputed) {
  const auto script = RandomScript(1400, 21);
  std::optional<Outcome> expected;
  const char* asked = std::getenv("MNEME_SCHEDULES");
  const uint64_t schedules = asked == nullptr ? 6 : std::strtoull(asked, nullptr, 10);
  for (uint64_t seed = 0; seed < schedules; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    EngineCase engine;
    engine.options.threads = seed % 2 == 0 ? 1 : 2;
    engine.options.step_ms = seed % 3 == 0 ? 1 : 50;
    engine.options.batch_max = 1 + static_cast<int>(random() % 4);
    engine.options.running_max = 1 + static_cast<int>(random() % 4);
    engine.options.idle_tokens_max = 1 + static_cast<int>(random() % 200);
    engine.Start();
    engine.Open("a");
    std::atomic<bool> stop{false};
    std::vector<Asked> neighbours;
    const Outcome found = RunScript(engine, "a", script, 21, [&](size_t index) {
      if (seed > 2 && random() % 4 == 0) {
        for (Asked& one : neighbours) one.call->Cancel();
        for (Asked& one : neighbours) one.Wait();
        neighbours.clear();
        engine.Restart(random() % 2 == 0 ? StopMode::kAtOnce : StopMode::kFinish);
      }
      if (seed == 0 || random() % 2 == 0) return;
      const std::string name = "n" + std::to_string(index);
      engine.Open(name);
      neighbours.push_back(engine.Submit(GenerateOf(name, RandomIds(50 + index, index), 30)));
    });
    for (Asked& one : neighbours) one.Wait();
    if (!expected) {
      expected = found;
      continue;
    }
    EXPECT_EQ(found.answers, expected->answers);
    EXPECT_TRUE(found.pages == expected->pages);
  }
}

}  // namespace
}  // namespace mneme::engine
