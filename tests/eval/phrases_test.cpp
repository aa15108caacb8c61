// Sentences about facts: the value and the owner stand in them, and answers are fixed texts.
#include "eval/phrases.h"

#include <gtest/gtest.h>

namespace mneme::eval {
namespace {

TEST(PhrasesTest, StatementsHoldOwnerAndValueAndQuestionsTheOwner) {
  const auto corpus = Corpus::Load(std::filesystem::path(MNEME_SOURCE_DIR) / "eval/corpus/train");
  ASSERT_TRUE(corpus) << corpus.error().message();
  Random random(11);
  Phrases phrases(*corpus, random);
  int relations = 0;
  for (int draw = 0; draw < 500; ++draw) {
    const Key key = phrases.FreshKey();
    relations += key.relation >= 0 ? 1 : 0;
    const std::string value = phrases.Value(key);
    for (const std::string& told :
         {phrases.Statement(key, value), phrases.Correction(key, value)}) {
      EXPECT_NE(told.find(value), std::string::npos) << told;
      EXPECT_EQ(told.find('{'), std::string::npos) << told;
    }
    const std::string question = phrases.Question(key);
    EXPECT_EQ(question.find('{'), std::string::npos) << question;
    EXPECT_FALSE(question.empty());
    EXPECT_EQ(phrases.Answer(value), Fill(corpus->wording.answer, {{"value", value}}));
  }
  EXPECT_GT(relations, 50);
  EXPECT_LT(relations, 150);
}

TEST(PhrasesTest, RelationsOfOneTopicAreOneKey) {
  Key home;
  home.owner_class = "self";
  home.topic = "residence";
  home.relation = 3;
  Key other = home;
  other.relation = 7;
  EXPECT_EQ(home, other);
  other.topic = "workplace";
  EXPECT_NE(home, other);
}

}  // namespace
}  // namespace mneme::eval
