// The log under damage and failing disks. Whatever was flipped, cut, lost or refused: an open
// either gives every acknowledged turn, or says what it does not give; and after a failed flush
// nothing more is acknowledged.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/power_loss_file_system.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

namespace fs = std::filesystem;
using support::CommitOne;
using support::MakeSession;
using support::MakeTurn;

constexpr uint64_t kTurns = 20;
constexpr std::array<const char*, 3> kNames = {"a", "b", "c"};

class TurnStoreFaultTest : public ::testing::Test {
 protected:
  std::string path() { return temp_ / "store"; }
  std::string wal(const std::string& store) {
    return support::FilesOf(store + "/log", ".log").back();
  }

  // Three sessions of twenty turns, one commit a turn round; then the folder as kill -9 leaves it,
  // with all of it promised.
  void MakeKilledStore(int tokens = 40) {
    auto stores = support::OpenLog(temp_ / "alive");
    ASSERT_TRUE(stores) << stores.error().message();
    std::vector<LogEntry> sessions;
    for (const char* name : kNames) sessions.emplace_back(MakeSession(name));
    ASSERT_EQ(stores->log->Commit(sessions).size(), 3U);
    for (uint64_t turn = 1; turn <= kTurns; ++turn) {
      std::vector<LogEntry> entries;
      for (size_t i = 0; i < kNames.size(); ++i)
        entries.emplace_back(MakeTurn(kNames[i], {i + 1}, turn, tokens));
      for (const auto& done : stores->log->Commit(entries)) ASSERT_TRUE(done);
    }
    ASSERT_TRUE(stores->log->FlushWatermark());
    fs::copy(temp_ / "alive", temp_ / "killed", fs::copy_options::recursive);
  }
  void Restore() {
    fs::remove_all(path());
    fs::copy(temp_ / "killed", path(), fs::copy_options::recursive);
  }
  // Turns that can be read and are right; a wrong one fails the test.
  static uint64_t RightTurns(const TurnStore& log) {
    uint64_t right = 0;
    for (size_t i = 0; i < kNames.size(); ++i) {
      const auto session = log.GetSession({i + 1});
      if (!session) continue;
      for (uint64_t turn = 1; turn <= session->head.turn(); ++turn)
        if (const auto read = log.ReadTurn({i + 1}, {turn}); read) {
          EXPECT_TRUE(support::IsTurn(kNames[i], turn, read->record));
          right += 1;
        }
    }
    return right;
  }
  static bool SaysSo(const OpenReport& report) {
    return !report.regressions.empty() || !report.damaged.empty();
  }

  support::TempFolder temp_;
};

TEST_F(TurnStoreFaultTest, AFlippedBitInTheLogNeverLosesATurnInSilence) {
  MakeKilledStore();
  Restore();
  const uint64_t bytes = fs::file_size(wal(path()));
  int refused = 0;
  constexpr uint64_t kFlips = 16;
  for (uint64_t flip = 0; flip < kFlips; ++flip) {
    Restore();
    support::FlipBit(wal(path()), bytes * flip / kFlips + flip % 5, static_cast<int>(flip % 8));
    const auto stores = support::OpenLog(path());
    if (!stores) {
      EXPECT_EQ(stores.error().code(), ErrorCode::kCorruption);
      refused += 1;
    } else if (RightTurns(*stores->log) != kTurns * 3) {
      EXPECT_TRUE(SaysSo(stores->log->report())) << "flip " << flip;
    }
  }
  EXPECT_GE(refused, 12);
}

TEST_F(TurnStoreFaultTest, ARefusedLogOpensUpToItsDamageWhenToldTo) {
  MakeKilledStore();
  Restore();
  support::FlipBit(wal(path()), fs::file_size(wal(path())) / 2, 2);
  ASSERT_FALSE(support::OpenLog(path()));
  ASSERT_FALSE(support::OpenLog(path()));  // refusing changed nothing
  auto stores = support::OpenLog(path(), {.accept_damage = true});
  ASSERT_TRUE(stores) << stores.error().message();
  EXPECT_TRUE(stores->log->report().damage_accepted);
  const uint64_t right = RightTurns(*stores->log);
  EXPECT_GT(right, 20U);
  EXPECT_LT(right, 40U);
  ASSERT_EQ(stores->log->report().regressions.size(), 1U);
  const Regression& regression = stores->log->report().regressions[0];
  ASSERT_EQ(regression.missing.size(), 3U);
  EXPECT_EQ(regression.missing[0].first_turn(), right / 3 + 1);
  EXPECT_EQ(regression.missing[0].last_turn(), kTurns);
  ASSERT_TRUE(stores->log->AcceptRegression());
  EXPECT_TRUE(CommitOne(*stores->log, MakeTurn("a", {1}, right / 3 + 1, 40)));
}

