#include "base/file_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace mneme {

std::string_view FileRemedy(int number) {
  switch (number) {
    case EACCES:
    case EPERM:
      return "the user that runs this needs the right to read and write there, or name another "
             "place";
    case EROFS:
      return "the disk is mounted read-only; name a place on another";
    case ENOSPC:
    case EDQUOT:
      return "free space there, or name a place on another disk";
    case ENOENT:
      return "check the path, which begins where the command was started";
    case ENOTDIR:
    case EEXIST:
      return "a part of the path is a file where a folder should be; name another place";
    case EISDIR:
      return "it is a folder; name a file";
    case EMFILE:
    case ENFILE:
      return "too many files are open; raise the limit, as with ulimit -n";
    case EIO:
      return "the disk failed; look at the system's log, and restore from a copy what is damaged";
    default:
      return "";
  }
}

ErrorCode FileErrorCode(int number) {
  return number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
}

std::string FileErrorText(std::string_view path, std::string_view done, int number) {
  const std::string_view remedy = FileRemedy(number);
  return fmt::format("{}: cannot be {}: {}{}{}", path, done,
                     std::generic_category().message(number), remedy.empty() ? "" : "; ", remedy);
}

}  // namespace mneme
