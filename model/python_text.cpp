#include "model/python_text.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

namespace mneme::model {
namespace {

namespace json = boost::json;

void AppendQuoted(std::string_view value, std::string& text) {
  text.push_back('"');
  for (const char letter : value) {
    switch (letter) {
      case '"':
        text.append("\\\"");
        break;
      case '\\':
        text.append("\\\\");
        break;
      case '\n':
        text.append("\\n");
        break;
      case '\r':
        text.append("\\r");
        break;
      case '\t':
        text.append("\\t");
        break;
      case '\f':
        text.append("\\f");
        break;
      case '\b':
        text.append("\\b");
        break;
      default:
        if (static_cast<unsigned char>(letter) < 0x20) {
          text.append(fmt::format("\\u{:04x}", static_cast<unsigned>(letter)));
        } else {
          text.push_back(letter);
        }
    }
  }
  text.push_back('"');
}

// repr(float): the shortest digits that read back the same, with an exponent below 1e-4 and from
// 1e16 on.
void AppendFloat(double value, std::string& text) {
  if (!std::isfinite(value)) {
    text.append(std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
    return;
  }
  std::array<char, 64> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::scientific);
  std::string_view spelt(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const size_t mark = spelt.find('e');
  int exponent = 0;
  const char* digits_of_exponent = spelt.data() + mark + (spelt[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, spelt.data() + spelt.size(), exponent);

  if (spelt[0] == '-') text.push_back('-');
  std::string digits;
  for (const char letter : spelt.substr(0, mark)) {
    if (letter >= '0' && letter <= '9') digits.push_back(letter);
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    text.push_back(digits[0]);
    if (count > 1) text.append(".").append(digits, 1);
    text.append(fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent)));
  } else if (exponent < 0) {
    text.append("0.").append(static_cast<size_t>(-exponent) - 1, '0').append(digits);
  } else if (count <= exponent + 1) {
    text.append(digits).append(static_cast<size_t>(exponent + 1 - count), '0').append(".0");
  } else {
    const auto whole = static_cast<size_t>(exponent + 1);
    text.append(digits, 0, whole).append(".").append(digits, whole);
  }
}

// White space as str.strip sees it.
constexpr auto kWhiteSpace = std::to_array<std::string_view>(
    {"\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",
     "\x1f",   " ",      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
     "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
     "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"});

}  // namespace

void AppendPythonJson(const json::value& value, std::string& text) {
  switch (value.kind()) {
    case json::kind::null:
      text.append("null");
      break;
    case json::kind::bool_:
      text.append(value.get_bool() ? "true" : "false");
      break;
    case json::kind::int64:
      text.append(std::to_string(value.get_int64()));
      break;
    case json::kind::uint64:
      text.append(std::to_string(value.get_uint64()));
      break;
    case json::kind::double_:
      AppendFloat(value.get_double(), text);
      break;
    case json::kind::string:
      AppendQuoted({value.get_string().data(), value.get_string().size()}, text);
      break;
    case json::kind::array: {
      std::string_view between = "[";
      for (const json::value& item : value.get_array()) {
        text.append(between);
        between = ", ";
        AppendPythonJson(item, text);
      }
      text.append(value.get_array().empty() ? "[]" : "]");
      break;
    }
    case json::kind::object: {
      std::string_view between = "{";
      for (const auto& [key, item] : value.get_object()) {
        text.append(between);
        between = ", ";
        AppendQuoted({key.data(), key.size()}, text);
        text.append(": ");
        AppendPythonJson(item, text);
      }
      text.append(value.get_object().empty() ? "{}" : "}");
      break;
    }
  }
}

void AppendPythonText(const json::value& value, std::string& text) {
  if (value.is_string()) {
    text.append(value.get_string().data(), value.get_string().size());
  } else if (value.is_bool()) {
    text.append(value.get_bool() ? "True" : "False");
  } else if (value.is_null()) {
    text.append("None");
  } else {
    AppendPythonJson(value, text);
  }
}

std::string_view PythonStrip(std::string_view text) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view space : kWhiteSpace) {
      if (text.starts_with(space)) {
        text.remove_prefix(space.size());
        found = true;
      }
      if (text.ends_with(space)) {
        text.remove_suffix(space.size());
        found = true;
      }
    }
  }
  return text;
}

}  // namespace mneme::model
