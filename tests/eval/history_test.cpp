// Histories are as long as asked, hold each fact where they say, and are the same for the same
// seed.
#include "eval/history.h"

#include <gtest/gtest.h>

namespace mneme::eval {
namespace {

class HistoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path root(MNEME_SOURCE_DIR);
    auto corpus = Corpus::Load(root / "eval/corpus/train");
    ASSERT_TRUE(corpus) << corpus.error().message();
    corpus_ = std::make_unique<Corpus>(std::move(*corpus));
    auto tokenizer = model::Tokenizer::Load((root / "checkpoints/demo/tokenizer.json").string());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    tokenizer_ = std::make_unique<model::Tokenizer>(std::move(*tokenizer));
    auto chat = model::ChatTemplate::Make(*tokenizer_);
    ASSERT_TRUE(chat);
    chat_ = std::make_unique<model::ChatTemplate>(std::move(*chat));
  }

  Result<History> Write(uint64_t seed, const HistoryOptions& options) {
    return HistoryWriter(*corpus_, *tokenizer_, *chat_, seed).Write(options);
  }

  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<model::ChatTemplate> chat_;
};

TEST_F(HistoryTest, IsAsLongAsAskedAndTellsEveryFact) {
  const auto history = Write(1, {.tokens = 6000, .facts = 8, .corrected = 2, .untold = 3});
  ASSERT_TRUE(history) << history.error().message();
  EXPECT_GE(history->ids.size(), 5900u);
  EXPECT_LE(history->ids.size(), 6100u);
  ASSERT_EQ(history->questions.size(), 11u);
  std::string text;
  for (const Exchange& exchange : history->exchanges) text += exchange.message + "\n";
  int told = 0, corrected = 0, untold = 0;
  for (const Question& question : history->questions) {
    if (question.kind == QuestionKind::kUntold) {
      ++untold;
      EXPECT_EQ(question.answer, corpus_->wording.unknown);
      EXPECT_LT(question.depth, 0);
      continue;
    }
    ++(question.kind == QuestionKind::kTold ? told : corrected);
    const std::string value = question.answer.substr(0, question.answer.size() - 1);
    EXPECT_NE(text.find(value), std::string::npos) << value;
    EXPECT_GE(question.depth, 0);
    EXPECT_LE(question.depth, 1);
  }
  EXPECT_EQ(told, 6);
  EXPECT_EQ(corrected, 2);
  EXPECT_EQ(untold, 3);
}

TEST_F(HistoryTest, TellsFactsWhereItWasAskedTo) {
  const auto history = Write(2, {.tokens = 8000, .facts = 6, .last_depth = 0.1});
  ASSERT_TRUE(history);
  for (const Question& question : history->questions) EXPECT_LT(question.depth, 0.2);
}

TEST_F(HistoryTest, GivesEachFactAShareOfItsOwn) {
  const auto history = Write(7, {.tokens = 16000, .facts = 10, .last_depth = 1, .even = true});
  ASSERT_TRUE(history);
  // A statement follows the text before it, which may end some tokens early or late.
  constexpr double kSlack = 0.01;
  for (size_t fact = 0; fact < 10; ++fact) {
    const double depth = history->questions[fact].depth;
    EXPECT_GE(depth, static_cast<double>(fact) / 10 - kSlack);
    EXPECT_LE(depth, static_cast<double>(fact + 1) / 10 + kSlack);
  }
}

TEST_F(HistoryTest, FollowsItsSeed) {
  const HistoryOptions options = {.tokens = 3000, .facts = 4};
  const auto first = Write(3, options);
  const auto again = Write(3, options);
  const auto other = Write(4, options);
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(first->ids, again->ids);
  EXPECT_NE(first->ids, other->ids);
}

TEST_F(HistoryTest, IsTheTokensOfItsExchanges) {
  const auto history = Write(5, {.tokens = 2000, .facts = 3});
  ASSERT_TRUE(history);
  std::vector<model::ChatMessage> messages;
  for (const Exchange& exchange : history->exchanges) {
    messages.push_back({.role = model::ChatRole::kUser,
                        .content = exchange.message,
                        .reasoning = {},
                        .tool_calls = {}});
    messages.push_back({.role = model::ChatRole::kAssistant,
                        .content = exchange.reply,
                        .reasoning = {},
                        .tool_calls = {}});
  }
  const auto ids = chat_->Render(messages, {});
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, history->ids);
}

