// Sessions that were opened and never written in, against the limit on sessions: they are as good
// as not there, so they keep nobody out, and one that somebody has in flight is left alone.
#include <gtest/gtest.h>

#include "tests/support/engine_case.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;

class EmptySessionTest : public ::testing::Test {
 protected:
  void StartWithAtMost(uint64_t sessions) {
    engine_.log_options.sessions_max = sessions;
    engine_.Start();
  }

  bool Exists(const std::string& session) {
    v1::Request request;
    request.mutable_open()->set_session(session);
    const Answer answer = engine_.Ask(request);
    EXPECT_TRUE(!answer.failed() || answer.code() == "not_found") << answer.code();
    return !answer.failed();
  }

  EngineCase engine_;
};

TEST_F(EmptySessionTest, TheOneUnusedForLongestMakesRoomForANewOne) {
  StartWithAtMost(3);
  for (const char* name : {"a", "b", "c"}) ASSERT_FALSE(engine_.Open(name).failed());
  ASSERT_FALSE(engine_.Append("b", {11, 12}).failed());
  ASSERT_TRUE(Exists("a"));  // used after c
  const Answer opened = engine_.Open("d");
  ASSERT_FALSE(opened.failed()) << opened.last().failed().error().message();
  EXPECT_TRUE(opened.last().opened().created());
  EXPECT_EQ(engine_.Stats().sessions(), 3u);
  EXPECT_FALSE(Exists("c"));
  EXPECT_TRUE(Exists("a"));
  EXPECT_TRUE(Exists("b"));
  EXPECT_FALSE(engine_.Append("d", {11}).failed());
}

TEST_F(EmptySessionTest, ManyNewOnesAtOnceFindRoomToo) {
  StartWithAtMost(8);
  for (int index = 0; index < 8; ++index) engine_.Open("old" + std::to_string(index));
  engine_.Restart(StopMode::kFinish);
  std::vector<Asked> asked;
  for (int index = 0; index < 8; ++index) {
    v1::Request request;
    request.mutable_open()->set_session("new" + std::to_string(index));
    request.mutable_open()->set_create(true);
    asked.push_back(engine_.Submit(request));
  }
  for (Asked& one : asked) {
    const Answer answer = one.Wait();
    EXPECT_FALSE(answer.failed()) << answer.last().failed().error().message();
  }
  EXPECT_EQ(engine_.Stats().sessions(), 8u);
}

TEST_F(EmptySessionTest, NothingIsRemovedThatHoldsATurnOrIsBeingWritten) {
  StartWithAtMost(2);
  engine_.Open("a");
  engine_.Open("b");
  ASSERT_FALSE(engine_.Append("b", {11, 12}).failed());
  Asked writing = engine_.SubmitHeld(GenerateOf("a", RandomIds(30, 1), 20));
  ASSERT_TRUE(writing.WaitForTokens(1));
  const Answer refused = engine_.Open("c");
  EXPECT_EQ(refused.code(), "resource_exhausted");
  EXPECT_EQ(refused.last().failed().error().message(), "there are 2 sessions, as many as allowed");
  EXPECT_TRUE(writing.Wait().last().has_done());
  EXPECT_EQ(engine_.Open("c").code(), "resource_exhausted");
}

TEST_F(EmptySessionTest, AStartRemovesThoseUnusedForLongAndKeepsTheRest) {
  {
    auto stores = support::Open(engine_.folder());
    ASSERT_TRUE(stores) << stores.error().message();
    for (const char* name : {"old", "older"}) {
      memory::CreateSession entry = support::MakeSession(name);
      entry.record.set_created_wall_us(1);
      ASSERT_TRUE(support::CommitOne(*stores->log, entry));
    }
    memory::CreateSession entry = support::MakeSession("written");
    entry.record.set_created_wall_us(1);
    const auto written = support::CommitOne(*stores->log, entry);
    ASSERT_TRUE(written);
    ASSERT_TRUE(support::CommitOne(*stores->log,
                                   support::MakeTurn("written", written->receipt.session, 1)));
  }
  engine_.Start();
  EXPECT_EQ(engine_.Stats().sessions(), 1u);
  engine_.Open("new");
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_TRUE(Exists("new")) << "who opened it a moment ago may be about to write";
  EXPECT_EQ(engine_.Stats().sessions(), 2u);
}

}  // namespace
}  // namespace mneme::engine
