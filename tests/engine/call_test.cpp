// A call against the stream it answers through: ids, the end, and what it says of its client.
#include "engine/call.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace mneme::engine {
namespace {

class CallTest : public ::testing::Test {
 protected:
  CallTest() {
    v1::Request request;
    request.set_request_id(42);
    call_ = std::make_unique<Call>(request, stream_, /*deadline_us=*/2'000'000);
  }

  support::FakeClock clock_;
  std::shared_ptr<EventStream> stream_ = std::make_shared<EventStream>(
      EventStreamOptions{.pause_bytes = 500, .bytes_max = 2000, .stall_ms = 1000}, clock_);
  std::unique_ptr<Call> call_;
};

TEST_F(CallTest, MarksEventsWithItsIdAndTheLastAsFinal) {
  v1::Event token;
  token.mutable_token()->set_text("a");
  EXPECT_TRUE(call_->Emit(token));
  EXPECT_FALSE(call_->finished());
  v1::Event done;
  done.mutable_done()->set_stop_reason("stop");
  call_->Finish(done);
  EXPECT_TRUE(call_->finished());
  const auto events = stream_->Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].request_id(), 42u);
  EXPECT_FALSE(events[0].final());
  EXPECT_EQ(events[1].request_id(), 42u);
  EXPECT_TRUE(events[1].final());
}

TEST_F(CallTest, FailsWithCodeReasonAndTheTrueHead) {
  v1::Head head;
  head.set_turn(9);
  call_->Fail(Error(Reason::kHeadMoved, "the session ends at turn 9"), head);
  const auto events = stream_->Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].failed().error().code(), "conflict");
  EXPECT_EQ(events[0].failed().error().reason(), "head_moved");
  EXPECT_EQ(events[0].failed().head().turn(), 9u);
  EXPECT_TRUE(events[0].final());
}

TEST_F(CallTest, AnswersTooLargeInsteadOfCuttingTheConnection) {
  v1::Event event;
  event.mutable_transcript()->add_turns()->add_parts()->set_text(std::string(5000, 'x'));
  call_->Finish(event);
  const auto events = stream_->Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].failed().error().reason(), "too_large");
  EXPECT_FALSE(stream_->closed());
}

TEST_F(CallTest, KnowsWhenItsDeadlineHasPassed) {
  EXPECT_FALSE(call_->expired(1'999'999));
  EXPECT_TRUE(call_->expired(2'000'000));
  EXPECT_FALSE(Call(v1::Request(), stream_, /*deadline_us=*/0).expired(INT64_MAX));
}

TEST_F(CallTest, SeesItsReaderSlowDownAndLeave) {
  v1::Event event;
  event.mutable_token()->set_text(std::string(600, 'x'));
  EXPECT_TRUE(call_->Emit(event));
  EXPECT_TRUE(call_->paused());
  EXPECT_FALSE(call_->disconnected());
  stream_->Detach();
  EXPECT_TRUE(call_->disconnected());
  EXPECT_FALSE(call_->Emit(event));
}

using CallDeathTest = CallTest;

TEST_F(CallDeathTest, AbortsWhenItEndsTwice) {
  call_->Finish(v1::Event());
  EXPECT_DEATH(call_->Finish(v1::Event()), "request 42 has ended");
}

}  // namespace
}  // namespace mneme::engine
