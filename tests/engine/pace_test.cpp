// A long prompt beside an answer: the answer's tokens come at most one slice later than alone, and
// the prompt keeps half of its own speed. Times are compared within one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::AppendOf;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;
using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

// 95th percentile of the milliseconds between the tokens of answers generated while `more()`.
template <typename More>
double TokenGapMs(EngineCase& engine, const std::string& session, More more) {
  std::vector<double> gaps;
  do {
    Asked asked = engine.Submit(GenerateOf(session, {11}, 100));
    for (size_t token = 1; asked.WaitForTokens(token); ++token) {
      static thread_local Clock::time_point last;
      if (token > 1) gaps.push_back(MsSince(last));
      last = Clock::now();
    }
    asked.Wait();
  } while (more());
  std::sort(gaps.begin(), gaps.end());
  return gaps.empty() ? 0 : gaps[gaps.size() * 95 / 100];
}

TEST(PaceTest, ALongPromptDelaysAnAnswerByOneSliceAndKeepsHalfItsSpeed) {
  constexpr size_t kPromptTokens = 30'000;
  EngineCase engine;
  engine.Start();
  for (const char* name : {"answer", "alone", "beside"}) engine.Open(name);
  engine.Append("answer", RandomIds(200, 1));
  int rounds = 0;
  const double alone_ms = TokenGapMs(engine, "answer", [&] { return ++rounds < 4; });

  const auto began = Clock::now();
  ASSERT_FALSE(engine.Append("alone", RandomIds(kPromptTokens, 2)).failed());
  const double prompt_alone_ms = MsSince(began);

  v1::Request request = AppendOf("beside", RandomIds(kPromptTokens, 2));
  request.mutable_append()->set_wait_until_computed(true);
  const auto began_beside = Clock::now();
  Asked prompt = engine.Submit(request);
  const double beside_ms = TokenGapMs(engine, "answer", [&] { return !prompt.call->finished(); });
  prompt.Wait();
  const double prompt_beside_ms = MsSince(began_beside);

  RecordProperty("gap_alone_ms", std::to_string(alone_ms));
  RecordProperty("gap_beside_ms", std::to_string(beside_ms));
  printf("gap p95 %.2f ms alone, %.2f ms beside; prompt %.0f ms alone, %.0f ms beside\n", alone_ms,
         beside_ms, prompt_alone_ms, prompt_beside_ms);
  // Twice the step, because the machine of a test has other work too.
  EXPECT_LE(beside_ms, alone_ms + 2 * engine.options.step_ms);
  EXPECT_LE(prompt_beside_ms, 2 * prompt_alone_ms * 1.5);
}

}  // namespace
}  // namespace mneme::engine
