// What sessions that nobody talks to cost: a thousand of them, resumed once and parked again, add
// less than 50 MB to the process.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>

#include "tests/engine/script.h"
#include "tests/support/sanitizers.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::Asked;
using support::EngineCase;
using support::RandomIds;

constexpr int kSessions = 1000;
constexpr uint64_t kIdleBytesMax = 50'000'000;

// Anonymous memory of this process.
uint64_t RssAnonBytes() {
  malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * kKiB;
  }
  return 0;
}

std::string NameOf(int session) { return "s" + std::to_string(session); }

TEST(IdleTest, AThousandIdleSessionsCostLittle) {
  if (support::kSanitizer) GTEST_SKIP() << "a sanitizer's own memory would be measured too";
  EngineCase engine;
  engine.options.host_bytes_max = engine.CapOf(200, 200);
  engine.Start();
  std::vector<Asked> asked;
  const auto wait = [&asked] {
    for (Asked& one : asked) {
      const Answer answer = one.Wait();
      ASSERT_FALSE(answer.failed()) << answer.last().failed().error().message();
    }
    asked.clear();
  };
  for (int session = 0; session < kSessions; ++session) {
    v1::Request open;
    open.mutable_open()->set_session(NameOf(session));
    open.mutable_open()->set_create(true);
    asked.push_back(engine.Submit(open));
    if (asked.size() >= 200) {
      ASSERT_NO_FATAL_FAILURE(wait());
    }
  }
  for (int session = 0; session < kSessions; ++session) {
    // Every tenth session has closed chunks.
    const size_t tokens = session % 10 == 0 ? 700 : 40;
    asked.push_back(engine.Submit(support::AppendOf(NameOf(session), RandomIds(tokens, 1))));
    if (asked.size() >= 200) {
      ASSERT_NO_FATAL_FAILURE(wait());
    }
  }
  engine.Restart(StopMode::kFinish);
  engine.Open(NameOf(0));
  const uint64_t before = RssAnonBytes();
  ASSERT_GT(before, 0u);
  for (int session = 0; session < kSessions; ++session) {
    asked.push_back(engine.Submit(support::GenerateOf(NameOf(session), RandomIds(2, 2), 1)));
    if (asked.size() >= 100) {
      ASSERT_NO_FATAL_FAILURE(wait());
    }
  }
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_LE(engine.Stats().sessions_running(), static_cast<uint64_t>(engine.options.running_max));
  const uint64_t after = RssAnonBytes();
  EXPECT_LT(after, before + kIdleBytesMax) << "bytes before " << before;
  RecordProperty("bytes_per_session", static_cast<int>((after - before) / kSessions));
  std::printf("%d idle sessions: %.1f MB\n", kSessions,
              (static_cast<double>(after) - static_cast<double>(before)) / 1e6);
}

}  // namespace
}  // namespace mneme::engine
