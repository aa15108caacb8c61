// A mapped file against the bytes written, and each way in which it may have changed since.
#include "model/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::ScratchFolder;
using ::testing::HasSubstr;

TEST(MappedFileTest, ShowsTheBytesAndReadsParts) {
  const ScratchFolder folder;
  auto file = MappedFile::Open(folder.Write("f", "0123456789"), 10);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(AsText(file->bytes()), "0123456789");
  EXPECT_EQ(*file->Read(3, 4), "3456");
  EXPECT_EQ(*file->Read(10, 0), "");
  EXPECT_EQ(file->name(), "f");
  const MappedFile moved = *std::move(file);
  EXPECT_EQ(AsText(moved.bytes()), "0123456789");
  EXPECT_TRUE(moved.CheckUnchanged());
}

TEST(MappedFileTest, RefusesRangesOutsideWithoutOverflow) {
  const ScratchFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", "0123456789"), 10);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->Read(11, 0).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(file->Read(4, 7).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(file->Read(4, UINT64_MAX).error().code(), ErrorCode::kCorruption);
}

TEST(MappedFileTest, RefusesAFileAboveTheCallersLimit) {
  const ScratchFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", "0123456789"), 9);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message(), HasSubstr("expected 1 to 9 bytes, found 10"));
  EXPECT_EQ(ReadTextFile(folder.path() / "g", 9).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(*ReadTextFile(folder.path() / "f", 10), "0123456789");
}

TEST(MappedFileTest, NoticesSizeAndTime) {
  const ScratchFolder folder;
  const auto path = folder.Write("f", "0123456789");
  const auto file = MappedFile::Open(path, 10);
  ASSERT_TRUE(file);
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::seconds(2));
  EXPECT_THAT(file->CheckUnchanged().error().message(), HasSubstr("modification time"));
  std::filesystem::resize_file(path, 4);
  EXPECT_THAT(file->CheckUnchanged().error().message(), HasSubstr("expected 10 bytes, found 4"));
  const auto part = file->Read(0, 8);
  ASSERT_FALSE(part) << "a file cut short is an answer, not a signal";
  EXPECT_THAT(part.error().message(), HasSubstr("found 4: the file changed"));
}

}  // namespace
}  // namespace mneme::model
