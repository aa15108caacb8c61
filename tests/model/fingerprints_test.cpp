// Remembered fingerprints against the hash of the bytes: used while nothing of the file changed,
// and never where anything did, whatever its size and modification time say.
#include "model/fingerprints.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::ScratchFolder;

// The machine's, so far ahead that every file is old enough.
class LaterClock : public Clock {
 public:
  int64_t MonotonicUs() override { return RealClock().MonotonicUs(); }
  int64_t WallUs() override { return RealClock().WallUs() + ahead_us; }
  int64_t ahead_us = 10'000'000;
};

class FingerprintsTest : public ::testing::Test {
 protected:
  FingerprintsTest() { weights_ = folder_.Write("weights", "0123456789"); }

  struct Start {
    memory::Digest digest;
    uint64_t hashed = 0;
  };

  // What a start finds out, and leaves behind.
  Start StartOnce() {
    const auto file = MappedFile::Open(weights_, 1000);
    EXPECT_TRUE(file) << file.error().message();
    Fingerprints fingerprints = Fingerprints::Open(cache_, clock_);
    const Start start = {.digest = fingerprints.Of(*file), .hashed = fingerprints.bytes_hashed()};
    EXPECT_EQ(start.digest, memory::Sha256(file->bytes()));
    EXPECT_TRUE(fingerprints.Save());
    return start;
  }

  std::string CacheText() const { return *ReadTextFile(cache_, 1 << 20); }

  const ScratchFolder folder_;
  std::filesystem::path weights_;
  const std::filesystem::path cache_ = folder_.path() / "fingerprints";
  LaterClock clock_;
};

TEST_F(FingerprintsTest, AnUntouchedFileIsHashedOnce) {
  EXPECT_EQ(StartOnce().hashed, 10u);
  EXPECT_EQ(StartOnce().hashed, 0u);
  EXPECT_EQ(StartOnce().hashed, 0u) << "what was remembered stays so";
}

TEST_F(FingerprintsTest, AChangeInPlaceIsNoticedThoughSizeAndTimeAreSetBack) {
  StartOnce();
  struct stat before = {};
  ASSERT_EQ(stat(weights_.c_str(), &before), 0);
  std::fstream(weights_, std::ios::in | std::ios::out) << "X";
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, weights_.c_str(), times, 0), 0);
  const auto changed = MappedFile::Open(weights_, 1000);
  ASSERT_EQ(changed->state().modified_ns,
            int64_t{before.st_mtim.tv_sec} * 1'000'000'000 + before.st_mtim.tv_nsec);
  EXPECT_EQ(StartOnce().hashed, 10u);
  EXPECT_EQ(StartOnce().hashed, 0u);
}

TEST_F(FingerprintsTest, AnotherFileOfTheSameNameIsNoticed) {
  StartOnce();
  std::filesystem::rename(folder_.Write("other", "9876543210"), weights_);
  EXPECT_EQ(StartOnce().hashed, 10u);
}

TEST_F(FingerprintsTest, ALaterTimeIsNoticed) {
  StartOnce();
  std::filesystem::last_write_time(
      weights_, std::filesystem::last_write_time(weights_) + std::chrono::nanoseconds(1));
  EXPECT_EQ(StartOnce().hashed, 10u);
}

TEST_F(FingerprintsTest, AFileThatIsStillWarmIsNotRemembered) {
  clock_.ahead_us = 0;
  StartOnce();
  EXPECT_EQ(StartOnce().hashed, 10u);
}

TEST_F(FingerprintsTest, ADamagedLineCostsAHashAndNoWrongAnswer) {
  StartOnce();
  const std::string whole = CacheText();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    folder_.Write("fingerprints", damaged);
    const auto file = MappedFile::Open(weights_, 1000);
    Fingerprints fingerprints = Fingerprints::Open(cache_, clock_);
    ASSERT_EQ(fingerprints.Of(*file), memory::Sha256(file->bytes())) << "byte " << at;
  }
  for (const char* text : {"", "\n", "mneme fingerprints 2\n", "mneme fingerprints 1\n\t\t\t\n"}) {
    folder_.Write("fingerprints", std::string(text) + " ");
    EXPECT_EQ(StartOnce().hashed, 10u) << text;
  }
}

TEST_F(FingerprintsTest, SeveralFilesAreOneFingerprintInTheirOrder) {
  const auto a = MappedFile::Open(weights_, 1000);
  const auto b = MappedFile::Open(folder_.Write("more", "abc"), 1000);
  const MappedFile* both[] = {&*a, &*b};
  const MappedFile* other[] = {&*b, &*a};
  Fingerprints fingerprints = Fingerprints::Open(cache_, clock_);
  std::vector<std::byte> digests;
  for (const auto& file : {memory::Sha256(a->bytes()), memory::Sha256(b->bytes())})
    digests.insert(digests.end(), file.begin(), file.end());
  EXPECT_EQ(fingerprints.Of(both), memory::Sha256(digests));
  EXPECT_NE(fingerprints.Of(both), fingerprints.Of(other));
}

TEST_F(FingerprintsTest, AFolderThatTakesNoFileIsAnAnswer) {
  Fingerprints fingerprints = Fingerprints::Open(folder_.path() / "none/fingerprints", clock_);
  EXPECT_EQ(fingerprints.Save().error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace mneme::model
