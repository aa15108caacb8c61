#include "model/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "model/bpe.h"
#include "model/tokenizer_file.h"
#include "model/unicode_versions.h"

namespace mneme::model {
namespace {

// kPreTokenizerRegex in PCRE2's words, with the same matches. L, M, N and S stand for the members
// of a class: \p{L}, \p{M}, \p{N} with what unicode_versions.h adds, and white space written out,
// because \s here would also match U+180E, which is none since Unicode 6.3. The possessive `++`
// give nothing back where that could not help, so no fragment is scanned twice.
constexpr std::string_view kFragmentPattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                              R"(|[^\r\nLN]?[LM]++)"
                                              R"(|[N])"
                                              R"(|\x20?[^SLMN]++[\r\n]*+)"
                                              R"(|[S]*[\r\n]++)"
                                              R"(|[S]+(?![^S]))"
                                              R"(|[S]++)";
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string FragmentPattern() {
  std::string pattern;
  for (const char letter : kFragmentPattern) {
    switch (letter) {
      case 'L':
        pattern.append(R"(\p{L})").append(kLaterLetters);
        break;
      case 'M':
        pattern.append(R"(\p{M})").append(kLaterMarks);
        break;
      case 'N':
        pattern.append(R"(\p{N})").append(kLaterNumbers);
        break;
      case 'S':
        pattern.append(kWhiteSpace);
        break;
      default:
        pattern.push_back(letter);
    }
  }
  return pattern;
}

// Fragments at most this long are remembered while a text is encoded; longer ones hardly recur.
constexpr size_t kRememberedFragmentBytesMax = 64;
constexpr size_t kRememberedFragmentsMax = size_t{1} << 16;

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchFree {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, CodeFree>;
using Match = std::unique_ptr<pcre2_match_data, MatchFree>;

Code CompileFragmentPattern() {
  const std::string pattern = FragmentPattern();
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr));
  MNEME_CHECK(code != nullptr, "error {} at offset {}", error, offset);
  // Without JIT support in the library (an answer of its own) matching is slower and the same.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  return code;
}

using Characters = std::vector<utf8proc_int32_t>;

bool IsMark(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class != 0;
}

// Composes the canonically decomposed `part` and appends it to `text`.
//
// Marks are put in order here and not by utf8proc_map, which moves each mark one place at a time:
// quadratic for a hostile run of marks.
void AppendComposed(Characters& part, std::string& text) {
  for (auto at = part.begin(); at != part.end();) {
    const auto begin = std::find_if(at, part.end(), IsMark);
    at = std::find_if_not(begin, part.end(), IsMark);
    std::stable_sort(begin, at, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return utf8proc_get_property(a)->combining_class < utf8proc_get_property(b)->combining_class;
    });
  }
  const auto count =
      utf8proc_normalize_utf32(part.data(), static_cast<utf8proc_ssize_t>(part.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  MNEME_CHECK(count >= 0, "utf8proc: {}", count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto spelt = utf8proc_encode_char(part[static_cast<size_t>(i)], bytes.data());
    text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(spelt));
  }
  part.clear();
}

constexpr std::string_view kSpaceMark = "\u2581";

// The form of characters: spaces as U+2581, and the prefix of a piece that begins the text or not.
std::string WithMarks(std::string_view text, SpacePrefix prefix, bool at_start) {
  const bool there = text.starts_with(' ') || text.starts_with(kSpaceMark);
  const bool wanted = prefix == SpacePrefix::kEach ||
                      (prefix == SpacePrefix::kEachUnlessThere && !there) ||
                      (prefix == SpacePrefix::kFirstUnlessThere && at_start && !there);
  std::string marked;
  marked.reserve(text.size() + text.size() / 4 + kSpaceMark.size());
  if (wanted) marked += kSpaceMark;
  for (const char letter : text) {
    if (letter == ' ') {
      marked += kSpaceMark;
    } else {
      marked.push_back(letter);
    }
  }
  return marked;
}

// The end of the fragment of the form of characters that begins at `from`: no token reaches from
// another character into a mark.
size_t MarkedFragmentEnd(std::string_view text, size_t from) {
  size_t at = from;
  while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
  return std::min(text.find(kSpaceMark, at), text.size());
}

// NFC, as the `tokenizers` library knows it (unicode_versions.h). Text without a character from
// U+0300 on (lead byte 0xCC) is in that form already.
std::string Normalize(std::string_view text) {
  const auto above = [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), above)) return std::string(text);

  std::string normal;
  normal.reserve(text.size() + text.size() / 8);
  Characters part;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    const auto bytes = static_cast<size_t>(
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &character));
    if (IsUnknownToNfc(static_cast<char32_t>(character))) {
      AppendComposed(part, normal);
      normal.append(text.substr(at, bytes));
    } else {
      std::array<utf8proc_int32_t, 8> parts{};  // the longest canonical decomposition has 4
      int boundary = 0;
      const auto count = utf8proc_decompose_char(
          character, parts.data(), parts.size(),
          static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
      MNEME_CHECK(count >= 0 && static_cast<size_t>(count) <= parts.size(), "U+{:04X}: {}",
                  character, count);
      part.insert(part.end(), parts.begin(), parts.begin() + count);
    }
    at += bytes;
  }
  AppendComposed(part, normal);
  return normal;
}

