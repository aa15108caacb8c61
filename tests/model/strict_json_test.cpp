// JSON from outside: what a lax reader would let pass is refused, with the file's name and a place.
#include "model/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mneme::model {
namespace {

using ::testing::HasSubstr;

std::string Refusal(std::string_view text, size_t values_max = kJsonValuesMax) {
  const auto value = ParseStrictJson(text, "f.json", values_max);
  return value ? "accepted" : value.error().message();
}

TEST(StrictJsonTest, ReadsWhatIsPlain) {
  const auto value = ParseStrictJson(R"( {"a":[1,-2,0.5,"x\u00e9",true,null],"b":{"a":1}} )", "f");
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(value->at("a").as_array().size(), 6u);
  EXPECT_EQ(value->at("b").at("a").as_int64(), 1);
}

TEST(StrictJsonTest, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_THAT(Refusal(R"({"a":1,"b":2,"a":3})"), HasSubstr("f.json: expected"));
  EXPECT_THAT(Refusal(R"({"a":1,"b":2,"a":3})"), HasSubstr("the key a stands twice"));
  EXPECT_THAT(Refusal(R"([{"x":{"k":1,"\u006b":2}}])"), HasSubstr("the key k stands twice"));
}

TEST(StrictJsonTest, RefusesDepthCountsAndRemains) {
  EXPECT_THAT(Refusal(std::string(40, '[') + std::string(40, ']')), HasSubstr("at byte"));
  EXPECT_THAT(Refusal("[1,2,3]", 3), HasSubstr("more values than the limit"));
  EXPECT_EQ(Refusal("[1,2,3]", 4), "accepted");
  EXPECT_THAT(Refusal("{} x"), HasSubstr("expected the end of the JSON text at byte 3, found x"));
  for (const std::string_view text : {"", "{", "[1,]", "nul", "'a'", "\"\xff\"", "NaN", "1e999x"})
    EXPECT_THAT(Refusal(text), HasSubstr("f.json: expected")) << text;
}

TEST(StrictJsonTest, ReadsTheNearestDoubleOrNone) {
  for (const double number : {0.1, 1e300, 1.5e-7, 5e-324, 1.7976931348623157e308, -0.0, 1e22}) {
    const auto value = ParseStrictJson(fmt::format("[{:.17e}]", number), "f");
    ASSERT_TRUE(value) << value.error().message();
    EXPECT_EQ(value->at(0).as_double(), number);
  }
  EXPECT_EQ(ParseStrictJson("[1e300]", "f")->at(0).as_double(), 1e300);
  EXPECT_EQ(ParseStrictJson("[18446744073709551615]", "f")->at(0).as_uint64(), ~uint64_t{0});
  EXPECT_THAT(Refusal("[18446744073709551616]"), HasSubstr("has more than 64 bits"));
  EXPECT_THAT(Refusal("[-9223372036854775809]"), HasSubstr("has more than 64 bits"));
  EXPECT_THAT(Refusal("[0.5, 1e999]"), HasSubstr("the number 1e999 is out of range"));
}

TEST(StrictJsonTest, ShowsOnlyPrintableTextAndNotTooMuch) {
  EXPECT_EQ(Shown("a\nb\x1b\xc3\xa9"), "a?b???");
  EXPECT_EQ(Shown(std::string(97, 'x')), std::string(96, 'x') + "...");
}

}  // namespace
}  // namespace mneme::model
