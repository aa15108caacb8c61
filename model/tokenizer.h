// Tokenizer turns text into token ids and back: the BPE of a Hugging Face tokenizer.json, in one of
// the two forms of tokenizer_file.h.
//
// Form of bytes (Qwen3.5): text is normalised to NFC, cut into fragments by the pre-tokenizer's
// pattern, and each fragment is joined from its bytes by Bpe. Encode(text) then Decode gives
// NFC(text), whatever the text.
// Form of characters (Llama 2): each piece gets a space in front, and is joined from its characters
// and, where one is no token, from that one's bytes. Encode(text) then Decode gives the text.
//
// Added tokens, such as <|im_end|>, are not fragments of text. Content that somebody else wrote is
// always encoded with SpecialTokens::kAsText: no text gives the id of an added token then.
//
// Threads:  const after Load; any number of threads may encode and decode.
// Cost:     about 30 MB/s of English on one core; n log n for a fragment of n bytes. A text of one
//           endless word costs about 40 bytes of memory per byte while it is encoded.
// Errors:   kInvalidArgument  Encode: the text is not UTF-8 or longer than kTextBytesMax
//           kInternal         Encode: the pattern matcher ran out of memory
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace mneme::model {

inline constexpr uint64_t kTextBytesMax = 16 * kMiB;

enum class SpecialTokens : uint8_t {
  kAsText,      // an added token's content in the text is text like any other
  kRecognised,  // it becomes that token's id; only for text we wrote ourselves
};

enum class SpecialText : uint8_t {
  kShow,  // special tokens appear in decoded text by their content
  kHide,  // they leave no trace; added tokens that are not special still show
};

class Tokenizer {
 public:
  // Reads a tokenizer.json. Errors as in tokenizer_file.h.
  static Result<Tokenizer> Load(const std::string& path);

  // The same from the file's text.
  static Result<Tokenizer> Parse(std::string_view json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  Result<std::vector<int32_t>> Encode(std::string_view text, SpecialTokens special) const;

  // The text of `ids` as valid UTF-8: bytes that form no character, and ids the vocabulary does
  // not have, become U+FFFD. One space at the start is left out where the file says so (Llama 2).
  std::string Decode(std::span<const int32_t> ids, SpecialText special = SpecialText::kShow) const;

  // The id of the added token with this content, if there is one.
  std::optional<int32_t> IdOf(std::string_view content) const;

  // The bytes of one token, which may be part of a character; empty for an unknown id.
  std::string_view TextOf(int32_t id) const;

  // Whether decoding leaves out one space at the start.
  bool StripsSpace() const;

  // Whether `id` is an added token marked special.
  bool IsSpecial(int32_t id) const;

  // What the first text of a session begins with, `<s>` in Llama 2's files; mostly nothing. Encode
  // does not add it.
  const std::vector<int32_t>& start_ids() const;

  // Ids are 0 .. vocab_size() - 1. A model's embedding may have more rows; those are padding.
  int32_t vocab_size() const;

 private:
  struct Parts;

  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

// TextStream decodes tokens as they come and never hands out half a character. All that Push and
// Finish return, put together, is what Decode gives for the same ids.
//
// Owns:     up to 3 bytes of an unfinished character. The tokenizer must outlive it.
// Threads:  one at a time.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, SpecialText special = SpecialText::kShow);

  // The text that `id` completes, often empty or more than its own bytes. Good until the next call.
  std::string_view Push(int32_t id);

  // What is left: U+FFFD if the last character stayed unfinished. The stream then starts over.
  std::string_view Finish();

 private:
  const Tokenizer* tokenizer_;
  SpecialText special_;
  bool at_start_ = true;  // nothing was returned yet
  std::string pending_;   // the start of a character
  std::string text_;      // what the last call returned
};

}  // namespace mneme::model
