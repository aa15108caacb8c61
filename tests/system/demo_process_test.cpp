// The main job on the real binary, shorter than `make demo`: a server is told facts, killed,
// started again and asked.
#include <gtest/gtest.h>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

TEST(DemoProcessTest, AnswersFromMemoryAfterAKill) {
  const support::TempFolder folder;
  support::Process demo(
      {.arguments = {MNEME, "demo", "--model", std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo",
                     "--corpus", std::string(MNEME_SOURCE_DIR) + "/eval/corpus", "--store",
                     folder / "store", "--tokens", "12000", "--facts", "6"}});
  EXPECT_EQ(demo.Wait(400'000), 0) << demo.Output() << demo.Errors();
  EXPECT_NE(demo.Output().find("kill -9"), std::string::npos);
  EXPECT_NE(demo.Output().find("everything held"), std::string::npos) << demo.Output();
}

}  // namespace
}  // namespace mneme
