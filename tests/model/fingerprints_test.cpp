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

// Hash of the ten digits, by sha256sum.
constexpr char kDigitsHash[] = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";

TEST_F(FingerprintsTest, FilesAreWhatTheirFolderSaysOrRefused) {
  Fingerprints fingerprints = Fingerprints::Open(cache_, clock_);
  EXPECT_TRUE(fingerprints.CheckSums(folder_.path())) << "a folder without a list";
  EXPECT_EQ(fingerprints.bytes_hashed(), 0u);
  folder_.Write("SHA256SUMS", std::string(kDigitsHash) + "  weights\n");
  const Status whole = fingerprints.CheckSums(folder_.path());
  EXPECT_TRUE(whole) << whole.error().message();
  EXPECT_EQ(fingerprints.bytes_hashed(), 10u);
  fingerprints.Of(*MappedFile::Open(weights_, 1000));
  EXPECT_EQ(fingerprints.bytes_hashed(), 10u) << "hashed once for both";
  ASSERT_TRUE(fingerprints.Save());
  Fingerprints again = Fingerprints::Open(cache_, clock_);
  EXPECT_TRUE(again.CheckSums(folder_.path()));
  EXPECT_EQ(again.bytes_hashed(), 0u) << "nor at the next start";

  folder_.Write("weights", "0123456788");  // one bit
  const Status flipped = again.CheckSums(folder_.path());
  ASSERT_FALSE(flipped);
  EXPECT_EQ(flipped.error().code(), ErrorCode::kCorruption);
  const auto found = memory::Sha256(MappedFile::Open(weights_, 1000)->bytes());
  EXPECT_EQ(flipped.error().message().find(weights_.string() + ": expected SHA-256 " + kDigitsHash +
                                           ", found "),
            0u)
      << flipped.error().message();
  EXPECT_NE(
      flipped.error().message().find(fmt::format("found {:02x}", std::to_integer<int>(found[0]))),
      std::string::npos);
  EXPECT_NE(flipped.error().message().find("sha256sum *.json"), std::string::npos);
}

TEST_F(FingerprintsTest, AListThatNamesWhatIsNotThereOrIsNoneIsRefused) {
  const auto refusal = [&](const std::string& list) {
    folder_.Write("SHA256SUMS", list);
    const Status status = Fingerprints::Open(cache_, clock_).CheckSums(folder_.path());
    return status ? std::string("none") : std::string(NameOf(status.error().code()));
  };
  const std::string hash = kDigitsHash;
  EXPECT_EQ(refusal(hash + " *weights\n"), "none");
  EXPECT_EQ(refusal(hash + "  gone\n"), "not_found");
  for (const std::string& list :
       {hash, hash + "  ", hash + "  ../weights\n", hash.substr(1) + "  weights\n",
        "x" + hash.substr(1) + "  weights\n", std::string("\n"), hash + "\tweights\n"})
    EXPECT_EQ(refusal(list), "invalid_argument") << list;
}

TEST_F(FingerprintsTest, AFolderThatTakesNoFileIsAnAnswer) {
  Fingerprints fingerprints = Fingerprints::Open(folder_.path() / "none/fingerprints", clock_);
  EXPECT_EQ(fingerprints.Save().error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace mneme::model
