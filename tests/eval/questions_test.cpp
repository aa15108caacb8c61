// Files of questions: what is in them comes out, and each way to get one wrong is named.
#include "eval/questions.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace mneme::eval {
namespace {

class QuestionsTest : public ::testing::Test {
 protected:
  Result<std::vector<WrittenQuestion>> Load(const std::string& text) {
    std::ofstream(file_) << text;
    return LoadQuestions(file_);
  }

  void ExpectRefused(const std::string& text, const std::string& says) {
    const auto questions = Load(text);
    ASSERT_FALSE(questions) << text;
    EXPECT_EQ(questions.error().code(), ErrorCode::kInvalidArgument) << text;
    const std::string message(questions.error().message());
    EXPECT_NE(message.find(says), std::string::npos) << text << "\n" << message;
    EXPECT_NE(message.find(file_), std::string::npos) << message;
  }

  support::TempFolder temp_;
  const std::string file_ = temp_ / "mine.json";
};

TEST_F(QuestionsTest, HoldWhatTheFileSays) {
  const auto questions = Load(R"([
      {"tell": ["My code is 1.", "No, 2."], "ask": "My code?", "answer": "2"},
      {"ask": "Where do I live?", "answer": "unknown", "tell": []}])");
  ASSERT_TRUE(questions) << questions.error().message();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].tell, (std::vector<std::string>{"My code is 1.", "No, 2."}));
  EXPECT_EQ((*questions)[0].ask, "My code?");
  EXPECT_EQ((*questions)[0].answer, "2");
  EXPECT_FALSE((*questions)[0].unknown());
  EXPECT_TRUE((*questions)[1].unknown());
  EXPECT_TRUE((*questions)[1].tell.empty());
}

TEST(WrittenQuestionsTest, EveryAnswerStandsInTheLastTelling) {
  for (const char* name : {"eval/written_questions.json", "eval/written_questions_2.json"}) {
    const auto questions = LoadQuestions(std::filesystem::path(MNEME_SOURCE_DIR) / name);
    ASSERT_TRUE(questions) << questions.error().message();
    EXPECT_EQ(questions->size(), 30u);
    for (const WrittenQuestion& question : *questions) {
      if (question.unknown()) continue;
      ASSERT_FALSE(question.tell.empty()) << question.ask;
      EXPECT_NE(question.tell.back().find(question.answer), std::string::npos) << question.ask;
    }
  }
}

TEST_F(QuestionsTest, AFileThatIsMissingIsNotFound) {
  const auto questions = LoadQuestions(temp_ / "none.json");
  ASSERT_FALSE(questions);
  EXPECT_EQ(questions.error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(LoadQuestions(temp_ / ".")) << "a folder is no file";
}

TEST_F(QuestionsTest, EachMistakeIsNamed) {
  const std::string good = R"({"tell": ["a"], "ask": "b", "answer": "c"})";
  ExpectRefused("", "expected 1 to 1048576 bytes, found 0");
  ExpectRefused("[" + good, "is not JSON");
  ExpectRefused("[]", "is not a list of questions");
  ExpectRefused(good, "is not a list of questions");
  ExpectRefused("[" + good + ", 5]", "question 2 is not an object");
  ExpectRefused(R"([{"ask": "b", "answer": "c"}])", "question 1: tell is not a list");
  ExpectRefused(R"([{"tell": "a", "ask": "b", "answer": "c"}])", "tell is not a list");
  ExpectRefused(R"([{"tell": ["a", 4], "ask": "b", "answer": "c"}])", "of tell is not a text");
  ExpectRefused(R"([{"tell": ["a", ""], "ask": "b", "answer": "c"}])", "of tell is empty");
  ExpectRefused(R"([{"tell": ["a"], "answer": "c"}])", "ask is missing");
  ExpectRefused(R"([{"tell": ["a"], "ask": "b", "answer": 4711}])", "answer is not a text");
  ExpectRefused(R"([{"tell": ["a"], "ask": "", "answer": "c"}])", "ask is empty");
  ExpectRefused(R"([{"tell": ["a"], "asked": "b", "answer": "c"}])", "has a field asked");
  ExpectRefused(R"([{"tell": [], "ask": "b", "answer": "c"}])", "tells nothing");
  ExpectRefused("[" + good + "]" + std::string(kQuestionsFileBytesMax, ' '),
                "expected 1 to 1048576 bytes");
}

}  // namespace
}  // namespace mneme::eval
