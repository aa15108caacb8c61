// TokenizerFile is what a Hugging Face tokenizer.json says, checked: a byte-level BPE with the
// Qwen3.5 normaliser and pre-tokenizer, and nothing the tokenizer here would have to ignore.
//
//   added_tokens[]   id, content, special, normalized; single_word, lstrip and rstrip false
//   normalizer       NFC
//   pre_tokenizer    Sequence [Split (Regex, Isolated), ByteLevel (no prefix space, no regex)]
//   decoder          ByteLevel; post_processor null or ByteLevel; truncation and padding null
//   model            BPE: vocab {text: id}, merges ["a b"] or [["a", "b"]]
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
#include <string>
#include <string_view>
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

struct TokenizerFile {
  std::vector<std::string> token_bytes;  // by id; an added token's are its content
  Bpe::ByteIds byte_ids{};
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
};

Result<TokenizerFile> ReadTokenizerFile(const std::string& path);

// The same from the file's text.
Result<TokenizerFile> ParseTokenizer(std::string_view json);

}  // namespace mneme::model