TEST_F(TurnStoreFaultTest, ACutEmptyOrLostLogFileIsNoticed) {
  MakeKilledStore();
  for (const int what : {0, 1, 2, 3}) {
    Restore();
    const uint64_t bytes = fs::file_size(wal(path()));
    if (what == 0) fs::resize_file(wal(path()), bytes / 2);
    if (what == 1) fs::resize_file(wal(path()), bytes - 3);
    if (what == 2) fs::resize_file(wal(path()), 0);
    if (what == 3) fs::remove(wal(path()));
    const auto stores = support::OpenLog(path());
    ASSERT_TRUE(stores) << stores.error().message();
    EXPECT_LT(RightTurns(*stores->log), kTurns * 3) << what;
    ASSERT_EQ(stores->log->report().regressions.size(), 1U) << what;
    EXPECT_EQ(stores->log->report().regressions[0].cause, RegressionCause::kBehindWatermark);
  }
}

TEST_F(TurnStoreFaultTest, ATornUnacknowledgedBatchIsDroppedWithoutComplaint) {
  MakeKilledStore();
  Restore();
  const uint64_t acknowledged = fs::file_size(wal(path()));
  {
    // One more batch, then the cut in the middle of it: the watermark does not know it.
    auto stores = support::OpenLog(temp_ / "alive");
    ASSERT_TRUE(stores);
  }
  std::ofstream(wal(path()), std::ios::binary | std::ios::app)
      << std::string("\x12\x34\x56\x78\x40\x00\x01", 7) << std::string(64, 'x');
  ASSERT_GT(fs::file_size(wal(path())), acknowledged);
  const auto stores = support::OpenLog(path());
  ASSERT_TRUE(stores) << stores.error().message();
  EXPECT_TRUE(stores->log->report().torn_tail_dropped);
  EXPECT_FALSE(SaysSo(stores->log->report()));
  EXPECT_EQ(RightTurns(*stores->log), kTurns * 3);
}

