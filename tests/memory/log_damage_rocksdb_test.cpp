// The log with every file of its database damaged, cut, emptied or removed: an open gives every
// acknowledged turn, or says which are missing, or refuses with the file's name and what to do, and
// then leaves what is whole so that putting the file back brings everything back.
#include "memory/log_damage_rocksdb.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

namespace fs = std::filesystem;
using support::CommitOne;
using support::MakeSession;
using support::MakeTurn;

constexpr uint64_t kTurns = 60;

class LogDamageTest : public ::testing::Test {
 protected:
  // One session of many turns, in a few tables and a write-ahead log.
  void SetUp() override {
    MakeStore();
    fs::rename(temp_ / "alive", temp_ / "whole");
    Restore();
    ASSERT_GE(support::FilesOf(log(), ".sst").size(), 2U);
  }
  void MakeStore() {
    uint64_t turn = 0;
    for (uint64_t life = 1; life <= 3; ++life) {  // each open makes a table of the log before it
      auto stores = support::OpenLog(temp_ / "alive");
      ASSERT_TRUE(stores) << stores.error().message();
      ASSERT_EQ(bool{CommitOne(*stores->log, MakeSession("a"))}, life == 1);
      while (turn < kTurns * life / 3)
        ASSERT_TRUE(CommitOne(*stores->log, MakeTurn("a", {1}, ++turn, 1500)));
    }
  }
  void Restore() {
    fs::remove_all(path());
    fs::copy(temp_ / "whole", path(), fs::copy_options::recursive);
  }

  std::string path() { return temp_ / "store"; }
  std::string log() { return path() + "/log"; }
  std::string Find(std::string_view start) {
    for (const auto& entry : fs::directory_iterator(log()))
      if (entry.path().filename().string().starts_with(start)) return entry.path();
    return "";
  }
  std::string NameOf(const std::string& file) { return fs::path(file).filename(); }

  static bool HasAll(const TurnStore& log) {
    const auto session = log.GetSession({1});
    if (!session || session->head.turn() != kTurns) return false;
    uint64_t right = 0;
    const Status read = log.ReadTurns({1}, {1}, {kTurns}, [&](const StoredTurn& turn) {
      right += support::IsTurn("a", right + 1, turn.record) ? 1 : 0;
      return true;
    });
    return read && right == kTurns;
  }
  std::map<std::string, uint64_t> Tables() {
    std::map<std::string, uint64_t> tables;
    for (const std::string& table : support::FilesOf(log(), ".sst"))
      tables[NameOf(table)] = fs::file_size(table);
    return tables;
  }

  // The refusal names the file and the remedy, keeps what is whole, and goes when the file is back.
  void ExpectRefused(const std::string& file, const std::function<void()>& damage,
                     const std::string& words) {
    SCOPED_TRACE(NameOf(file) + " " + words);
    Restore();
    damage();
    const auto left = Tables();
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto refused = support::OpenLog(path());
      ASSERT_FALSE(refused) << attempt;
      const std::string& message = refused.error().message();
      EXPECT_EQ(refused.error().code(), ErrorCode::kCorruption) << message;
      EXPECT_NE(message.find(NameOf(file)), std::string::npos) << message;
      EXPECT_NE(message.find(words), std::string::npos) << message;
      EXPECT_NE(message.find("restore the whole store folder from a copy"), std::string::npos);
      EXPECT_NE(message.find("61 commits were acknowledged"), std::string::npos) << message;
      EXPECT_EQ(message.find(path()), std::string::npos) << message;
      EXPECT_EQ(message.find("Corruption:"), std::string::npos) << "RocksDB's words: " << message;
    }
    for (const auto& [table, bytes] : left) EXPECT_TRUE(Tables().contains(table)) << table;
    fs::copy(temp_ / "whole" + ("/log/" + NameOf(file)), file,
             fs::copy_options::overwrite_existing);
    const auto again = support::OpenLog(path());
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_TRUE(HasAll(*again->log));
    EXPECT_TRUE(again->log->report().regressions.empty());
  }

  support::TempFolder temp_;
};

TEST_F(LogDamageTest, AListOfTablesThatIsGoneOrUnreadableIsNamed) {
  const std::string manifest = Find("MANIFEST-");
  const std::string current = Find("CURRENT");
  ExpectRefused(
      manifest, [&] { fs::remove(manifest); }, "is missing");
  ExpectRefused(
      manifest, [&] { fs::resize_file(manifest, 0); }, "not known to be lost");
  ExpectRefused(
      manifest, [&] { support::FlipBit(manifest, 20, 3); }, "not known to be lost");
  ExpectRefused(
      current, [&] { fs::remove(current); }, "is missing");
  ExpectRefused(
      current, [&] { fs::resize_file(current, 0); }, "cannot be read");
  ExpectRefused(
      current, [&] { support::FlipBit(current, 2, 3); }, "cannot be read");
}

TEST_F(LogDamageTest, ATableThatIsGoneCutOrUnreadableIsNamed) {
  for (const std::string& table : support::FilesOf(log(), ".sst")) {
    const uint64_t bytes = fs::file_size(table);
    ExpectRefused(
        table, [&] { fs::remove(table); }, "is missing");
    ExpectRefused(
        table, [&] { fs::resize_file(table, bytes / 2); }, "cannot be read");
    ExpectRefused(
        table, [&] { fs::resize_file(table, 0); }, "cannot be read");
    ExpectRefused(
        table, [&] { support::FlipBit(table, bytes - 10, 3); }, "cannot be read");
  }
}

// Anywhere in any file: refused, whole, or said.
TEST_F(LogDamageTest, NoDamageLosesATurnInSilence) {
  std::set<std::string> files = {Find("MANIFEST-"), Find("CURRENT")};
  for (const std::string& table : support::FilesOf(log(), ".sst")) files.insert(table);
  int refused = 0;
  for (const std::string& file : files) {
    const uint64_t bytes = fs::file_size(file);
    for (uint64_t at = 0; at < 24; ++at) {
      SCOPED_TRACE(fmt::format("{} at {} of 24", NameOf(file), at));
      Restore();
      if (at % 2 == 0) {
        support::FlipBit(file, bytes * at / 24, static_cast<int>(at % 8));
      } else {
        fs::resize_file(file, bytes * at / 24);
      }
      const auto opened = support::OpenLog(path());
      if (!opened) {
        EXPECT_EQ(opened.error().code(), ErrorCode::kCorruption) << opened.error().message();
        EXPECT_NE(opened.error().message().find("restore"), std::string::npos)
            << opened.error().message();
        ++refused;
      } else if (!HasAll(*opened->log)) {
        const OpenReport& report = opened->log->report();
        EXPECT_TRUE(!report.damaged.empty() || !report.regressions.empty());
      }
    }
  }
  EXPECT_GT(refused, 30);
}

TEST_F(LogDamageTest, AnEmptyFolderIsNoDamage) {
  const support::TempFolder empty;
  EXPECT_TRUE(CheckLogFiles(empty.path()));
}

}  // namespace
}  // namespace mneme::memory
