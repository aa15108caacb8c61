// Where sentences end, and which of them shares most words with an answer, against cases written
// out by hand. FindSource itself meets a server in tests/system/chat_process_test.cpp.
#include "cli/answer_source.h"

#include <gtest/gtest.h>

namespace mneme::cli {
namespace {

TEST(AnswerSourceTest, CutsTextIntoSentences) {
  EXPECT_EQ(SentencesIn("One.  It is 3.5 m long! Is it?\n\nno full stop\nlast."),
            (std::vector<std::string_view>{"One.", "It is 3.5 m long!", "Is it?", "no full stop",
                                           "last."}));
  EXPECT_TRUE(SentencesIn(" \n").empty());
}

TEST(AnswerSourceTest, PrefersTheLongestRunOfWords) {
  const std::string told = "My locker code is 4711.";
  EXPECT_EQ(SharedBytes("4711.", told), 4u);
  EXPECT_EQ(SharedBytes("Your LOCKER code is 4711.", told), std::string("lockercodeis4711").size());
  EXPECT_EQ(SharedBytes("Your locker code is 4711.", "What is my locker code?"), 10u);
  EXPECT_EQ(SharedBytes("the blue cabinet", "It stands in the blue cabinet."), 14u);
  EXPECT_EQ(SharedBytes("471", told), 0u) << "whole words only";
}

TEST(AnswerSourceTest, TakesAFewUsualWordsForNothing) {
  EXPECT_EQ(SharedBytes("I was not told that.", "That was all."), 0u);
  EXPECT_EQ(SharedBytes("It is in the kitchen, I think.", "the weather is fine"), 0u);
  EXPECT_EQ(SharedBytes("", "anything"), 0u);
  EXPECT_EQ(SharedBytes("anything", ""), 0u);
}

TEST(AnswerSourceTest, WithoutASentenceNoTextIsShown) {
  AnswerSource source = {.first_position = 256, .tokens = 256, .tier = "disk", .sentence = {}};
  EXPECT_EQ(SourceText(source),
            "tokens 256 to 511 (disk) most; no sentence told there shares its words");
  source.sentence = "The key is\nunder the stone.";
  source.found = true;
  EXPECT_EQ(SourceText(source), "tokens 256 to 511 (disk): The key is under the stone.");
}

}  // namespace
}  // namespace mneme::cli
