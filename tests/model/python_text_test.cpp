// What Python 3 prints for the same values, written down.
#include "model/python_text.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>

namespace mneme::model {
namespace {

namespace json = boost::json;

std::string Dumps(const json::value& value) {
  std::string text;
  AppendPythonJson(value, text);
  return text;
}

std::string Str(const json::value& value) {
  std::string text;
  AppendPythonText(value, text);
  return text;
}

TEST(PythonTextTest, WritesFloatsAsPythonDoes) {
  const std::vector<std::pair<double, const char*>> floats = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {-2.5, "-2.5"},
      {0.1, "0.1"},
      {123456.0, "123456.0"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {123456789012345680.0, "1.2345678901234568e+17"},
      {0.0001, "0.0001"},
      {0.00012345, "0.00012345"},
      {0.00001, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {1e100, "1e+100"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {9007199254740993.0, "9007199254740992.0"},
      {std::numeric_limits<double>::infinity(), "Infinity"}};
  for (const auto& [value, text] : floats) EXPECT_EQ(Dumps(value), text);
}

TEST(PythonTextTest, WritesJsonAsPythonDoes) {
  const json::value value = {{"a", {1, -2, nullptr, true, false}},
                             {"b\n", "\"\\/\b\f\n\r\t\x01\x7f\u00e9\U0001F600"},
                             {"c", json::object{}},
                             {"d", json::array{}},
                             {"e", {{"f", {{"g", 18446744073709551615u}}}}}};
  EXPECT_EQ(Dumps(value),
            "{\"a\": [1, -2, null, true, false], "
            "\"b\\n\": \"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f\u00e9\U0001F600\", "
            "\"c\": {}, \"d\": [], \"e\": {\"f\": {\"g\": 18446744073709551615}}}");
}

TEST(PythonTextTest, WritesTextAsStrDoes) {
  EXPECT_EQ(Str("a\"b"), "a\"b");
  EXPECT_EQ(Str(true), "True");
  EXPECT_EQ(Str(false), "False");
  EXPECT_EQ(Str(nullptr), "None");
  EXPECT_EQ(Str(7), "7");
  EXPECT_EQ(Str(7.0), "7.0");
  EXPECT_EQ(Str(json::array{true, nullptr}), "[true, null]");
}

TEST(PythonTextTest, StripsUnicodeWhiteSpaceAndNothingElse) {
  EXPECT_EQ(PythonStrip(" \t\n\v\f\r\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2000\u200a\u2028\u2029"
                        "\u202f\u205f\u3000 a b \u3000\n"),
            "a b");
  for (const std::string_view text : {"\u200b", "\u180e", "\ufeff", "\x7f", "\u2060", "\x01"}) {
    EXPECT_EQ(PythonStrip(text), text);
  }
  EXPECT_EQ(PythonStrip(""), "");
  EXPECT_EQ(PythonStrip(" \u3000 "), "");
}

}  // namespace
}  // namespace mneme::model
