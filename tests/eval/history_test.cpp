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

TEST_F(HistoryTest, RefusesMoreFactsThanThereIsRoomFor) {
  const auto history = Write(6, {.tokens = 300, .facts = 50});
  ASSERT_FALSE(history);
  EXPECT_EQ(history.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace mneme::eval
