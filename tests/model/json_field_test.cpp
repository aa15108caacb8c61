// Fields of a JSON file by path: what a complaint says of them.
#include "model/json_field.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace mneme::model {
namespace {

namespace json = boost::json;

class JsonFieldTest : public ::testing::Test {
 protected:
  JsonField At(std::string_view name) const { return JsonField{&root_, ""}.Member(name); }

  const json::value root_ =
      json::parse(R"({"o":{"text":"x"},"a":[1],"on":true,"off":false,"one":1,"half":0.5,)"
                  R"("none":null,"empty":""})");
};

TEST_F(JsonFieldTest, KnowsWhereItStands) {
  EXPECT_EQ(At("o").Member("text").path, "o.text");
  EXPECT_EQ(At("o").Member("other").Unexpected("a number").message(),
            "o.other: expected a number, found nothing");
  EXPECT_EQ(At("a").Member("b").value, nullptr) << "an array has no members";
  EXPECT_TRUE(At("none").IsNull() && At("nowhere").IsNull());
}

TEST_F(JsonFieldTest, SaysWhatItExpected) {
  EXPECT_TRUE(ExpectText(At("o").Member("text"), "x"));
  EXPECT_EQ(ExpectText(At("o").Member("text"), "yz").error().message(),
            "o.text: expected \"yz\", found another string of 1 bytes");
  EXPECT_EQ(ExpectText(At("one"), "x").error().message(), "one: expected \"x\", found an integer");
  EXPECT_TRUE(ExpectNumber(At("one"), 1));
  EXPECT_EQ(ExpectNumber(At("one"), 0).error().message(), "one: expected 0, found an integer");
  EXPECT_FALSE(ExpectNumber(At("half"), 0));
  EXPECT_TRUE(AsObject(At("o")));
  EXPECT_EQ(AsObject(At("a")).error().message(), "a: expected an object, found an array");
  EXPECT_TRUE(AsArray(At("a")));
  EXPECT_EQ(AsArray(At("half")).error().message(), "half: expected an array, found a number");
}

TEST_F(JsonFieldTest, KnowsWhatAbsenceMeans) {
  for (const char* name : {"off", "none", "nowhere"}) EXPECT_TRUE(ExpectOff(At(name))) << name;
  EXPECT_FALSE(ExpectOff(At("on")));
  EXPECT_TRUE(ExpectOffBecauseOnByDefault(At("off")));
  EXPECT_FALSE(ExpectOffBecauseOnByDefault(At("nowhere")));
  EXPECT_TRUE(ExpectNull(At("none")));
  EXPECT_FALSE(ExpectNull(At("off")));
  EXPECT_TRUE(ExpectEmptyText(At("empty")) && ExpectEmptyText(At("nowhere")));
  EXPECT_FALSE(ExpectEmptyText(At("o").Member("text")));
}

}  // namespace
}  // namespace mneme::model
