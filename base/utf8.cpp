#include "base/utf8.h"

namespace mneme {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them. The range is
// what refuses overlong forms, surrogates and values above U+10FFFF (Unicode, table 3-7).
struct Lead {
  size_t bytes = 0;  // of the whole character; 0 for a byte that cannot lead
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Lead LeadOf(unsigned char byte) {
  if (byte < 0x80) return {.bytes = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.bytes = 2};
  if (byte < 0xF0) {
    return {.bytes = 3,
            .second_min = static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            .second_max = static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {.bytes = 4,
            .second_min = static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            .second_max = static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

}  // namespace

Utf8Step FirstCharacter(std::string_view bytes) {
  const Lead lead = LeadOf(static_cast<unsigned char>(bytes[0]));
  if (lead.bytes == 0) return {Utf8Kind::kMalformed, 1};
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char min = i == 1 ? lead.second_min : 0x80;
    const unsigned char max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Kind::kMalformed, i};
  }
  return {Utf8Kind::kCharacter, lead.bytes};
}

char32_t CharacterOf(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = LeadOf(lead).bytes;
  if (bytes == 1) return lead;
  char32_t point = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i)
    point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return point;
}

size_t ValidUtf8Bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = FirstCharacter(text.substr(at));
    if (step.kind != Utf8Kind::kCharacter) return at;
    at += step.bytes;
  }
  return at;
}

size_t AppendCharacters(std::string_view bytes, std::string& text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = FirstCharacter(bytes.substr(at));
    if (step.kind == Utf8Kind::kIncomplete) return bytes.size() - at;
    if (step.kind == Utf8Kind::kCharacter) {
      text.append(bytes.substr(at, step.bytes));
    } else {
      text.append(kReplacement);
    }
    at += step.bytes;
  }
  return 0;
}

}  // namespace mneme
