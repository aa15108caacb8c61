// UTF-8 steps against the definition: all code points but surrogates are characters, and every
// malformed sequence is grouped as the Unicode standard's own examples are.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace mneme {
namespace {

std::string Spell(uint32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8Test, AcceptsEveryCodePointButSurrogates) {
  for (uint32_t point = 0; point < 0x110000; ++point) {
    const std::string text = Spell(point);
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    ASSERT_EQ(ValidUtf8Bytes(text), surrogate ? 0 : text.size()) << point;
    if (surrogate) continue;
    const Utf8Step step = FirstCharacter(text + "\x80");
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter);
    ASSERT_EQ(step.bytes, text.size());
    ASSERT_EQ(CharacterOf(text + "x"), static_cast<char32_t>(point));
    for (size_t bytes = 1; bytes < text.size(); ++bytes) {
      const Utf8Step part = FirstCharacter(text.substr(0, bytes));
      ASSERT_EQ(part.kind, Utf8Kind::kIncomplete);
      ASSERT_EQ(part.bytes, bytes);
    }
  }
  EXPECT_EQ(ValidUtf8Bytes(Spell(0x110000)), 0u);
}

std::string Repair(std::string_view bytes) {
  std::string text;
  if (AppendCharacters(bytes, text) > 0) text += "+";
  return text;
}

TEST(Utf8Test, GroupsMalformedBytesAsTheStandardDoes) {
  // Tables 3-8 to 3-11 of the Unicode standard.
  EXPECT_EQ(Repair("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Repair("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Repair("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(Repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Repair("\x41\xF1\xBF"), "A+");
}

}  // namespace
}  // namespace mneme