TEST_F(HistoryTest, AQuestionAndItsAnswerAreTheTokensOfTheirTurns) {
  HistoryWriter writer(*corpus_, *tokenizer_, *chat_, 5);
  const auto history = writer.Write({.tokens = 2000, .facts = 5, .untold = 1});
  ASSERT_TRUE(history);
  for (const Question& question : history->questions) {
    const std::vector<model::ChatMessage> turns = {{.role = model::ChatRole::kUser,
                                                    .content = question.text,
                                                    .reasoning = {},
                                                    .tool_calls = {}},
                                                   {.role = model::ChatRole::kAssistant,
                                                    .content = question.answer,
                                                    .reasoning = {},
                                                    .tool_calls = {}}};
    auto expected = chat_->Render(turns, {.end = model::LogEnd::kBetweenTurns});
    auto ids = writer.QuestionIds(question);
    const auto answer = writer.AnswerIds(question);
    ASSERT_TRUE(expected && ids && answer);
    ids->insert(ids->end(), answer->begin(), answer->end());
    expected->pop_back();  // the line's end after a turn, which comes with the next
    EXPECT_EQ(*ids, *expected) << question.answer;
  }
}

TEST_F(HistoryTest, TellsWhatPeopleWroteInItsOrderAndAllOver) {
  std::vector<WrittenQuestion> questions;
  for (int index = 0; index < 20; ++index) {
    const std::string name = "thing " + std::to_string(index);
    questions.push_back({.tell = {name + " is old.", name + " is used.", name + " is fresh."},
                         .ask = "How is " + name + "?",
                         .answer = "fresh"});
  }
  questions.push_back({.tell = {"thing 99 is lost."}, .ask = "?", .answer = "lost"});
  questions.push_back({.tell = {}, .ask = "Who?", .answer = "unknown"});
  HistoryWriter writer(*corpus_, *tokenizer_, *chat_, /*seed=*/8);
  const auto history = writer.Write(questions, 12000);
  ASSERT_TRUE(history) << history.error().message();
  EXPECT_NEAR(static_cast<double>(history->ids.size()), 12000, 100);

  const auto place = [&](const std::string& sentence) {
    for (size_t index = 0; index < history->exchanges.size(); ++index)
      if (history->exchanges[index].message == sentence) return static_cast<int>(index);
    return -1;
  };
  ASSERT_EQ(history->questions.size(), 22u);
  for (size_t index = 0; index < 20; ++index) {
    const WrittenQuestion& question = questions[index];
    EXPECT_GE(place(question.tell[0]), 0) << question.ask;
    EXPECT_LT(place(question.tell[0]), place(question.tell[1])) << question.ask;
    EXPECT_LT(place(question.tell[1]), place(question.tell[2])) << question.ask;
    EXPECT_EQ(history->questions[index].kind, QuestionKind::kCorrected);
    EXPECT_EQ(history->questions[index].text, question.ask);
    EXPECT_EQ(history->questions[index].answer, "fresh.");
  }
  EXPECT_EQ(history->questions[20].kind, QuestionKind::kTold);
  EXPECT_EQ(history->questions[21].kind, QuestionKind::kUntold);
  EXPECT_EQ(history->questions[21].answer, corpus_->wording.unknown);
  double least = 1, most = 0;
  for (const Question& question : history->questions) {
    if (question.depth < 0) continue;
    least = std::min(least, question.depth);
    most = std::max(most, question.depth);
  }
  EXPECT_LT(least, 0.6);
  EXPECT_GT(most, 0.85);
  EXPECT_LE(most, 0.95);
}

TEST_F(HistoryTest, RefusesWrittenSentencesItHasNoRoomFor) {
  HistoryWriter writer(*corpus_, *tokenizer_, *chat_, /*seed=*/9);
  const WrittenQuestion many = {
      .tell = std::vector<std::string>(10, "It is so."), .ask = "?", .answer = "so"};
  const WrittenQuestion long_one = {.tell = {std::string(4000, 'x')}, .ask = "?", .answer = "so"};
  for (const WrittenQuestion& question : {many, long_one}) {
    const auto history = writer.Write({question}, 500);
    ASSERT_FALSE(history);
    EXPECT_EQ(history.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(history.error().message().find("has no room"), std::string::npos);
  }
}

TEST_F(HistoryTest, RefusesMoreFactsThanThereIsRoomFor) {
  const auto history = Write(6, {.tokens = 300, .facts = 50});
  ASSERT_FALSE(history);
  EXPECT_EQ(history.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace mneme::eval