TEST_F(TurnStoreFaultTest, DamageInATableCostsItsOwnSessionOnly) {
  MakeKilledStore(/*tokens=*/2'000);
  Restore();
  {
    auto stores = support::OpenLog(path());
    ASSERT_TRUE(stores);
    ASSERT_TRUE(stores->log->Compact());
  }
  const std::string table = support::FilesOf(path() + "/log", ".sst").back();
  support::FlipBit(table, fs::file_size(table) / 2,
                   1);  // turns are last, session 2 in their middle
  auto stores = support::OpenLog(path());
  ASSERT_TRUE(stores) << stores.error().message();
  TurnStore& log = *stores->log;
  ASSERT_EQ(log.report().damaged.size(), 1U);
  EXPECT_EQ(log.report().damaged[0].session.value, 2U);
  EXPECT_EQ(log.report().damaged[0].head.value, kTurns);
  EXPECT_EQ(log.GetSession({2})->condition, SessionCondition::kDamaged);
  EXPECT_EQ(NameOf(SessionCondition::kDamaged), "damaged");
  EXPECT_EQ(log.SessionsRefused(), 1U);
  EXPECT_EQ(log.ReadTurn({2}, log.report().damaged[0].first_bad).error().code(),
            ErrorCode::kCorruption);
  EXPECT_EQ(CommitOne(log, MakeTurn("b", {2}, kTurns + 1)).error().code(), ErrorCode::kCorruption);
  EXPECT_TRUE(CommitOne(log, MakeTurn("a", {1}, kTurns + 1)));
  EXPECT_TRUE(CommitOne(log, MakeTurn("c", {3}, kTurns + 1)));
  EXPECT_TRUE(CommitOne(log, DeleteSession{{2}}));
  EXPECT_EQ(log.SessionsRefused(), 0U);
  stores->Close();
  fs::resize_file(table, fs::file_size(table) / 2);
  EXPECT_EQ(support::OpenLog(path()).error().code(), ErrorCode::kCorruption);
  fs::remove(table);
  EXPECT_EQ(support::OpenLog(path()).error().code(), ErrorCode::kCorruption);
}

TEST_F(TurnStoreFaultTest, DamageMetByAReadMakesItsSessionDamagedOnce) {
  MakeKilledStore(/*tokens=*/2'000);
  Restore();
  auto stores = support::OpenLog(path());
  ASSERT_TRUE(stores);
  TurnStore& log = *stores->log;
  ASSERT_TRUE(log.Compact());
  EXPECT_EQ(log.SessionsRefused(), 0U);
  for (const std::string& table : support::FilesOf(path() + "/log", ".sst"))
    fs::resize_file(table, 100);
  ::testing::internal::CaptureStderr();
  const auto turn = log.ReadTurn({2}, {1});
  EXPECT_FALSE(log.ReadTurns({2}, {1}, {2}, [](const auto&) { return true; }));
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_FALSE(turn);
  EXPECT_EQ(turn.error().code(), ErrorCode::kCorruption);
  EXPECT_TRUE(turn.error().message().starts_with("session b turn 1: ")) << turn.error().message();
  const size_t line = said.find("warning session_damaged session=2 first_bad_turn=1 ");
  ASSERT_NE(line, said.npos) << said;
  EXPECT_EQ(said.find("session_damaged", line + 20), said.npos) << said;
  EXPECT_EQ(log.GetSession({2})->condition, SessionCondition::kDamaged);
  EXPECT_EQ(log.SessionsRefused(), 1U) << "nothing else was read";
  EXPECT_EQ(CommitOne(log, MakeTurn("b", {2}, kTurns + 1)).error().message(),
            "session b: its chain of turns is damaged");
  EXPECT_TRUE(CommitOne(log, DeleteSession{{2}}));
  EXPECT_EQ(log.SessionsRefused(), 0U);
}

TEST_F(TurnStoreFaultTest, AfterAFailedFlushNothingIsAcknowledgedAndARetryIsSafe) {
  auto disk = std::make_shared<support::PowerLossFileSystem>();
  const auto env = rocksdb::NewCompositeEnv(disk);
  auto stores = support::OpenLog(path(), {.env = env.get()});
  ASSERT_TRUE(stores);
  ASSERT_TRUE(CommitOne(*stores->log, MakeSession("a")));
  ASSERT_TRUE(CommitOne(*stores->log, MakeTurn("a", {1}, 1)));
  disk->FailFlushAfter(0);
  const auto unknown = CommitOne(*stores->log, MakeTurn("a", {1}, 2));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().reason(), Reason::kOutcomeUnknown);
  EXPECT_EQ(disk->failed_flushes(), 1);
  EXPECT_TRUE(stores->log->failed());
  const auto refused = CommitOne(*stores->log, MakeTurn("a", {1}, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().reason(), Reason::kNone);
  EXPECT_FALSE(stores->log->FlushWatermark());
  EXPECT_TRUE(stores->log->ReadTurn({1}, {1}));
  stores->Close();
  auto again = support::OpenLog(path());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_FALSE(SaysSo(again->log->report()));
  const auto retried = CommitOne(*again->log, MakeTurn("a", {1}, 2));
  ASSERT_TRUE(retried) << retried.error().message();
  EXPECT_EQ(retried->receipt.turn.value, 2U);
  EXPECT_EQ(again->log->GetSession({1})->head.turn(), 2U);
}

// Commits until it works again; the seconds that took, or 99.
int SecondsUntilItGoesOn(TurnStore& log, const AppendTurn& turn) {
  for (int second = 0; second < 60; ++second) {
    if (CommitOne(log, turn)) return second / 4;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  return 99;
}

TEST_F(TurnStoreFaultTest, AFullDiskIsATypedAnswerAndGoesAwayByItself) {
  constexpr auto kDiskBytes = "size=48m";
  const std::string disk = temp_ / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, kDiskBytes) != 0)
    GTEST_SKIP() << "needs the right to mount a small tmpfs";
  {
    std::ofstream(disk + "/ballast") << std::string(16 * kMiB, 'x');
    // RocksDB goes on once a write buffer's worth is free.
    auto stores = support::Open(disk + "/store", {.write_buffer_bytes = 4 * kMiB},
                                {.write_buffer_bytes = 4 * kMiB});
    ASSERT_TRUE(stores) << stores.error().message();
    ASSERT_TRUE(CommitOne(*stores->log, MakeSession("a")));
    uint64_t turn = 0;
    Result<Committed> last;
    uint64_t nodes = 0;
    while (nodes < 400 &&
           support::WriteNodeValues(*stores->pages, support::CaseNodeKey("a", nodes), 64))
      nodes += 1;
    ASSERT_LT(nodes, 400U);
    for (turn = 1; turn < 4'000; ++turn)
      if (last = CommitOne(*stores->log, MakeTurn("a", {1}, turn, 5'000)); !last) break;
    ASSERT_FALSE(last);
    EXPECT_EQ(last.error().reason(), Reason::kStoreFull) << last.error().message();
    EXPECT_FALSE(stores->log->failed());
    ASSERT_GT(turn, 1U);
    EXPECT_TRUE(stores->log->ReadTurn({1}, {turn - 1}));
    EXPECT_EQ(stores->log->GetSession({1})->head.turn(), turn - 1);
    fs::remove(disk + "/ballast");
    EXPECT_LE(SecondsUntilItGoesOn(*stores->log, MakeTurn("a", {1}, turn, 5'000)), 15);
    bool pages_go_on = false;
    for (int i = 0; i < 60 && !pages_go_on; ++i) {
      pages_go_on =
          bool{support::WriteNodeValues(*stores->pages, support::CaseNodeKey("b", 0), 64)};
      if (!pages_go_on) std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
    EXPECT_TRUE(pages_go_on);
    for (uint64_t node = 0; node < nodes; ++node)
      EXPECT_TRUE(support::CheckNodeValues(*stores->pages, support::CaseNodeKey("a", node), 64));
    stores->Close();
    auto again = support::OpenLog(disk + "/store");
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_FALSE(SaysSo(again->log->report()));
    EXPECT_EQ(again->log->GetSession({1})->head.turn(), turn);
    EXPECT_EQ(again->log->report().turns, turn);
  }
  ::umount2(disk.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace mneme::memory