// Finds the added tokens in a text: the leftmost first, of those the longest.
class AddedTokenFinder {
 public:
  struct Found {
    size_t at = std::string_view::npos;
    size_t bytes = 0;
    int32_t id = 0;
  };

  void Add(std::string content, int32_t id) {
    by_first_byte_[static_cast<unsigned char>(content[0])].emplace_back(std::move(content), id);
  }

  void Sort() {
    for (auto& entries : by_first_byte_) {
      std::sort(entries.begin(), entries.end(),
                [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    }
  }

  Found Find(std::string_view text, size_t from) const {
    for (size_t at = from; at < text.size(); ++at) {
      for (const auto& [content, id] : by_first_byte_[static_cast<unsigned char>(text[at])]) {
        if (text.substr(at).starts_with(content)) return {at, content.size(), id};
      }
    }
    return {};
  }

 private:
  std::array<std::vector<std::pair<std::string, int32_t>>, 256> by_first_byte_;
};

// Calls on_text and on_token, each a Status, for what `finder` cuts `text` into.
template <typename OnText, typename OnToken>
Status Cut(const AddedTokenFinder& finder, std::string_view text, OnText on_text,
           OnToken on_token) {
  for (size_t at = 0; at < text.size();) {
    const auto found = finder.Find(text, at);
    const size_t end = std::min(found.at, text.size());
    if (end > at) MNEME_TRY(on_text(text.substr(at, end - at)));
    if (found.bytes > 0) on_token(found.id);
    at = end + found.bytes;
  }
  return {};
}

}  // namespace

struct Tokenizer::Parts {
  Parts(TokenizerFile tokenizer_file, Bpe joiner)
      : file(std::move(tokenizer_file)), bpe(std::move(joiner)), code(CompileFragmentPattern()) {
    is_special.resize(file.token_bytes.size());
    for (const AddedToken& token : file.added) {
      is_special[static_cast<size_t>(token.id)] = token.special;
      added_ids.emplace(token.content, token.id);
      if (token.normalized) {
        normal_tokens.Add(NormalOf(token.content), token.id);
      } else {
        raw_tokens.Add(token.content, token.id);
      }
    }
    normal_tokens.Sort();
    raw_tokens.Sort();
  }

  // What the file's normalizer makes of `text`. A prefix that depends on where a piece stands is
  // not its part; EncodeNormal adds that.
  std::string NormalOf(std::string_view text) const {
    if (!file.characters) return Normalize(text);
    if (file.characters->prefix != SpacePrefix::kEach) return std::string(text);
    return WithMarks(text, SpacePrefix::kEach, false);
  }

