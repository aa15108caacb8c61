// A log put back to an earlier state behind its watermark's back, in every way that happens to
// people: an open says so, names what is missing, refuses those sessions until told otherwise, and
// never gives a promised number again.
#include "memory/watermark.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/fake_clock.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

namespace fs = std::filesystem;
using support::CommitOne;
using support::MakeSession;
using support::MakeTurn;

class WatermarkTest : public ::testing::Test {
 protected:
  WatermarkTest() {
    Open();
    for (const std::string name : {"a", "b"})
      ids_.push_back(CommitOne(log(), MakeSession(name))->receipt.session);
    Append("a", 0, 1, 5);
    Append("b", 1, 1, 5);
  }

  void Open() {
    stores_.Close();
    auto stores = support::OpenLog(path());
    ASSERT_TRUE(stores) << stores.error().message();
    stores_ = std::move(*stores);
  }
  void Append(const std::string& name, size_t index, uint64_t first, uint64_t last) {
    for (uint64_t turn = first; turn <= last; ++turn)
      ASSERT_TRUE(CommitOne(log(), MakeTurn(name, ids_[index], turn)));
  }
  void Keep() {
    stores_.Close();
    fs::copy(path() + "/log", temp_ / "kept");
  }
  void PutBack() {
    stores_.Close();
    fs::remove_all(path() + "/log");
    fs::copy(temp_ / "kept", path() + "/log");
  }
  std::string path() { return temp_ / "store"; }
  TurnStore& log() { return *stores_.log; }
  const Regression& regression() { return log().report().regressions.at(0); }
  SessionCondition condition(size_t index) { return log().GetSession(ids_[index])->condition; }

  support::TempFolder temp_;
  support::OpenStores stores_;
  std::vector<SessionId> ids_;
};

TEST_F(WatermarkTest, AnOlderLogIsNoticedAndItsMissingTurnsAreNamed) {
  Keep();
  Open();
  Append("a", 0, 6, 9);
  const uint64_t promised = log().commit_counter();
  PutBack();
  ::testing::internal::CaptureStderr();
  Open();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const auto session = fmt::format("session={}", ids_[0].value);
  EXPECT_NE(said.find("error log_regressed cause=behind_watermark "), said.npos) << said;
  EXPECT_NE(said.find("error turns_missing " + session + " first_turn=6 last_turn=9"), said.npos)
      << said;
  ASSERT_EQ(log().report().regressions.size(), 1U);
  EXPECT_EQ(regression().cause, RegressionCause::kBehindWatermark);
  EXPECT_EQ(regression().commits_promised, promised);
  EXPECT_EQ(regression().commits_present, promised - 4);
  ASSERT_TRUE(regression().sessions_known);
  ASSERT_EQ(regression().missing.size(), 1U);
  EXPECT_EQ(regression().missing[0].session_id(), ids_[0].value);
  EXPECT_EQ(regression().missing[0].first_turn(), 6U);
  EXPECT_EQ(regression().missing[0].last_turn(), 9U);
  // The other session goes on; this one is refused, also after another restart.
  EXPECT_EQ(condition(0), SessionCondition::kRegressed);
  EXPECT_EQ(CommitOne(log(), MakeTurn("a", ids_[0], 6)).error().code(), ErrorCode::kCorruption);
  const auto other = CommitOne(log(), MakeTurn("b", ids_[1], 6));
  ASSERT_TRUE(other);
  EXPECT_GT(other->receipt.commit_counter, promised);
  Open();
  EXPECT_EQ(log().report().regressions.size(), 1U);
  EXPECT_EQ(condition(0), SessionCondition::kRegressed);
  EXPECT_EQ(condition(1), SessionCondition::kWhole);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(log().AcceptRegression());
  const std::string accepted = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(accepted.find("warning loss_accepted " + session + " turns_left=5"), accepted.npos)
      << accepted;
  Append("a", 0, 6, 6);
  Open();
  EXPECT_TRUE(log().report().regressions.empty());
  EXPECT_EQ(condition(0), SessionCondition::kWhole);
}

TEST_F(WatermarkTest, AnotherHistoryOfTheSameLengthIsNoticed) {
  Keep();
  Open();
  Append("a", 0, 6, 6);
  stores_.Close();
  fs::rename(path(), temp_ / "first");
  fs::create_directory(path());
  fs::copy(temp_ / "first/epoch", path() + "/epoch");
  fs::copy(temp_ / "kept", path() + "/log");
  Open();  // without its watermark
  EXPECT_EQ(regression().cause, RegressionCause::kWatermarkMissing);
  ASSERT_TRUE(log().AcceptRegression());
  Append("b", 1, 6, 9);
  stores_.Close();
  fs::remove_all(temp_ / "first/log");
  fs::copy(path() + "/log", temp_ / "first/log");
  fs::remove_all(path());
  fs::rename(temp_ / "first", path());
  Open();
  ASSERT_EQ(log().report().regressions.size(), 1U);
  EXPECT_EQ(regression().cause, RegressionCause::kDifferentHistory);
  EXPECT_EQ(condition(0), SessionCondition::kRegressed);
  EXPECT_EQ(condition(1), SessionCondition::kRegressed);
}

