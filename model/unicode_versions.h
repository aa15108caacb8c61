// Which characters the tokenizer must not take Debian's libraries' word for.
//
// A model saw text as the `tokenizers` library cut it, and that library sorts characters into
// letters, marks and numbers by Unicode 16 but normalises by Unicode 9. PCRE2 and utf8proc come
// with versions of their own (14 and 15 on Debian 12). These tables are the difference, so that
// every code point gives the library's ids, whichever version is installed.
#pragma once

#include <string_view>

namespace mneme::model {

// Parts of a PCRE2 character class: letters, marks and numbers of Unicode 15 and 16.
extern const std::string_view kLaterLetters;
extern const std::string_view kLaterMarks;
extern const std::string_view kLaterNumbers;

// Whether `character` moves or composes under NFC only since Unicode 10. To the library it stands
// for itself: it stays where it is, and what surrounds it does not join across it.
bool IsUnknownToNfc(char32_t character);

}  // namespace mneme::model