  // What one Encode call works with.
  struct Work {
    Bpe::Scratch scratch;
    Match match;
    std::vector<int32_t> parts;  // of a fragment, in the form of characters
    std::vector<int32_t> ids;
  };

  // The end of the fragment that begins at `from`.
  Result<size_t> FragmentEnd(std::string_view text, size_t from, Work& work) const;
  void EncodeFragment(std::string_view fragment, Work& work) const;
  // `at_start`: the piece begins the text.
  Status EncodeNormal(std::string_view text, bool at_start, Work& work) const;
  Status EncodeFragments(std::string_view text, Work& work) const;
  Status EncodeRecognised(std::string_view text, Work& work) const;

  TokenizerFile file;
  Bpe bpe;
  Code code;
  std::vector<bool> is_special;  // by id
  std::unordered_map<std::string, int32_t> added_ids;
  AddedTokenFinder raw_tokens;     // looked for in the text as it is
  AddedTokenFinder normal_tokens;  // looked for in what the normalizer made of it
};

Result<size_t> Tokenizer::Parts::FragmentEnd(std::string_view text, size_t from, Work& work) const {
  if (file.characters)
    return file.characters->cuts_at_spaces ? MarkedFragmentEnd(text, from) : text.size();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int count = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                          work.match.get(), nullptr);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
    count = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        work.match.get(), nullptr);
  }
  if (count < 0)
    return Fail(ErrorCode::kInternal, "cut text into fragments: pcre2 error {}", count);
  const size_t end = pcre2_get_ovector_pointer(work.match.get())[1];
  MNEME_CHECK(end > from, "an empty fragment at byte {}", from);
  return end;
}

void Tokenizer::Parts::EncodeFragment(std::string_view fragment, Work& work) const {
  if (!file.characters) return bpe.Encode(fragment, work.scratch, work.ids);
  work.parts.clear();
  for (size_t at = 0; at < fragment.size();) {
    const size_t bytes = FirstCharacter(fragment.substr(at)).bytes;
    const auto known = file.characters->ids.find(CharacterOf(fragment.substr(at)));
    if (known != file.characters->ids.end()) {
      work.parts.push_back(known->second);
    } else {
      for (const char byte : fragment.substr(at, bytes))
        work.parts.push_back(file.byte_ids[static_cast<unsigned char>(byte)]);
    }
    at += bytes;
  }
  bpe.Join(work.parts, work.scratch, work.ids);
}

// Appends the tokens of `text`, which is normal and holds no added token that counts.
Status Tokenizer::Parts::EncodeNormal(std::string_view text, bool at_start, Work& work) const {
  if (!file.characters || file.characters->prefix == SpacePrefix::kEach)
    return EncodeFragments(text, work);
  return EncodeFragments(WithMarks(text, file.characters->prefix, at_start), work);
}

Status Tokenizer::Parts::EncodeFragments(std::string_view text, Work& work) const {
  // Where in work.ids the tokens of a fragment are that was met before in this text.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  std::unordered_map<std::string_view, Range> met;
  for (size_t at = 0; at < text.size();) {
    const auto end = FragmentEnd(text, at, work);
    MNEME_TRY(end);
    const std::string_view fragment = text.substr(at, *end - at);
    at = *end;
    if (fragment.size() > kRememberedFragmentBytesMax) {
      EncodeFragment(fragment, work);
      continue;
    }
    if (const auto known = met.find(fragment); known != met.end()) {
      for (size_t i = known->second.begin; i < known->second.end; ++i) {
        work.ids.push_back(work.ids[i]);
      }
      continue;
    }
    const size_t begin = work.ids.size();
    EncodeFragment(fragment, work);
    if (met.size() < kRememberedFragmentsMax) met.emplace(fragment, Range{begin, work.ids.size()});
  }
  return {};
}