TEST_F(WatermarkTest, ALostLogIsNotAFreshStore) {
  const StoreId store = stores_.folder->store_id();
  stores_.Close();
  fs::remove_all(path() + "/log");
  Open();
  EXPECT_EQ(stores_.folder->store_id(), store);
  EXPECT_EQ(regression().cause, RegressionCause::kBehindWatermark);
  EXPECT_EQ(regression().commits_present, 0U);
  EXPECT_EQ(regression().missing.size(), 2U);
  // Sessions made from now on have nothing missing, and none of the lost ids.
  const auto fresh = CommitOne(log(), MakeSession("c"));
  ASSERT_TRUE(fresh);
  EXPECT_GT(fresh->receipt.session, ids_[1]);
  EXPECT_TRUE(CommitOne(log(), MakeTurn("c", fresh->receipt.session, 1)));
}

TEST_F(WatermarkTest, AMissingOrUnreadableWatermarkIsSaid) {
  stores_.Close();
  fs::remove(path() + "/watermark");
  Open();
  EXPECT_EQ(regression().cause, RegressionCause::kWatermarkMissing);
  EXPECT_EQ(condition(1), SessionCondition::kRegressed);
  ASSERT_TRUE(log().AcceptRegression());
  stores_.Close();
  for (const uint64_t slot : {0U, 1U}) support::FlipBit(path() + "/watermark", slot * 4096 + 45, 1);
  ::testing::internal::CaptureStderr();
  Open();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("warning watermark_damaged slots=2"), said.npos) << said;
  EXPECT_EQ(regression().cause, RegressionCause::kWatermarkMissing);
  EXPECT_EQ(log().report().watermark_slots_damaged, 2);
  EXPECT_TRUE(fs::exists(path() + "/watermark.damaged"));
}

TEST_F(WatermarkTest, EitherSlotAloneProvesTheLogOfAKilledServer) {
  Append("a", 0, 6, 10);
  ASSERT_TRUE(log().FlushWatermark());
  Append("a", 0, 11, 15);
  ASSERT_TRUE(log().FlushWatermark());
  // Commits after the newest promise forget what no promise needs any more.
  Append("a", 0, 16, 55);
  // What a killed server leaves: its files as they are, without a last promise.
  fs::copy(path(), temp_ / "killed", fs::copy_options::recursive);
  for (const uint64_t slot : {0U, 1U}) {
    stores_.Close();
    fs::remove_all(path());
    fs::copy(temp_ / "killed", path(), fs::copy_options::recursive);
    support::FlipBit(path() + "/watermark", slot * 4096 + 45, 1);
    Open();
    EXPECT_EQ(log().report().watermark_slots_damaged, 1);
    EXPECT_TRUE(log().report().regressions.empty()) << "slot " << slot;
    EXPECT_EQ(condition(0), SessionCondition::kWhole);
  }
}

TEST_F(WatermarkTest, ADeletedSessionThatCameBackIsNamed) {
  Keep();
  Open();
  ASSERT_TRUE(CommitOne(log(), DeleteSession{ids_[1]}));
  PutBack();
  ::testing::internal::CaptureStderr();
  Open();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(fmt::format("error deletion_missing session={}", ids_[1].value)), said.npos)
      << said;
  ASSERT_EQ(regression().missing.size(), 1U);
  EXPECT_EQ(regression().missing[0].session_id(), ids_[1].value);
  EXPECT_EQ(regression().missing[0].last_turn(), 0U);
  EXPECT_EQ(condition(1), SessionCondition::kRegressed);
  EXPECT_TRUE(CommitOne(log(), DeleteSession{ids_[1]}));
}

TEST_F(WatermarkTest, ManyChangesAtOnceAreKnownToBeUnknown) {
  Keep();
  Open();
  for (int i = 0; i < 120; ++i) ASSERT_TRUE(CommitOne(log(), MakeSession(fmt::format("s{}", i))));
  PutBack();
  Open();
  EXPECT_FALSE(regression().sessions_known);
  EXPECT_EQ(condition(0), SessionCondition::kRegressed);
  EXPECT_EQ(condition(1), SessionCondition::kRegressed);
  const auto fresh = CommitOne(log(), MakeSession("later"));
  ASSERT_TRUE(fresh);
  Open();
  EXPECT_EQ(log().GetSession(fresh->receipt.session)->condition, SessionCondition::kWhole);
}

TEST_F(WatermarkTest, IsFlushedOnceASecondWhileCommitting) {
  support::TempFolder temp;
  support::FakeClock clock;
  auto stores = support::OpenLog(temp / "store", {}, clock);
  ASSERT_TRUE(stores);
  const auto session = CommitOne(*stores->log, MakeSession("a"))->receipt.session;
  const auto promised = [&] {
    auto watermark = Watermark::Open(*stores->folder);
    return watermark->found()->commit_counter();
  };
  EXPECT_EQ(promised(), 0U);
  ASSERT_TRUE(CommitOne(*stores->log, MakeTurn("a", session, 1)));
  EXPECT_EQ(promised(), 0U);
  clock.AdvanceMs(1'000);
  ASSERT_TRUE(CommitOne(*stores->log, MakeTurn("a", session, 2)));
  EXPECT_EQ(promised(), 3U);
  ASSERT_TRUE(CommitOne(*stores->log, MakeTurn("a", session, 3)));
  ASSERT_TRUE(stores->log->FlushWatermark());
  EXPECT_EQ(promised(), 4U);
}

}  // namespace
}  // namespace mneme::memory
