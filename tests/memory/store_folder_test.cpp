// The folder's lock against every way round it that a real second process has, and the epochs
// against damage of their file.
#include "memory/store_folder.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file_error.h"
#include "tests/support/fake_clock.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

// Exit code of a process that tries to open the folder: 0 it could, 1 in use, 2 anything else.
int TryInAnotherProcess(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto folder = StoreFolder::Open(path);
    ::_exit(folder ? 0 : folder.error().code() == ErrorCode::kConflict ? 1 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

std::string Snapshot(const std::string& path) {
  std::string text;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_regular_file())
      text += fmt::format("{} {} {}\n", entry.path().string(), entry.file_size(),
                          entry.last_write_time().time_since_epoch().count());
  return text;
}

TEST(StoreFolderTest, RefusesASecondProcessByAnyPathAndChangesNothing) {
  const support::TempFolder temp;
  const std::string path = temp / "store";
  auto stores = support::OpenLog(path);
  ASSERT_TRUE(stores);
  std::filesystem::create_directory_symlink(path, temp / "link");
  std::filesystem::remove(path + "/log/LOCK");
  const std::string before = Snapshot(path);
  EXPECT_EQ(TryInAnotherProcess(path), 1);
  EXPECT_EQ(TryInAnotherProcess(temp / "link"), 1);
  EXPECT_EQ(TryInAnotherProcess(path + "/../store/log/.."), 1);
  EXPECT_EQ(Snapshot(path), before);
  stores->Close();
  EXPECT_EQ(TryInAnotherProcess(path), 0);
}

// Before anybody opens one and waits for its other end.
TEST(StoreFolderTest, RefusesAPipeInPlaceOfAnyFile) {
  const support::TempFolder temp;
  const std::string path = temp / "store";
  {
    auto stores = support::Open(path);
    ASSERT_TRUE(stores);
  }
  std::vector<std::string> files = {path + "/fingerprints", path + "/log/direct_probe"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  ASSERT_GT(files.size(), 10u);
  const std::string aside = temp / "aside";
  for (const std::string& file : files) {
    const bool there = std::filesystem::exists(file);
    if (there) std::filesystem::rename(file, aside);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0) << file;
    const auto refused = support::Open(path);
    ASSERT_FALSE(refused) << file;
    EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
    EXPECT_NE(refused.error().message().find(file + ": it is a pipe"), std::string::npos)
        << refused.error().message();
    std::filesystem::remove(file);
    if (there) std::filesystem::rename(aside, file);
  }
  EXPECT_TRUE(support::Open(path));
}

TEST(StoreFolderTest, NamesTheProcessThatHasIt) {
  const support::TempFolder temp;
  auto stores = support::OpenLog(temp / "store");
  ASSERT_TRUE(stores);
  const auto second = StoreFolder::Open(temp / "store");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message(),
            fmt::format("store folder {} is in use by process {} (epoch 1); stop it or choose "
                        "another folder",
                        temp / "store", ::getpid()));
}

// While it lives this thread's files are a stranger's, also where the tests run as root.
class AsNobody {
 public:
  AsNobody() { ::setfsuid(kNobody); }
  ~AsNobody() { ::setfsuid(::geteuid()); }

 private:
  static constexpr uid_t kNobody = 65534;
};

TEST(StoreFolderTest, NamesPathAndRemedyWhereItCannotBeUsed) {
  const support::TempFolder temp;
  namespace fs = std::filesystem;
  std::ofstream(temp / "file") << "x";
  const auto in_a_file = StoreFolder::Open(temp / "file/store");
  ASSERT_FALSE(in_a_file);
  EXPECT_EQ(in_a_file.error().message(),
            fmt::format("store folder {}: cannot be made: Not a directory; {}", temp / "file/store",
                        FileRemedy(ENOTDIR)));

  const std::string path = temp / "store";
  ASSERT_TRUE(support::OpenLog(path));
  fs::permissions(temp / ".", fs::perms(0777));
  const auto message = [](const auto& result) {
    return result ? std::string("no error") : result.error().message();
  };
  fs::permissions(path, fs::perms(0555));
  fs::permissions(path + "/epoch", fs::perms(0444));
  {
    const AsNobody nobody;
    EXPECT_EQ(message(StoreFolder::Open(path + "/new")),
              fmt::format("store folder {}/new: cannot be made: Permission denied; {}", path,
                          FileRemedy(EACCES)));
    EXPECT_EQ(
        message(StoreFolder::Open(path)),
        fmt::format("{}/epoch: cannot be opened: Permission denied; {}", path, FileRemedy(EACCES)));
  }
  fs::permissions(path + "/epoch", fs::perms(0666));
  for (const auto& entry : fs::directory_iterator(path + "/log"))
    fs::permissions(entry.path(), fs::perms(0444));
  fs::permissions(path + "/log", fs::perms(0555));
  const AsNobody nobody;
  auto folder = StoreFolder::Open(path);
  ASSERT_TRUE(folder) << folder.error().message();
  const std::string watermark = message(OpenTurnStore(*folder, {}));
  EXPECT_EQ(watermark.find(path + "/watermark: cannot be opened: Permission denied"), 0u)
      << watermark;
  ::setfsuid(::geteuid());
  fs::permissions(path + "/watermark", fs::perms(0666));
  const AsNobody again;
  const std::string log = message(OpenTurnStore(*folder, {}));
  EXPECT_NE(log.find(path + "/log: open log: "), std::string::npos) << log;
  EXPECT_NE(log.find(FileRemedy(EACCES)), std::string::npos) << log;
}

