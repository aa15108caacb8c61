// UTF-8 read one character at a time, for text that arrives in pieces or may be damaged.
//
// Malformed bytes are grouped as the Unicode standard recommends (the longest start of a character
// counts as one), so one replacement character here is one in every other decoder of that rule.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mneme {

enum class Utf8Kind : unsigned char {
  kCharacter,   // a whole character
  kIncomplete,  // the bytes end inside a character that so far is well-formed
  kMalformed,   // these bytes begin no character
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::kMalformed;
  size_t bytes = 0;  // how many bytes this is, at least 1
};

// The first character of `bytes`, which must not be empty.
Utf8Step FirstCharacter(std::string_view bytes);

// The first character of `text`, which must begin with a whole one.
char32_t CharacterOf(std::string_view text);

// Index of the first byte that is not part of a whole character, or `text.size()` if all are.
size_t ValidUtf8Bytes(std::string_view text);

// U+FFFD, what stands for bytes that are no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Appends the characters of `bytes` to `text`, kReplacement for each malformed group, and returns
// how many bytes at the end are a character's beginning and were left alone (0 to 3).
size_t AppendCharacters(std::string_view bytes, std::string& text);

}  // namespace mneme
