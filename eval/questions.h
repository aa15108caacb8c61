// WrittenQuestion is a question that a person wrote, with what is told for it. They come as a JSON
// file, a list of
//
//   {"tell": ["My locker code is 4711.", "No, make that 5822."], "ask": "What is my locker code?",
//    "answer": "5822"}
//
// `tell` is in the order of telling: a later sentence may correct an earlier one. `answer` is the
// value alone, without a full stop, or "unknown" where the right answer is that it was not told;
// only then may `tell` be empty (or tell something near).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace mneme::eval {

inline constexpr std::string_view kUnknownAnswer = "unknown";

struct WrittenQuestion {
  std::vector<std::string> tell;
  std::string ask;
  std::string answer;

  bool unknown() const { return answer == kUnknownAnswer; }
};

// Bytes of the largest file.
inline constexpr size_t kQuestionsFileBytesMax = size_t{1} << 20;

// Errors:   kNotFound         the file is missing
//           kInvalidArgument  it is larger than kQuestionsFileBytesMax, or not what is said above;
//                             the message names file, question and field
Result<std::vector<WrittenQuestion>> LoadQuestions(const std::filesystem::path& file);

}  // namespace mneme::eval
