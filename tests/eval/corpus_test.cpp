// The corpus in the repository is what its readers expect; a broken one is refused by file and
// field.
#include "eval/corpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/support/temp_folder.h"

namespace mneme::eval {
namespace {

std::filesystem::path CorpusFolder(const char* half) {
  return std::filesystem::path(MNEME_SOURCE_DIR) / "eval/corpus" / half;
}

TEST(CorpusTest, BothHalvesLoad) {
  for (const char* half : {"train", "held_out"}) {
    const auto corpus = Corpus::Load(CorpusFolder(half));
    ASSERT_TRUE(corpus) << corpus.error().message();
    EXPECT_GE(corpus->filler.size(), 3u);
    EXPECT_GE(corpus->wording.questions.size(), 4u);
  }
}

TEST(CorpusTest, TheHalvesShareNoNamesNoFillerAndNoQuestions) {
  const auto trained = Corpus::Load(CorpusFolder("train"));
  const auto held_out = Corpus::Load(CorpusFolder("held_out"));
  ASSERT_TRUE(trained && held_out);
  const auto& seen = trained->name_slots.at("name").choices;
  const std::set<std::string> names(seen.begin(), seen.end());
  for (const std::string& name : held_out->name_slots.at("name").choices)
    EXPECT_FALSE(names.contains(name)) << name;
  const std::set<std::string> questions(trained->wording.questions.begin(),
                                        trained->wording.questions.end());
  for (const std::string& question : held_out->wording.questions)
    EXPECT_FALSE(questions.contains(question)) << question;
  std::set<std::string> lines;
  for (const auto& source : trained->filler) {
    for (const std::string& line : source) {
      if (line.size() > 40) lines.insert(line);
    }
  }
  for (const auto& source : held_out->filler) {
    for (const std::string& line : source) EXPECT_FALSE(lines.contains(line)) << line;
  }
}

TEST(CorpusTest, EveryKindHasValuesOfItsForm) {
  const auto corpus = Corpus::Load(CorpusFolder("train"));
  ASSERT_TRUE(corpus);
  Random random(3);
  for (const auto& [kind, templates] : corpus->value_templates) {
    const std::string value = corpus->Value(random, kind);
    EXPECT_FALSE(value.empty()) << kind;
    EXPECT_EQ(value.find('{'), std::string::npos) << kind << ": " << value;
  }
}

TEST(CorpusTest, DrawsEverySlotAfresh) {
  Random random(5);
  const Slots slots = {{"d", {.form = Slot::Form::kDigits, .choices = {}, .first = 3, .last = 3}},
                       {"l", {.form = Slot::Form::kLetters, .choices = {}, .first = 2, .last = 2}}};
  const std::string text = Draw(random, "{d}-{l}-{d} {other}", slots);
  ASSERT_EQ(text.size(), 3u + 1 + 2 + 1 + 3 + 8);
  EXPECT_NE(text[0], '0') << "numbers do not begin with 0";
  EXPECT_TRUE(text.ends_with(" {other}"));
}

TEST(CorpusTest, RefusesABrokenFileByNameAndField) {
  const support::TempFolder folder;
  std::filesystem::copy(CorpusFolder("train"), folder / "train",
                        std::filesystem::copy_options::recursive);
  std::ofstream(folder / "train/wording.json") << R"({"lead_ins": ["Hi. "]})";
  const auto corpus = Corpus::Load(folder / "train");
  ASSERT_FALSE(corpus);
  EXPECT_EQ(corpus.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(corpus.error().message().find("wording.json: statements is missing"), std::string::npos)
      << corpus.error().message();
  const auto missing = Corpus::Load(folder / "nowhere");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace mneme::eval
