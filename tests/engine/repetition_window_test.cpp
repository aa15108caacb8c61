// The window against a set of the last tokens, made anew after each one; and through the engine:
// what a penalty takes away is what stood in the window, earlier turns included, and a restart
// draws the same.
#include "engine/repetition_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/support/engine_case.h"

namespace mneme::engine {
namespace {

using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;

TEST(RepetitionWindowTest, HoldsTheIdsOfTheLastTokensEachOnce) {
  for (const size_t most : {1u, 2u, 7u, 64u}) {
    std::mt19937 random(3);
    RepetitionWindow window(most);
    std::vector<int32_t> all;
    EXPECT_TRUE(window.ids().empty());
    for (int step = 0; step < 500; ++step) {
      all.push_back(static_cast<int32_t>(random() % 20));
      window.Push(all.back());
      const std::set<int32_t> expected(
          all.end() - static_cast<ptrdiff_t>(std::min(most, all.size())), all.end());
      const std::vector<int32_t> found(window.ids().begin(), window.ids().end());
      ASSERT_EQ(found, std::vector<int32_t>(expected.begin(), expected.end())) << most << step;
    }
  }
}

v1::Request Penalised(const std::string& session, float penalty, uint32_t window, uint32_t tokens,
                      float temperature) {
  v1::Request request = GenerateOf(session, {}, tokens);
  v1::SamplingSettings& sampling = *request.mutable_generate()->mutable_sampling();
  sampling.set_temperature(temperature);
  sampling.set_repetition_penalty(penalty);
  sampling.set_repetition_window(window);
  return request;
}

// A log of 40 tokens whose likeliest next token stands in it, but not at its end.
struct Told {
  std::vector<uint32_t> ids;
  uint32_t likeliest = 0;
  uint32_t distance = 0;  // of its last place from the end, 1 for the last token
};

class RepetitionTest : public ::testing::Test {
 protected:
  RepetitionTest() { engine_.Start(); }

  // One token after `ids`, which are told as two earlier turns.
  uint32_t Drawn(const std::vector<uint32_t>& ids, float penalty, uint32_t window) {
    const std::string session = "s" + std::to_string(++sessions_);
    Tell(session, ids);
    return engine_.Ask(Penalised(session, penalty, window, 1, 0)).tokens().at(0);
  }

  void Tell(const std::string& session, const std::vector<uint32_t>& ids) {
    engine_.Open(session);
    const auto half = ids.begin() + static_cast<ptrdiff_t>(ids.size() / 2);
    engine_.Append(session, {ids.begin(), half});
    engine_.Append(session, {half, ids.end()});
  }

  Told FindTold() {
    for (uint64_t seed = 1; seed < 200; ++seed) {
      Told told = {.ids = RandomIds(40, seed)};
      told.likeliest = Drawn(told.ids, 1, 0);
      const auto last = std::find(told.ids.rbegin(), told.ids.rend(), told.likeliest);
      told.distance = static_cast<uint32_t>(last - told.ids.rbegin()) + 1;
      if (told.distance > 1 && told.distance <= 40) return told;
    }
    ADD_FAILURE() << "no log whose likeliest next token stands in it";
    return {};
  }

  EngineCase engine_;
  int sessions_ = 0;
};

TEST_F(RepetitionTest, APenaltySeesEarlierTurnsAsFarAsItsWindow) {
  const Told told = FindTold();
  const std::set<uint32_t> seen(told.ids.begin(), told.ids.end());
  EXPECT_FALSE(seen.contains(Drawn(told.ids, 100, 0))) << "0 stands for the largest window";
  EXPECT_NE(Drawn(told.ids, 100, told.distance), told.likeliest);
  EXPECT_EQ(Drawn(told.ids, 100, told.distance - 1), told.likeliest);
}

TEST_F(RepetitionTest, ItCountsTheAnswerSoFar) {
  Tell("a", RandomIds(40, 2));
  const auto tokens = engine_.Ask(Penalised("a", 100, 20, 20, 0)).tokens();
  EXPECT_EQ(std::set<uint32_t>(tokens.begin(), tokens.end()).size(), tokens.size());
}

TEST_F(RepetitionTest, ARestartDrawsTheSame) {
  const std::vector<uint32_t> ids = RandomIds(60, 4);
  Tell("a", ids);
  Tell("b", ids);
  const auto first = [&](const std::string& session) {
    return engine_.Ask(Penalised(session, 1.3f, 50, 30, 1)).tokens();
  };
  const auto straight = first("a");
  const auto straight_on = first("a");
  EXPECT_EQ(first("b"), straight);
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(first("b"), straight_on);
  EXPECT_EQ(straight.size(), 30u);
}

TEST_F(RepetitionTest, TheRecordSaysWhatThePenaltySaw) {
  Tell("a", RandomIds(20, 6));
  engine_.Ask(Penalised("a", 1.3f, 50, 1, 1));
  engine_.Ask(Penalised("a", 1, 50, 1, 1));
  const auto session = engine_.stores().log->FindSession("", "a");
  ASSERT_TRUE(session);
  const SessionId id{session->record.id()};
  EXPECT_EQ(engine_.stores().log->ReadTurn(id, {3})->record.sampling().repetition_window(), 50u);
  EXPECT_EQ(engine_.stores().log->ReadTurn(id, {4})->record.sampling().repetition_window(), 0u);
}

}  // namespace
}  // namespace mneme::engine
