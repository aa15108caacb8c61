// TokenizerFile is what a Hugging Face tokenizer.json says, checked: a BPE in one of two forms, and
// nothing the tokenizer here would have to ignore. In both:
//
//   added_tokens[]   id, content, special, normalized; single_word, lstrip and rstrip false
//   truncation, padding null
//   model            BPE: vocab {text: id}, merges ["a b"] or [["a", "b"]]; byte_fallback says
//   which
//                    form it is
//
// Bytes, as Qwen3.5 has it (byte_fallback false):
//   normalizer       NFC
//   pre_tokenizer    Sequence [Split (Regex, Isolated), ByteLevel (no prefix space, no regex)]
//   decoder          ByteLevel; post_processor null or ByteLevel
//
// Characters, as Llama 2 has it (byte_fallback true): spaces become U+2581, the text gets one in
// front, and a character that is no token becomes its bytes, the tokens <0x00> to <0xFF>.
//   normalizer       Sequence [Prepend U+2581, Replace " " by U+2581] or the second alone, and no
//                    pre_tokenizer; or none, and
//   pre_tokenizer    Metaspace (U+2581; prepend_scheme first, always or never; split false)
//   decoder          Sequence [Replace U+2581 by " ", ByteFallback, Fuse, Strip (one space at the
//                    start)], the last may be missing
//   post_processor   null, or TemplateProcessing whose `single` puts special tokens before the text
//
// Ids are dense: vocabulary and added tokens together use each of 0 .. n-1 once. All 256 bytes
// have a token of their own, so any text can be encoded. No merge makes an added token, so no
// text encoded as text can.
//
// Errors:   kNotFound         there is no such file
//           kCorruption       it is not JSON, or a key stands twice in one object
//           kInvalidArgument  it is too large, or says something else than the above; the message
//                             names the field, what was expected and found
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "model/bpe.h"

namespace mneme::model {

inline constexpr uint64_t kTokenizerFileBytesMax = 64 * kMiB;
inline constexpr size_t kVocabTokensMax = size_t{1} << 20;
inline constexpr size_t kAddedTokensMax = 4096;
inline constexpr size_t kTokenBytesMax = 1024;

// The one pre-tokenizer accepted, as tokenizer.json spells it.
inline constexpr std::string_view kPreTokenizerRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;     // left out of text for people
  bool normalized = false;  // looked for after NFC instead of before
};

// What is put before a text of the form of characters.
enum class SpacePrefix : uint8_t {
  kNone,
  kEach,              // a space before each piece between added tokens, whatever it begins with
  kEachUnlessThere,   // unless it begins with one
  kFirstUnlessThere,  // only before a piece at the text's start, unless it begins with one
};

// The form of characters.
struct CharacterForm {
  std::unordered_map<char32_t, int32_t> ids;  // of characters that are tokens; U+2581 is a space
  SpacePrefix prefix = SpacePrefix::kNone;
  bool strips_space = false;   // a decoded text loses one space at its start
  bool cuts_at_spaces = true;  // no token has a space behind another character
};

struct TokenizerFile {
  std::vector<std::string> token_bytes;  // by id; an added token's are its content
  Bpe::ByteIds byte_ids{};
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
  std::optional<CharacterForm> characters;  // none: the form of bytes
  std::vector<int32_t> start_ids;           // what a text at a session's start begins with
};

Result<TokenizerFile> ReadTokenizerFile(const std::string& path);

// The same from the file's text.
Result<TokenizerFile> ParseTokenizer(std::string_view json);

}  // namespace mneme::model