TEST(StoreFolderTest, RefusesToBeginOnADiskThatHasLessFreeThanItNeeds) {
  const support::TempFolder temp;
  const std::string path = temp / "a/b/store";
  EXPECT_TRUE(StoreFolder::CheckRoomForNew(path));
  const auto refused = StoreFolder::CheckRoomForNew(path, {.soft_bytes = uint64_t{1} << 60});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason(), Reason::kStoreFull);
  EXPECT_NE(refused.error().message().find("needs 1099511627776 MiB"), std::string::npos)
      << refused.error().message();
  EXPECT_FALSE(std::filesystem::exists(temp / "a"));
  ASSERT_TRUE(support::OpenLog(temp / "store"));
  EXPECT_TRUE(StoreFolder::CheckRoomForNew(temp / "store", {.soft_bytes = uint64_t{1} << 60}))
      << "what is there is served, however full the disk";
}

TEST(StoreFolderTest, EveryOpenRaisesTheEpochAndKeepsTheStoreId) {
  const support::TempFolder temp;
  std::optional<StoreId> id;
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    auto stores = support::OpenLog(temp / "store");
    ASSERT_TRUE(stores);
    EXPECT_EQ(stores->folder->epoch(), epoch);
    EXPECT_EQ(stores->folder->store_id(), id.value_or(stores->folder->store_id()));
    id = stores->folder->store_id();
  }
}

TEST(StoreFolderTest, NeverRepeatsAnEpochAfterDamageOrLossOfItsFile) {
  const support::TempFolder temp;
  const std::string path = temp / "store";
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(support::OpenLog(path));
  support::FlipBit(path + "/epoch", 44, 3);  // epoch 4 lies in the first slot
  ::testing::internal::CaptureStderr();
  {
    auto stores = support::OpenLog(path);
    ASSERT_TRUE(stores);
    EXPECT_GT(stores->folder->epoch(), 4U);
  }
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("warning epoch_renewed found=true damaged_slots=1"), said.npos) << said;
  std::filesystem::remove(path + "/epoch");
  ::testing::internal::CaptureStderr();
  auto stores = support::OpenLog(path);
  said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(stores);
  EXPECT_GT(stores->folder->epoch(), 5U);
  EXPECT_NE(said.find("warning epoch_renewed found=false damaged_slots=0"), said.npos) << said;
}

TEST(StoreFolderTest, RefusesALogThatIsAnotherStores) {
  const support::TempFolder temp;
  for (const std::string name : {"one", "two"}) {
    auto stores = support::OpenLog(temp / name);
    ASSERT_TRUE(stores);
    ASSERT_TRUE(support::CommitOne(*stores->log, support::MakeSession(name)));
  }
  std::filesystem::remove_all(temp / "one/log");
  std::filesystem::copy(temp / "two/log", temp / "one/log");
  const auto promised = std::filesystem::last_write_time(temp / "one/watermark");
  const auto mixed = support::OpenLog(temp / "one");
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code(), ErrorCode::kCorruption);
  // A refused open leaves the promise as it was.
  EXPECT_EQ(std::filesystem::last_write_time(temp / "one/watermark"), promised);
}

TEST(StoreFolderTest, TellsHowMuchRoomTheDiskHas) {
  const support::TempFolder temp;
  support::FakeClock clock;
  // No disk has an exbibyte free.
  auto folder =
      StoreFolder::Open(temp / "store", {.soft_bytes = kGiB * kGiB, .hard_bytes = 1}, clock);
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->room(), DiskRoom::kBelowSoft);
  auto full = StoreFolder::Open(temp / "full", {.soft_bytes = 1, .hard_bytes = kGiB * kGiB}, clock);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->room(), DiskRoom::kBelowHard);
  auto empty = StoreFolder::Open(temp / "empty", support::NoMarks(), clock);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->room(), DiskRoom::kEnough);
}

TEST(StoreFolderTest, MarksAreThoseOfTheDiskAndLeaveRoomOnASmallOne) {
  const SpaceMarks large = MarksFor({}, 100 * kGiB);
  EXPECT_EQ(large.soft_bytes, 5 * kGiB);
  EXPECT_EQ(large.hard_bytes, 256 * kMiB);
  const SpaceMarks middle = MarksFor({}, 8 * kGiB);
  EXPECT_EQ(middle.soft_bytes, kGiB);
  const SpaceMarks small = MarksFor({}, 32 * kMiB);
  EXPECT_EQ(small.soft_bytes, 8 * kMiB);
  EXPECT_EQ(small.hard_bytes, 2 * kMiB);
  EXPECT_EQ(MarksFor({.soft_bytes = 3, .hard_bytes = 2}, 8 * kGiB).hard_bytes, 2U);
}

TEST(StoreFolderTest, ARefusalSaysHowMuchIsFreeAndHowMuchIsWanted) {
  const support::TempFolder temp;
  const auto folder =
      StoreFolder::Open(temp / "store", {.soft_bytes = 4 * kMiB, .hard_bytes = 2 * kMiB});
  ASSERT_TRUE(folder);
  EXPECT_NE(folder->RoomText().find("pages and sessions need 4 MiB, turns 2 MiB"),
            std::string::npos)
      << folder->RoomText();
}

}  // namespace
}  // namespace mneme::memory
