#include "eval/questions.h"

#include <boost/json.hpp>

#include "model/mapped_file.h"

namespace mneme::eval {
namespace {

namespace json = boost::json;

// Reads one question of the file; `where` names both.
class QuestionReader {
 public:
  QuestionReader(std::string where, const json::object& fields)
      : where_(std::move(where)), fields_(fields) {}

  Result<WrittenQuestion> Read() {
    for (const auto& field : fields_) {
      if (field.key() != "tell" && field.key() != "ask" && field.key() != "answer")
        return Fail(ErrorCode::kInvalidArgument,
                    "{} has a field {}; the fields are tell, ask and answer", where_,
                    std::string_view(field.key()));
    }
    WrittenQuestion question;
    MNEME_TRY(ReadTell(question.tell));
    MNEME_TRY(ReadText("ask", fields_.if_contains("ask"), question.ask));
    MNEME_TRY(ReadText("answer", fields_.if_contains("answer"), question.answer));
    if (question.tell.empty() && !question.unknown())
      return Fail(ErrorCode::kInvalidArgument,
                  "{} tells nothing but expects \"{}\"; give tell, or \"{}\" as the answer", where_,
                  question.answer, kUnknownAnswer);
    return question;
  }

 private:
  Status ReadTell(std::vector<std::string>& tell) {
    const json::value* value = fields_.if_contains("tell");
    const json::array* sentences = value == nullptr ? nullptr : value->if_array();
    if (sentences == nullptr)
      return Fail(ErrorCode::kInvalidArgument, "{}: tell is not a list of sentences", where_);
    for (const json::value& sentence : *sentences)
      MNEME_TRY(ReadText("a sentence of tell", &sentence, tell.emplace_back()));
    return {};
  }

  Status ReadText(const char* name, const json::value* value, std::string& text) {
    const json::string* found = value == nullptr ? nullptr : value->if_string();
    if (found == nullptr || found->empty())
      return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}", where_, name,
                  value == nullptr   ? "missing"
                  : found == nullptr ? "not a text"
                                     : "empty");
    text = std::string_view(*found);
    return {};
  }

  const std::string where_;
  const json::object& fields_;
};

}  // namespace

Result<std::vector<WrittenQuestion>> LoadQuestions(const std::filesystem::path& file) {
  const auto text = model::ReadTextFile(file, kQuestionsFileBytesMax);
  if (!text) return Fail(Error(text.error()).Within("file of questions"));
  boost::system::error_code failure;
  const json::value root = json::parse(*text, failure);
  if (failure)
    return Fail(ErrorCode::kInvalidArgument, "{} is not JSON: {}", file.string(),
                failure.message());
  const json::array* items = root.if_array();
  if (items == nullptr || items->empty())
    return Fail(ErrorCode::kInvalidArgument,
                "{} is not a list of questions {{\"tell\": [...], \"ask\": ..., \"answer\": ...}}",
                file.string());
  std::vector<WrittenQuestion> questions;
  for (const json::value& item : *items) {
    const std::string where = fmt::format("{}: question {}", file.string(), questions.size() + 1);
    const json::object* fields = item.if_object();
    if (fields == nullptr) return Fail(ErrorCode::kInvalidArgument, "{} is not an object", where);
    auto question = QuestionReader(where, *fields).Read();
    MNEME_TRY(question);
    questions.push_back(std::move(*question));
  }
  return questions;
}

}  // namespace mneme::eval
