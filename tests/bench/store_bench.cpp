// The stores on the disk of the temporary folder: how long a synced commit takes, alone and in
// groups, and how fast page groups are written and read.
//
//   TMPDIR=/some/disk store_bench
//
// A flush on a busy disk takes as long as the others' do: compare minimum times.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

constexpr int kKeyDim = 128;          // with two value heads: groups of 128 KiB
constexpr uint64_t kReadNodes = 256;  // of four groups: 128 MiB, more than the caches here hold

// A group of turns of 200 tokens, one a session, in one commit.
void CommitTurns(benchmark::State& state) {
  const support::TempFolder temp;
  auto stores = support::OpenLog(temp / "store");
  const auto group = static_cast<size_t>(state.range(0));
  std::vector<LogEntry> entries;
  for (size_t i = 0; i < group; ++i) entries.emplace_back(support::MakeSession(std::to_string(i)));
  stores->log->Commit(entries);
  uint64_t turn = 0;
  for (auto _ : state) {
    turn += 1;
    for (size_t i = 0; i < group; ++i)
      entries[i] = support::MakeTurn(std::to_string(i), {i + 1}, turn, 200);
    for (const auto& done : stores->log->Commit(entries))
      if (!done) state.SkipWithError(done.error().message().c_str());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(CommitTurns)->Arg(1)->Arg(8)->Arg(32)->UseRealTime()->Unit(benchmark::kMicrosecond);

void WriteGroups(benchmark::State& state) {
  const support::TempFolder temp;
  auto stores = support::Open(temp / "store");
  const NodeKey node = support::CaseNodeKey("warm", 0);
  std::vector<std::vector<std::byte>> groups;
  for (int head = 0; head < 8; ++head)
    groups.push_back(support::MakeGroup(support::CaseGroupKey(node, 0, head), kKeyDim));
  uint64_t index = 0;
  for (auto _ : state) {
    const NodeKey key = support::CaseNodeKey("w", index++);
    std::vector<PageWrite> slab;
    for (int head = 0; head < 8; ++head)
      slab.push_back(
          {.key = support::CaseGroupKey(key, 0, head), .value = groups[static_cast<size_t>(head)]});
    if (const Status written = stores->pages->Write(slab); !written)
      state.SkipWithError(written.error().message().c_str());
  }
  if (!stores->pages->Sync()) state.SkipWithError("sync");
  state.SetBytesProcessed(state.iterations() * 8 * static_cast<int64_t>(groups[0].size()));
}
BENCHMARK(WriteGroups)->Iterations(400)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Random groups, direct from the disk, checked and copied.
class ReadGroups : public benchmark::Fixture {
 public:
  void SetUp(const benchmark::State& state) override {
    if (state.thread_index() != 0) return;
    temp_ = std::make_unique<support::TempFolder>();
    auto stores = support::Open(*temp_ / "store");
    stores_ = std::make_unique<support::OpenStores>(std::move(*stores));
    for (uint64_t node = 0; node < kReadNodes; ++node)
      (void)support::WriteNodeValues(*stores_->pages, support::CaseNodeKey("r", node), kKeyDim);
    (void)stores_->pages->Compact();
  }
  void TearDown(const benchmark::State& state) override {
    if (state.thread_index() != 0) return;
    stores_.reset();
    temp_.reset();
  }
  PageStore& pages() { return *stores_->pages; }

 private:
  std::unique_ptr<support::TempFolder> temp_;
  std::unique_ptr<support::OpenStores> stores_;
};

BENCHMARK_DEFINE_F(ReadGroups, Random)(benchmark::State& state) {
  std::vector<std::byte> destination(256 * kKiB);
  uint64_t at = static_cast<uint64_t>(state.thread_index()) * 7'919;
  int64_t bytes = 0;
  for (auto _ : state) {
    at = at * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t pick = at >> 33;
    const PageKey key = support::CaseGroupKey(support::CaseNodeKey("r", pick % kReadNodes),
                                              static_cast<int>(pick / kReadNodes % 2),
                                              static_cast<int>(pick / kReadNodes / 2 % 2));
    const auto read = pages().Read(key, destination);
    if (!read) {
      state.SkipWithError(read.error().message().c_str());
      break;
    }
    bytes += static_cast<int64_t>(*read);
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK_REGISTER_F(ReadGroups, Random)
    ->Threads(1)
    ->Threads(4)
    ->Threads(8)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Opening a log of this many turns: every chain is read and checked.
void OpenLogOf(benchmark::State& state) {
  const support::TempFolder temp;
  {
    auto stores = support::OpenLog(temp / "store");
    (void)support::CommitOne(*stores->log, support::MakeSession("a"));
    std::vector<LogEntry> entries;
    for (int64_t turn = 1; turn <= state.range(0); ++turn) {
      entries.emplace_back(support::MakeTurn("a", {1}, static_cast<uint64_t>(turn), 1'000));
      if (turn % 200 != 0 && turn != state.range(0)) continue;
      stores->log->Commit(entries);
      entries.clear();
    }
  }
  int64_t bytes = 0;
  for (auto _ : state) {
    auto stores = support::OpenLog(temp / "store");
    bytes += static_cast<int64_t>(stores->log->report().turn_bytes);
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(OpenLogOf)->Arg(1'000)->Arg(20'000)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mneme::memory
