// What is said when the system refuses a file or a folder: its path, what was tried, why not, and
// what a person can do about it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace mneme {

// "/data/epoch: cannot be opened: Permission denied; the user that runs this needs the right to
// read and write there, or name another place". `done` is "opened", `number` an errno.
std::string FileErrorText(std::string_view path, std::string_view done, int number);

// kNotFound where nothing is at the path, else kInvalidArgument: for files that a person named.
ErrorCode FileErrorCode(int number);

// What to do about `number`; empty where the reason alone says it.
std::string_view FileRemedy(int number);

}  // namespace mneme
