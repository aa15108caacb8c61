// What people read when a file is refused: path, reason and what to do.
#include "base/file_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace mneme {
namespace {

TEST(FileErrorTest, NamesPathReasonAndRemedy) {
  EXPECT_EQ(FileErrorText("/data/epoch", "opened", EACCES),
            "/data/epoch: cannot be opened: Permission denied; the user that runs this needs the "
            "right to read and write there, or name another place");
  EXPECT_EQ(FileErrorText("a/b", "made", ENOTDIR),
            "a/b: cannot be made: Not a directory; a part of the path is a file where a folder "
            "should be; name another place");
}

TEST(FileErrorTest, HasARemedyForWhatUsuallyHappens) {
  for (const int number :
       {EACCES, EPERM, EROFS, ENOSPC, EDQUOT, ENOENT, ENOTDIR, EEXIST, EISDIR, EMFILE, ENFILE, EIO})
    EXPECT_FALSE(FileRemedy(number).empty()) << number;
}

TEST(FileErrorTest, TellsWhatIsNotThereFromWhatMayNotBeRead) {
  EXPECT_EQ(FileErrorCode(ENOENT), ErrorCode::kNotFound);
  EXPECT_EQ(FileErrorCode(ENOTDIR), ErrorCode::kNotFound);
  EXPECT_EQ(FileErrorCode(EACCES), ErrorCode::kInvalidArgument);
}

TEST(FileErrorTest, EndsWithTheReasonWhereItSaysAll) {
  EXPECT_EQ(FileErrorText("x", "read", EINTR), "x: cannot be read: Interrupted system call");
}

}  // namespace
}  // namespace mneme
