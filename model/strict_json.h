// ParseStrictJson: JSON text from outside as a value, refusing what a lax reader would guess at:
// duplicate keys, more nesting or values than a limit, text after the end, invalid UTF-8, integers
// beyond 64 bits. Other numbers are the nearest double.
//
// Errors:   kCorruption  the text is not such JSON; the message begins with the file's name
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace mneme::model {

inline constexpr size_t kJsonDepthMax = 32;       // nested objects and arrays
inline constexpr size_t kJsonValuesMax = 200000;  // values in one text, containers included

Result<boost::json::value> ParseStrictJson(std::string_view text, std::string_view file,
                                           size_t values_max = kJsonValuesMax);

// `text` as it may stand in a message: printable ASCII, at most 96 characters.
std::string Shown(std::string_view text);

}  // namespace mneme::model
