// Fields of a config.json: where they are looked for, what counts as absent, and what a refusal
// says.
#include "model/config_fields.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "model/model_config.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

class ConfigFieldsTest : public ::testing::Test {
 protected:
  const json::object top_ =
      json::parse(R"({"a":1,"b":2,"none":null,"off":false,"zero":0,"half":0.5,"word":"x"})")
          .as_object();
  const json::object nested_ = json::parse(R"({"a":7,"b":null})").as_object();
  const ConfigFields fields_{top_, nested_};
};

TEST_F(ConfigFieldsTest, LooksInTheNestedObjectFirst) {
  EXPECT_EQ(Found(fields_.Find("a")), "7");
  EXPECT_EQ(Found(fields_.Find("b")), "2") << "null is absent";
  EXPECT_EQ(fields_.Find("none"), nullptr);
  EXPECT_EQ(Found(nullptr), "none");
}

TEST_F(ConfigFieldsTest, ReadsIntegersWithinTheirLimits) {
  int value = 0;
  ASSERT_TRUE(fields_.Integer(value, "a", {1, 7}));
  EXPECT_EQ(value, 7);
  const Status far = fields_.Integer(value, "a", {1, 6});
  ASSERT_FALSE(far);
  EXPECT_EQ(far.error().message(), "config.json: a: expected an integer from 1 to 6, found 7");
  EXPECT_EQ(fields_.Integer(value, "absent", {1, 6}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(fields_.Integer(value, "word", {1, 6}).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(value, 7) << "a refusal leaves the field alone";
}

TEST_F(ConfigFieldsTest, RefusesFeaturesThatAreOn) {
  EXPECT_TRUE(fields_.Absent("off", "things are"));
  EXPECT_TRUE(fields_.Absent("zero", "things are"));
  EXPECT_TRUE(fields_.Absent("nowhere", "things are"));
  EXPECT_EQ(fields_.Absent("word", "things are").error().message(),
            "config.json: word: expected none, found \"x\": things are not supported");
  EXPECT_TRUE(fields_.Only("word", "\"x\""));
  EXPECT_TRUE(fields_.Only("nowhere", "\"x\""));
  EXPECT_EQ(fields_.Only("off", "true").error().message(),
            "config.json: off: expected true, found false, which is not supported");
}

TEST_F(ConfigFieldsTest, ReadsFlagsAndLeavesThemWhereThereIsNone) {
  bool flag = true;
  ASSERT_TRUE(fields_.Flag(flag, "none"));
  EXPECT_TRUE(flag);
  ASSERT_TRUE(fields_.Flag(flag, "off"));
  EXPECT_FALSE(flag);
  EXPECT_EQ(fields_.Flag(flag, "word").error().message(),
            "config.json: word: expected true or false, found \"x\"");
}

TEST_F(ConfigFieldsTest, ReadsOneIdOrAList) {
  const json::value list = json::parse("[4,0]");
  const json::value one = 3;
  EXPECT_EQ(*ConfigIds(&list, "eos", 5), (std::vector<int32_t>{4, 0}));
  EXPECT_EQ(*ConfigIds(&one, "eos", 5), std::vector<int32_t>{3});
  EXPECT_TRUE(ConfigIds(nullptr, "eos", 5)->empty());
  EXPECT_EQ(ConfigIds(&list, "eos", 4, "f.json").error().message(),
            "f.json: eos: expected ids below vocab_size 4, found 4");
  const json::value many = json::array(kEosIdsMax + 1, json::value(0));
  EXPECT_EQ(ConfigIds(&many, "eos", 4).error().message(),
            "config.json: eos: expected at most 16 ids, found 17");
}

TEST_F(ConfigFieldsTest, TakesAnObjectAlone) {
  EXPECT_EQ(ParseConfig(R"({"a":1})")->at("a").as_int64(), 1);
  const auto list = ParseConfig("[1]", "f.json");
  EXPECT_EQ(list.error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(list.error().message(), "f.json: expected an object, found [1]");
}

TEST_F(ConfigFieldsTest, ReadsNumbersWithinTheirLimits) {
  EXPECT_EQ(*ConfigNumber(fields_.Find("half"), "half", 0, 1), 0.5);
  EXPECT_EQ(*ConfigNumber(fields_.Find("a"), "a", 0, 10), 7.0);
  EXPECT_FALSE(ConfigNumber(fields_.Find("half"), "half", 0.6, 1));
  EXPECT_FALSE(ConfigNumber(fields_.Find("word"), "word", 0, 1));
  EXPECT_FALSE(ConfigNumber(nullptr, "nowhere", 0, 1));
  EXPECT_TRUE(CheckMultiple("a", 6, "b", 3));
  EXPECT_EQ(CheckMultiple("a", 7, "b", 3).error().message(),
            "config.json: a: expected a multiple of b (3), found 7");
}

}  // namespace
}  // namespace mneme::model
