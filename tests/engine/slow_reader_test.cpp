// Places against readers who let an answer wait: nobody waits for one of them without bound,
// however steadily they read a little, and nothing is taken from them while nobody waits.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/engine_case.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;

class SlowReaderTest : public ::testing::Test {
 protected:
  SlowReaderTest() {
    engine_.options.running_max = 1;
    engine_.options.paused_ms_max = 100;
    engine_.Start();
    engine_.Open("slow");
    engine_.Open("other");
  }

  // An answer in the only place, and a reader who has met its first token.
  Asked Hold(v1::OnDisconnect on_disconnect) {
    v1::Request request = GenerateOf("slow", RandomIds(30, 1), 300);
    request.mutable_generate()->set_on_disconnect(on_disconnect);
    Asked held = engine_.SubmitHeld(std::move(request));
    EXPECT_TRUE(held.WaitForTokens(1));
    return held;
  }

  // Reads a byte now and then, a token in more than a tenth of a second, until `until` has ended or
  // `ms` have passed.
  static void Drip(Asked& held, const Asked* until, int ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (std::chrono::steady_clock::now() < end &&
           (until == nullptr || !until->call->finished())) {
      held.stream->Sent(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  EngineCase engine_;
};

TEST_F(SlowReaderTest, KeepsThePlaceWhileNobodyWaitsForIt) {
  Asked held = Hold(v1::ON_DISCONNECT_CANCEL);
  Drip(held, nullptr, 400);
  EXPECT_FALSE(held.call->finished());
  EXPECT_FALSE(held.stream->closed());
  EXPECT_EQ(engine_.Stats("slow").state(), "running");
}

TEST_F(SlowReaderTest, IsCutOffWhenAnotherSessionWaitsForItsPlace) {
  Asked held = Hold(v1::ON_DISCONNECT_CANCEL);
  Asked other = engine_.Submit(GenerateOf("other", RandomIds(30, 2), 5));
  Drip(held, &other, 15'000);
  EXPECT_TRUE(other.Wait().last().has_done());
  EXPECT_EQ(held.stream->slow_for(), "place_wanted");
  EXPECT_TRUE(held.call->finished());
  EXPECT_EQ(engine_.Stats("slow").turns(), 0u);
}

TEST_F(SlowReaderTest, KeepsWhatWasGeneratedWhereItAskedForThat) {
  Asked held = Hold(v1::ON_DISCONNECT_KEEP);
  Asked other = engine_.Submit(GenerateOf("other", RandomIds(30, 2), 5));
  Drip(held, &other, 15'000);
  EXPECT_TRUE(other.Wait().last().has_done());
  v1::Request request;
  request.mutable_transcript()->set_session("slow");
  const v1::Transcript transcript = engine_.Ask(request).last().transcript();
  ASSERT_EQ(transcript.turns_size(), 1);
  EXPECT_TRUE(transcript.turns(0).truncated());
  EXPECT_EQ(transcript.turns(0).stop_reason(), "disconnected");
}

TEST_F(SlowReaderTest, IsNotCutOffByAQueueInWhichNobodyWaits) {
  Asked held = Hold(v1::ON_DISCONNECT_CANCEL);
  EXPECT_FALSE(engine_.Open("other").failed());
  Drip(held, nullptr, 400);
  EXPECT_FALSE(held.stream->closed());
}

}  // namespace
}  // namespace mneme::engine
