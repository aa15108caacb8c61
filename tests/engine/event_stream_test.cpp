// The limits of an event stream under a clock the test moves: pause, cut, stall, wake, detach.
#include "engine/event_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "proto/frame.h"
#include "tests/support/fake_clock.h"

namespace mneme::engine {
namespace {

// An event whose frame has `bytes` bytes.
v1::Event EventOf(size_t bytes) {
  v1::Event event;
  event.mutable_token()->set_text("");
  while (proto::FrameBytes(event) < bytes)
    event.mutable_token()->mutable_text()->append(bytes - proto::FrameBytes(event), 'x');
  while (proto::FrameBytes(event) > bytes) event.mutable_token()->mutable_text()->pop_back();
  return event;
}

class EventStreamTest : public ::testing::Test {
 protected:
  support::FakeClock clock_;
  EventStream stream_{{.pause_bytes = 1000, .bytes_max = 4000, .stall_ms = 30'000}, clock_};
};

TEST_F(EventStreamTest, GivesEventsInOrderOnce) {
  for (uint64_t i = 0; i < 3; ++i) {
    v1::Event event;
    event.mutable_token()->set_position(i);
    EXPECT_TRUE(stream_.Push(event));
  }
  const auto events = stream_.Take();
  ASSERT_EQ(events.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].token().position(), i);
  EXPECT_TRUE(stream_.Take().empty());
}

TEST_F(EventStreamTest, PausesUntilTheBytesWereSentNotOnlyTaken) {
  EXPECT_TRUE(stream_.Push(EventOf(600)));
  EXPECT_FALSE(stream_.paused());
  EXPECT_TRUE(stream_.Push(EventOf(600)));
  EXPECT_TRUE(stream_.paused());
  EXPECT_EQ(stream_.Take().size(), 2u);
  EXPECT_TRUE(stream_.paused());
  stream_.Sent(600);
  EXPECT_FALSE(stream_.paused());
}

TEST_F(EventStreamTest, ClosesItselfWhenOneMoreEventWouldPassItsLimit) {
  EXPECT_TRUE(stream_.Push(EventOf(2000)));
  EXPECT_TRUE(stream_.Push(EventOf(2000)));  // exactly the limit
  EXPECT_FALSE(stream_.closed());
  EXPECT_FALSE(stream_.Push(EventOf(100)));
  EXPECT_TRUE(stream_.closed());
  EXPECT_EQ(stream_.slow_for(), "output_max_bytes");
  EXPECT_TRUE(stream_.Take().empty());
}

TEST_F(EventStreamTest, ClosesItselfAfterAStallWithoutAnotherPush) {
  EXPECT_TRUE(stream_.Push(EventOf(1200)));
  stream_.Take();
  clock_.AdvanceMs(30'000);
  EXPECT_FALSE(stream_.closed());
  clock_.AdvanceMs(1);
  EXPECT_TRUE(stream_.closed());
  EXPECT_EQ(stream_.slow_for(), "output_stall_ms");
  stream_.Sent(1200);  // too late: an engine may have seen it closed
  EXPECT_TRUE(stream_.closed());
}

TEST_F(EventStreamTest, IsCutOffAsForASlowReaderUnlessItIsClosed) {
  int wakes = 0;
  stream_.SetWake([&wakes] { ++wakes; });
  EXPECT_TRUE(stream_.Push(EventOf(1200)));
  stream_.CutOff();
  EXPECT_EQ(wakes, 2);
  EXPECT_TRUE(stream_.closed());
  EXPECT_EQ(stream_.slow_for(), "place_wanted");
  EXPECT_TRUE(stream_.Take().empty());
  EventStream left({}, clock_);
  left.Close();
  left.CutOff();
  EXPECT_EQ(left.slow_for(), "");
}

TEST_F(EventStreamTest, NeverStallsWhileNothingWaits) {
  EXPECT_TRUE(stream_.Push(EventOf(100)));
  stream_.Take();
  stream_.Sent(100);
  clock_.AdvanceMs(3'600'000);
  EXPECT_FALSE(stream_.closed());
  EXPECT_TRUE(stream_.Push(EventOf(100)));  // the silence before it does not count
  EXPECT_FALSE(stream_.closed());
}

TEST_F(EventStreamTest, CountsEverySentByteAsProgress) {
  EXPECT_TRUE(stream_.Push(EventOf(1200)));
  stream_.Take();
  for (int i = 0; i < 10; ++i) {
    clock_.AdvanceMs(20'000);
    stream_.Sent(1);
  }
  EXPECT_FALSE(stream_.closed());
}

TEST_F(EventStreamTest, WakesTheReaderForEachPushAndForTheClose) {
  int wakes = 0;
  stream_.SetWake([&wakes] { ++wakes; });
  stream_.Push(EventOf(100));
  stream_.Push(EventOf(100));
  EXPECT_EQ(wakes, 2);
  stream_.Close();
  EXPECT_EQ(wakes, 3);
  EXPECT_FALSE(stream_.Push(EventOf(100)));
}

TEST_F(EventStreamTest, KeepsWhatWasQueuedBeforeAClose) {
  stream_.Push(EventOf(100));
  stream_.Close();
  EXPECT_EQ(stream_.Take().size(), 1u);
}

TEST_F(EventStreamTest, NeverWakesAReaderThatHasDetached) {
  std::atomic<bool> gone{false};
  std::atomic<bool> woken_after{false};
  EventStream stream({}, clock_);
  stream.SetWake([&] { woken_after = woken_after || gone; });
  std::thread pusher([&stream] {
    while (stream.Push(EventOf(20))) stream.Sent(20);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  stream.Detach();
  gone = true;
  pusher.join();
  EXPECT_FALSE(woken_after);
  EXPECT_TRUE(stream.closed());
  EXPECT_EQ(stream.slow_for(), "");
}

}  // namespace
}  // namespace mneme::engine