Status Tokenizer::Parts::EncodeRecognised(std::string_view text, Work& work) const {
  const auto on_token = [&](int32_t id) { work.ids.push_back(id); };
  const auto on_raw = [&](std::string_view part) {
    const std::string normal = NormalOf(part);
    const auto on_normal = [&](std::string_view piece) {
      const bool at_start = part.data() == text.data() && piece.data() == normal.data();
      return EncodeNormal(piece, at_start, work);
    };
    return Cut(normal_tokens, normal, on_normal, on_token);
  };
  return Cut(raw_tokens, text, on_raw, on_token);
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Load(const std::string& path) {
  auto file = ReadTokenizerFile(path);
  MNEME_TRY(file);
  auto bpe = Bpe::Make(file->byte_ids, file->merges);
  if (!bpe) return Fail(std::move(bpe).error().Within("tokenizer file " + path + ": model.merges"));
  return Tokenizer(std::make_unique<const Parts>(*std::move(file), *std::move(bpe)));
}

Result<Tokenizer> Tokenizer::Parse(std::string_view json) {
  auto file = ParseTokenizer(json);
  MNEME_TRY(file);
  auto bpe = Bpe::Make(file->byte_ids, file->merges);
  if (!bpe) return Fail(std::move(bpe).error().Within("model.merges"));
  return Tokenizer(std::make_unique<const Parts>(*std::move(file), *std::move(bpe)));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, SpecialTokens special) const {
  if (text.empty()) return std::vector<int32_t>();
  if (text.size() > kTextBytesMax) {
    return Fail(Reason::kTooLarge, "encode text: expected at most {} bytes, found {}",
                kTextBytesMax, text.size());
  }
  if (const size_t valid = ValidUtf8Bytes(text); valid < text.size()) {
    return Fail(ErrorCode::kInvalidArgument, "encode text: byte {} of {} is not UTF-8", valid,
                text.size());
  }
  Parts::Work work;
  work.match.reset(pcre2_match_data_create(1, nullptr));
  if (work.match == nullptr) return Fail(ErrorCode::kInternal, "encode text: pcre2 has no memory");
  if (special == SpecialTokens::kRecognised) {
    MNEME_TRY(parts_->EncodeRecognised(text, work));
  } else {
    MNEME_TRY(parts_->EncodeNormal(parts_->NormalOf(text), /*at_start=*/true, work));
  }
  return std::move(work.ids);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, SpecialText special) const {
  TextStream stream(*this, special);
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  text += stream.Finish();
  return text;
}

std::optional<int32_t> Tokenizer::IdOf(std::string_view content) const {
  const auto found = parts_->added_ids.find(std::string(content));
  if (found == parts_->added_ids.end()) return std::nullopt;
  return found->second;
}

std::string_view Tokenizer::TextOf(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return parts_->file.token_bytes[static_cast<size_t>(id)];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->is_special[static_cast<size_t>(id)];
}

bool Tokenizer::StripsSpace() const {
  return parts_->file.characters && parts_->file.characters->strips_space;
}

const std::vector<int32_t>& Tokenizer::start_ids() const { return parts_->file.start_ids; }

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(parts_->file.token_bytes.size());
}

TextStream::TextStream(const Tokenizer& tokenizer, SpecialText special)
    : tokenizer_(&tokenizer), special_(special) {}

std::string_view TextStream::Push(int32_t id) {
  text_.clear();
  if (special_ == SpecialText::kHide && tokenizer_->IsSpecial(id)) return text_;
  const std::string_view bytes = tokenizer_->TextOf(id);
  if (bytes.empty()) {  // an unknown id: whatever was open cannot be completed by it
    if (!pending_.empty()) text_ += kReplacement;
    pending_.clear();
    at_start_ = false;
    return text_ += kReplacement;
  }
  pending_ += bytes;
  const size_t left = AppendCharacters(pending_, text_);
  pending_.erase(0, pending_.size() - left);
  if (at_start_ && !text_.empty()) {
    if (tokenizer_->StripsSpace() && text_[0] == ' ') text_.erase(0, 1);
    at_start_ = false;
  }
  return text_;
}

std::string_view TextStream::Finish() {
  text_.assign(pending_.empty() ? std::string_view{} : kReplacement);
  pending_.clear();
  at_start_ = true;
  return text_;
}

}  // namespace mneme::model
