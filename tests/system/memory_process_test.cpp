// What the real `mneme serve` costs in memory, measured from outside: a session of the demo model
// grows far beyond the cap on its pages, and the process stays under the cap and the constant that
// docs/operating.md states. LONG_SESSION_TOKENS says how long the session gets (no MNEME_ name,
// which the server would take for a setting).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "base/bytes.h"
#include "tests/support/process.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

using support::Process;
using support::RawClient;

// Beside the cap: the demo model's weights, workspaces, the stores' buffers. docs/operating.md.
constexpr uint64_t kConstantBytes = 128 * kMiB;
// Once buffers have their size, 10,000 tokens make 30 MB of pages and may not add more than this.
constexpr uint64_t kSettledTokens = 12'288;
constexpr uint64_t kGrowthBytes = 24'000'000;
constexpr uint64_t kCapBytes = 16 * kMiB;
constexpr uint64_t kTurnTokens = 2048;
constexpr int kTurnWaitMs = 120'000;

uint64_t RssAnonBytes(const Process& process) {
  std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * kKiB;
  }
  return 0;
}

TEST(MemoryProcessTest, StaysUnderTheCapAndItsConstantHoweverLongTheSession) {
  const char* asked = std::getenv("LONG_SESSION_TOKENS");
  const uint64_t tokens = asked == nullptr ? 22'528 : std::strtoull(asked, nullptr, 10);
  const support::TempFolder folder;
  const uint16_t port = support::FreePort();
  Process server(
      {.arguments = {MNEME, "serve", "--model", std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo",
                     "--store", folder / "store", "--port", std::to_string(port)},
       .environment = {"MNEME_MEMORY_HOST_BYTES_MAX=" + std::to_string(kCapBytes)}});
  ASSERT_TRUE(server.WaitForOutput("listening on", 60'000)) << server.Errors();
  RawClient client(port);
  ASSERT_TRUE(client.Send(support::OpenOf(1, "a")));
  ASSERT_TRUE(client.Receive());
  std::mt19937 random(3);
  uint64_t largest = RssAnonBytes(server);
  uint64_t settled = 0;
  std::printf("%6d tokens: %5.1f MB\n", 0, static_cast<double>(largest) / 1e6);
  for (uint64_t read = 0; read < tokens; read += kTurnTokens) {
    v1::Request request;
    request.set_request_id(2 + read);
    request.mutable_append()->set_session("a");
    request.mutable_append()->set_wait_until_computed(true);
    for (uint64_t token = 0; token < kTurnTokens; ++token) {
      const auto id = static_cast<uint32_t>(10 + random() % 3900);
      request.mutable_append()->mutable_input()->mutable_tokens()->add_ids(id);
    }
    ASSERT_TRUE(client.Send(request));
    const auto events = client.ReceiveAll(request.request_id(), kTurnWaitMs);
    ASSERT_FALSE(events.empty());
    ASSERT_FALSE(events.back().has_failed()) << events.back().ShortDebugString();
    const uint64_t now = RssAnonBytes(server);
    std::printf("%6d tokens: %5.1f MB\n", static_cast<int>(read + kTurnTokens),
                static_cast<double>(now) / 1e6);
    largest = std::max(largest, now);
    if (read + kTurnTokens == kSettledTokens) settled = now;
  }
  EXPECT_LE(largest, kCapBytes + kConstantBytes);
  EXPECT_LE(largest, settled + kGrowthBytes);
  v1::Request stats;
  stats.set_request_id(1'000'000);
  stats.mutable_stats();
  ASSERT_TRUE(client.Send(stats));
  const auto events = client.ReceiveAll(stats.request_id());
  ASSERT_FALSE(events.empty());
  EXPECT_GT(events.back().stats().pages_evicted_from_host(), 0u) << "the cap was never reached";
}

}  // namespace
}  // namespace mneme
