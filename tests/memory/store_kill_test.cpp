// kill -9 at random moments against everything that was acknowledged before: nothing acknowledged
// is missing, nothing is there twice, chains are whole, and every node in the log has its values,
// those included that a start at a rung needs.
//
// MNEME_KILL_CYCLES sets how often (default 25; `make check-long` takes 200), MNEME_SEED the seed.
#include "tests/memory/store_kill.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

uint32_t FromEnvironment(const char* name, uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

TEST(StoreKillTest, NothingAcknowledgedIsLostByKillMinusNine) {
  const support::TempFolder temp;
  const uint32_t cycles = FromEnvironment("MNEME_KILL_CYCLES", 25);
  const uint32_t seed = FromEnvironment("MNEME_SEED", 1);
  std::mt19937 random(seed);
  support::StoreKill kill(temp / "store", seed * 1'000, /*sessions=*/6);
  for (uint32_t cycle = 0; cycle < cycles; ++cycle) {
    const Status lived = kill.Live(static_cast<int>(random() % 120));
    ASSERT_TRUE(lived) << lived.error().message() << ", cycle " << cycle << ", seed " << seed;
    const Status checked = kill.Check();
    ASSERT_TRUE(checked) << checked.error().message() << ", cycle " << cycle << ", seed " << seed;
  }
  RecordProperty("acknowledged_turns", std::to_string(kill.acknowledged()));
  std::printf("%u kills, %llu turns and %llu nodes acknowledged, %llu thinned, seed %u\n", cycles,
              static_cast<unsigned long long>(kill.acknowledged()),
              static_cast<unsigned long long>(kill.nodes()),
              static_cast<unsigned long long>(kill.thinned()), seed);
  EXPECT_GT(kill.rungs(), 0U);
  EXPECT_GT(kill.thinned(), 0U);
  EXPECT_GE(kill.acknowledged(), cycles);  // below that the run proves nothing
}

}  // namespace
}  // namespace mneme
