// What StopText shows, piece by piece, against cutting the whole text at once.
#include "engine/stop_text.h"

#include <gtest/gtest.h>

namespace mneme::engine {
namespace {

TEST(StopTextTest, CutsBeforeTheFirstStopStringHoweverItArrives) {
  const std::string text = "one two END three";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    StopText stop({"END", "thr"});
    std::string shown;
    for (size_t at = 0; at < text.size(); at += piece) {
      shown += stop.Push(text.substr(at, piece));
      EXPECT_EQ(shown, std::string("one two ").substr(0, shown.size()));
    }
    EXPECT_TRUE(stop.hit());
    EXPECT_EQ(shown + stop.Finish(), "one two ");
  }
}

TEST(StopTextTest, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopText stop({"abc"});
  EXPECT_EQ(stop.Push("xab"), "x");
  EXPECT_EQ(stop.Push("d"), "abd");
  EXPECT_EQ(stop.Push("ab"), "");
  EXPECT_EQ(stop.Finish(), "ab");
  EXPECT_FALSE(stop.hit());
}

TEST(StopTextTest, TheEarliestOfSeveralWins) {
  StopText stop({"late", "early"});
  EXPECT_EQ(stop.Push("x early then late"), "x ");
  EXPECT_TRUE(stop.hit());
}

}  // namespace
}  // namespace mneme::engine
