#include "model/tokenizer_file.h"

#include <boost/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "model/json_field.h"
#include "model/mapped_file.h"
#include "model/strict_json.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

std::string_view View(const json::string& text) { return {text.data(), text.size()}; }

// A value for each token, three for each merge, and all else.
constexpr size_t kJsonValuesInFileMax = 4 * kVocabTokensMax + 16 * kAddedTokensMax;

Result<int32_t> AsId(const JsonField& field, size_t tokens) {
  if (field.value == nullptr || !field.value->is_int64()) {
    return Fail(field.Unexpected(fmt::format("an id below {}", tokens)));
  }
  const int64_t id = field.value->get_int64();
  if (id < 0 || static_cast<uint64_t>(id) >= tokens) {
    return Fail(ErrorCode::kInvalidArgument, "{}: expected an id below {}, found {}", field.path,
                tokens, id);
  }
  return static_cast<int32_t>(id);
}

// Byte-level BPE writes a byte as a printable character: those of Latin-1 that print stand for
// themselves, the other 68 for U+0100 and up, in order. This undoes it.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    uint32_t spare = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      byte_of_[prints ? byte : spare++] = static_cast<int16_t>(byte);
    }
  }

  // Empty if some character stands for no byte.
  std::optional<std::string> BytesOf(std::string_view text) const {
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
      const auto lead = static_cast<unsigned char>(text[at++]);
      uint32_t character = lead;
      if (lead >= 0x80) {
        // The JSON reader let only whole characters through; all of ours take two bytes.
        if (lead >= 0xE0 || at == text.size()) return std::nullopt;
        character = (lead & 0x1Fu) << 6 | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
      }
      if (character >= byte_of_.size() || byte_of_[character] < 0) return std::nullopt;
      bytes.push_back(static_cast<char>(byte_of_[character]));
    }
    return bytes;
  }

 private:
  static constexpr std::array<int16_t, 0x144> NoBytes() {
    std::array<int16_t, 0x144> none{};
    none.fill(-1);
    return none;
  }

  std::array<int16_t, 0x144> byte_of_ = NoBytes();
};

constexpr std::string_view kSpaceMark = "\u2581";

// The byte that `<0x0A>` stands for, if that is what `text` is.
std::optional<char> ByteNamed(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char digit : text.substr(3, 2)) {
    const bool letter = digit >= 'A' && digit <= 'F';
    if (!letter && (digit < '0' || digit > '9')) return std::nullopt;
    byte = byte * 16 + (letter ? digit - 'A' + 10 : digit - '0');
  }
  return static_cast<char>(byte);
}

std::string WithSpaces(std::string_view text) {
  std::string spaced;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpaceMark)) {
      spaced.push_back(' ');
      at += kSpaceMark.size();
    } else {
      spaced.push_back(text[at++]);
    }
  }
  return spaced;
}

// The steps of a Sequence, by their place.
Result<std::vector<JsonField>> StepsOf(const JsonField& sequence, std::string_view name,
                                       size_t least, size_t most) {
  MNEME_TRY(ExpectText(sequence.Member("type"), "Sequence"));
  const JsonField list = sequence.Member(name);
  const auto steps = AsArray(list);
  MNEME_TRY(steps);
  if ((*steps)->size() < least || (*steps)->size() > most) {
    return Fail(ErrorCode::kInvalidArgument, "{}: expected {} steps, found {}", list.path,
                least == most ? fmt::format("{}", least) : fmt::format("{} or {}", least, most),
                (*steps)->size());
  }
  std::vector<JsonField> fields;
  for (size_t i = 0; i < (*steps)->size(); ++i)
    fields.push_back({&(**steps)[i], fmt::format("{}[{}]", list.path, i)});
  return fields;
}

Status CheckReplace(const JsonField& step, std::string_view from, std::string_view to) {
  MNEME_TRY(ExpectText(step.Member("type"), "Replace"));
  MNEME_TRY(ExpectText(step.Member("pattern").Member("String"), from));
  return ExpectText(step.Member("content"), to);
}

Result<SpacePrefix> ReadPrefix(const JsonField& root) {
  const JsonField normalizer = root.Member("normalizer");
  const JsonField pre = root.Member("pre_tokenizer");
  if (!normalizer.IsNull()) {
    const auto steps = StepsOf(normalizer, "normalizers", 1, 2);
    MNEME_TRY(steps);
    if (steps->size() == 2) {
      MNEME_TRY(ExpectText(steps->front().Member("type"), "Prepend"));
      MNEME_TRY(ExpectText(steps->front().Member("prepend"), kSpaceMark));
    }
    MNEME_TRY(CheckReplace(steps->back(), " ", kSpaceMark));
    MNEME_TRY(ExpectNull(pre));
    return steps->size() == 2 ? SpacePrefix::kEach : SpacePrefix::kNone;
  }
  MNEME_TRY(ExpectText(pre.Member("type"), "Metaspace"));
  MNEME_TRY(ExpectText(pre.Member("replacement"), kSpaceMark));
  MNEME_TRY(ExpectOffBecauseOnByDefault(pre.Member("split")));
  const JsonField scheme = pre.Member("prepend_scheme");
  if (ExpectText(scheme, "first")) return SpacePrefix::kFirstUnlessThere;
  if (ExpectText(scheme, "always")) return SpacePrefix::kEachUnlessThere;
  if (ExpectText(scheme, "never")) return SpacePrefix::kNone;
  return Fail(scheme.Unexpected("\"first\", \"always\" or \"never\""));
}

Status ReadCharacterForm(CharacterForm& form, const JsonField& root) {
  const auto prefix = ReadPrefix(root);
  MNEME_TRY(prefix);
  form.prefix = *prefix;
  const auto steps = StepsOf(root.Member("decoder"), "decoders", 3, 4);
  MNEME_TRY(steps);
  MNEME_TRY(CheckReplace((*steps)[0], kSpaceMark, " "));
  MNEME_TRY(ExpectText((*steps)[1].Member("type"), "ByteFallback"));
  MNEME_TRY(ExpectText((*steps)[2].Member("type"), "Fuse"));
  form.strips_space = steps->size() == 4;
  if (form.strips_space) {
    const JsonField& strip = (*steps)[3];
    MNEME_TRY(ExpectText(strip.Member("type"), "Strip"));
    MNEME_TRY(ExpectText(strip.Member("content"), " "));
    MNEME_TRY(ExpectNumber(strip.Member("start"), 1));
    MNEME_TRY(ExpectNumber(strip.Member("stop"), 0));
  }
  return {};
}

// The added tokens that a post-processor's template puts before a text, by content.
Result<std::vector<std::string>> ReadStart(const JsonField& post) {
  std::vector<std::string> start;
  if (post.IsNull()) return start;
  MNEME_TRY(ExpectText(post.Member("type"), "TemplateProcessing"));
  const JsonField single = post.Member("single");
  const auto list = AsArray(single);
  MNEME_TRY(list);
  for (size_t i = 0; i < (*list)->size(); ++i) {
    const JsonField item{&(**list)[i], fmt::format("{}[{}]", single.path, i)};
    if (i + 1 == (*list)->size()) {
      MNEME_TRY(ExpectText(item.Member("Sequence").Member("id"), "A"));
      return start;
    }
    const JsonField id = item.Member("SpecialToken").Member("id");
    if (id.value == nullptr || !id.value->is_string()) return Fail(id.Unexpected("a string"));
    start.emplace_back(View(id.value->get_string()));
  }
  return Fail(single.Unexpected("special tokens, then the text"));
}

// Checks all of the form of bytes that is not a table.
Status CheckByteForm(const JsonField& root) {
  MNEME_TRY(ExpectText(root.Member("normalizer").Member("type"), "NFC"));

  const JsonField pre = root.Member("pre_tokenizer");
  MNEME_TRY(ExpectText(pre.Member("type"), "Sequence"));
  const JsonField list = pre.Member("pretokenizers");
  const auto steps = AsArray(list);
  MNEME_TRY(steps);
  if ((*steps)->size() != 2) {
    return Fail(ErrorCode::kInvalidArgument, "{}: expected 2 steps, found {}", list.path,
                (*steps)->size());
  }
  const JsonField split{&(**steps)[0], list.path + "[0]"};
  MNEME_TRY(ExpectText(split.Member("type"), "Split"));
  MNEME_TRY(ExpectText(split.Member("pattern").Member("Regex"), kPreTokenizerRegex));
  MNEME_TRY(ExpectText(split.Member("behavior"), "Isolated"));
  MNEME_TRY(ExpectOff(split.Member("invert")));
  const JsonField bytes{&(**steps)[1], list.path + "[1]"};
  MNEME_TRY(ExpectText(bytes.Member("type"), "ByteLevel"));
  MNEME_TRY(ExpectOffBecauseOnByDefault(bytes.Member("add_prefix_space")));
  MNEME_TRY(ExpectOffBecauseOnByDefault(bytes.Member("use_regex")));

  MNEME_TRY(ExpectText(root.Member("decoder").Member("type"), "ByteLevel"));
  const JsonField post = root.Member("post_processor");
  if (!post.IsNull()) MNEME_TRY(ExpectText(post.Member("type"), "ByteLevel"));
  return ExpectOff(root.Member("model").Member("byte_fallback"));
}

// Checks what both forms share but for the tables.
Status CheckShared(const JsonField& root) {
  MNEME_TRY(ExpectNull(root.Member("truncation")));
  MNEME_TRY(ExpectNull(root.Member("padding")));
  const JsonField model = root.Member("model");
  MNEME_TRY(ExpectText(model.Member("type"), "BPE"));
  const JsonField dropout = model.Member("dropout");
  const bool drops_nothing =
      dropout.IsNull() || (dropout.value->is_double() && dropout.value->get_double() == 0.0);
  if (!drops_nothing) return Fail(dropout.Unexpected("null or 0.0"));
  MNEME_TRY(ExpectEmptyText(model.Member("continuing_subword_prefix")));
  MNEME_TRY(ExpectEmptyText(model.Member("end_of_word_suffix")));
  return ExpectOff(model.Member("ignore_merges"));
}

bool FallsBackToBytes(const JsonField& root) {
  const JsonField fallback = root.Member("model").Member("byte_fallback");
  return !fallback.IsNull() && fallback.value->is_bool() && fallback.value->get_bool();
}

Result<AddedToken> ReadAddedToken(const JsonField& field) {
  const auto object = AsObject(field);
  MNEME_TRY(object);
  AddedToken token;
  const auto id = AsId(field.Member("id"), kVocabTokensMax + kAddedTokensMax);
  MNEME_TRY(id);
  token.id = *id;
  const JsonField content = field.Member("content");
  if (content.value == nullptr || !content.value->is_string()) {
    return Fail(content.Unexpected("a string"));
  }
  token.content = View(content.value->get_string());
  if (token.content.empty() || token.content.size() > kTokenBytesMax) {
    return Fail(ErrorCode::kInvalidArgument, "{}: expected 1 to {} bytes, found {}", content.path,
                kTokenBytesMax, token.content.size());
  }
  for (const std::string_view name : {"single_word", "lstrip", "rstrip"}) {
    MNEME_TRY(ExpectOff(field.Member(name)));
  }
  for (const auto& [name, flag] :
       {std::pair{"special", &token.special}, std::pair{"normalized", &token.normalized}}) {
    const JsonField member = field.Member(name);
    if (member.value == nullptr || !member.value->is_bool()) {
      return Fail(member.Unexpected("true or false"));
    }
    *flag = member.value->get_bool();
  }
  return token;
}

// Fills the tables, which refer to each other by the texts of the file.
class TableReader {
 public:
  Status Read(const JsonField& root) {
    if (FallsBackToBytes(root)) {
      MNEME_TRY(ReadCharacterForm(file_.characters.emplace(), root));
    } else {
      MNEME_TRY(CheckByteForm(root));
    }
    MNEME_TRY(CheckShared(root));
    file_.byte_ids.fill(-1);
    MNEME_TRY(ReadAdded(root.Member("added_tokens")));
    MNEME_TRY(ReadVocab(root.Member("model").Member("vocab")));
    MNEME_TRY(file_.characters ? FindCharacters() : FindBytes());
    MNEME_TRY(CheckBytes());
    MNEME_TRY(ReadMerges(root.Member("model").Member("merges")));
    return file_.characters ? TakeStart(root.Member("post_processor")) : Status();
  }

  TokenizerFile Take() && { return std::move(file_); }

 private:
  Status ReadAdded(const JsonField& field) {
    if (field.IsNull()) return {};
    const auto list = AsArray(field);
    MNEME_TRY(list);
    if ((*list)->size() > kAddedTokensMax) {
      return Fail(ErrorCode::kInvalidArgument, "{}: expected at most {} tokens, found {}",
                  field.path, kAddedTokensMax, (*list)->size());
    }
    file_.added.reserve((*list)->size());
    for (size_t i = 0; i < (*list)->size(); ++i) {
      auto token = ReadAddedToken({&(**list)[i], fmt::format("{}[{}]", field.path, i)});
      MNEME_TRY(token);
      file_.added.push_back(*std::move(token));
    }
    for (size_t i = 0; i < file_.added.size(); ++i) {
      const auto [place, fresh] = added_.emplace(file_.added[i].content, i);
      if (!fresh) {
        return Fail(ErrorCode::kInvalidArgument, "{}[{}].content: the same as {}[{}].content",
                    field.path, i, field.path, place->second);
      }
    }
    return {};
  }

  Status ReadVocab(const JsonField& field) {
    const auto object = AsObject(field);
    MNEME_TRY(object);
    if ((*object)->size() > kVocabTokensMax) {
      return Fail(ErrorCode::kInvalidArgument, "{}: expected at most {} tokens, found {}",
                  field.path, kVocabTokensMax, (*object)->size());
    }
    size_t tokens = (*object)->size();
    for (const AddedToken& token : file_.added) {
      if (!(*object)->contains(token.content)) ++tokens;
    }
    file_.token_bytes.resize(tokens);
    used_.resize(tokens);
    ids_.reserve((*object)->size());
    for (const auto& [key, value] : **object) {
      const std::string_view text(key.data(), key.size());
      // A token is named by its id, because its text may be anything.
      const auto id = AsId({&value, field.path + " value"}, tokens);
      MNEME_TRY(id);
      MNEME_TRY(Place(*id, field.path));
      const auto added = added_.find(text);
      if (added != added_.end()) {
        MNEME_TRY(CheckSameId(file_.added[added->second], *id, field.path));
        file_.token_bytes[static_cast<size_t>(*id)] = text;
        continue;
      }
      if (const auto byte = file_.characters ? ByteNamed(text) : std::nullopt) {
        file_.token_bytes[static_cast<size_t>(*id)] = std::string(1, *byte);
        file_.byte_ids[static_cast<unsigned char>(*byte)] = *id;
        continue;  // no merge makes it, so that text like its name stays text
      }
      auto bytes = file_.characters ? WithSpaces(text) : alphabet_.BytesOf(text);
      if (!bytes || bytes->empty() || bytes->size() > kTokenBytesMax) {
        return Fail(ErrorCode::kInvalidArgument, "{}: token {} is not the {}text of 1 to {} bytes",
                    field.path, *id, file_.characters ? "" : "byte-level ", kTokenBytesMax);
      }
      file_.token_bytes[static_cast<size_t>(*id)] = *std::move(bytes);
      ids_.emplace(text, *id);
    }
    for (const AddedToken& token : file_.added) {
      if ((*object)->contains(token.content)) continue;
      if (static_cast<size_t>(token.id) >= tokens) {
        return Fail(ErrorCode::kInvalidArgument,
                    "added_tokens: expected ids below {}, since there are that many tokens in "
                    "all, found {}",
                    tokens, token.id);
      }
      MNEME_TRY(Place(token.id, "added_tokens"));
      file_.token_bytes[static_cast<size_t>(token.id)] = token.content;
    }
    return {};
  }

  static Status CheckSameId(const AddedToken& token, int32_t id, std::string_view path) {
    if (token.id == id) return {};
    return Fail(ErrorCode::kInvalidArgument, "{}: token {} is added token {} by its content", path,
                id, token.id);
  }

  Status Place(int32_t id, std::string_view path) {
    if (used_[static_cast<size_t>(id)]) {
      return Fail(ErrorCode::kInvalidArgument, "{}: id {} is used twice", path, id);
    }
    used_[static_cast<size_t>(id)] = true;
    return {};
  }

  Status FindBytes() {
    for (const auto& [text, id] : ids_) {
      const std::string& bytes = file_.token_bytes[static_cast<size_t>(id)];
      if (bytes.size() == 1) file_.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
    }
    return {};
  }

  Status FindCharacters() {
    CharacterForm& form = *file_.characters;
    for (const auto& [text, id] : ids_) {
      const size_t bytes = FirstCharacter(text).bytes;
      if (bytes == text.size()) form.ids.emplace(CharacterOf(text), id);
      // Mark runs may begin a token; a mark behind anything else means tokens across words.
      bool other = false;
      for (size_t at = 0; at < text.size() && form.cuts_at_spaces;) {
        const bool mark = text.substr(at).starts_with(kSpaceMark);
        if (mark && other) form.cuts_at_spaces = false;
        other = other || !mark;
        at += mark ? kSpaceMark.size() : 1;
      }
    }
    if (form.ids.contains(CharacterOf(kSpaceMark))) return {};
    return Fail(ErrorCode::kInvalidArgument, "model.vocab: U+2581, the space, has no token");
  }

  Status TakeStart(const JsonField& post) {
    const auto start = ReadStart(post);
    MNEME_TRY(start);
    for (const std::string& content : *start) {
      const auto added = added_.find(content);
      if (added == added_.end()) {
        return Fail(ErrorCode::kInvalidArgument,
                    "{}.single: expected added tokens before the text, found another", post.path);
      }
      file_.start_ids.push_back(file_.added[added->second].id);
    }
    return {};
  }

  Status CheckBytes() {
    for (size_t byte = 0; byte < file_.byte_ids.size(); ++byte) {
      if (file_.byte_ids[byte] < 0) {
        return Fail(ErrorCode::kInvalidArgument, "model.vocab: byte {:#04x} has no token", byte);
      }
    }
    return {};
  }

  Status ReadMerges(const JsonField& field) {
    const auto list = AsArray(field);
    MNEME_TRY(list);
    if ((*list)->size() > kVocabTokensMax) {
      return Fail(ErrorCode::kInvalidArgument, "{}: expected at most {} merges, found {}",
                  field.path, kVocabTokensMax, (*list)->size());
    }
    file_.merges.reserve((*list)->size());
    for (const json::value& value : **list) {
      const auto pair = PairOf(value);
      const auto left = pair ? ids_.find(pair->first) : ids_.end();
      const auto right = pair ? ids_.find(pair->second) : ids_.end();
      if (!pair || left == ids_.end() || right == ids_.end()) {
        return Fail(ErrorCode::kInvalidArgument,
                    "{}[{}]: expected \"a b\" or [\"a\", \"b\"] of two tokens of the vocabulary, "
                    "found {}",
                    field.path, file_.merges.size(), pair ? "a text that is none" : KindOf(value));
      }
      joined_.assign(pair->first).append(pair->second);
      const auto joined = ids_.find(joined_);
      if (joined == ids_.end()) {
        return Fail(ErrorCode::kInvalidArgument,
                    "{}[{}]: tokens {} and {} joined are {}, not a token of the vocabulary",
                    field.path, file_.merges.size(), left->second, right->second,
                    added_.contains(joined_) ? "an added token" : "an unknown text");
      }
      file_.merges.push_back(
          {.left = left->second, .right = right->second, .joined = joined->second});
    }
    return {};
  }

  static std::optional<std::pair<std::string_view, std::string_view>> PairOf(
      const json::value& value) {
    if (value.is_string()) {
      const std::string_view text = View(value.get_string());
      const size_t space = text.find(' ');
      if (space == std::string_view::npos) return std::nullopt;
      return std::pair{text.substr(0, space), text.substr(space + 1)};
    }
    if (!value.is_array()) return std::nullopt;
    const json::array& pair = value.get_array();
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) return std::nullopt;
    return std::pair{View(pair[0].get_string()), View(pair[1].get_string())};
  }

  const ByteAlphabet alphabet_;
  TokenizerFile file_;
  std::unordered_map<std::string_view, int32_t> ids_;   // of the vocabulary, added ones left out
  std::unordered_map<std::string_view, size_t> added_;  // index into file_.added, by content
  std::vector<bool> used_;                              // by id
  std::string joined_;
};

}  // namespace

Result<TokenizerFile> ParseTokenizer(std::string_view text) {
  const auto root = ParseStrictJson(text, "contents", kJsonValuesInFileMax);
  MNEME_TRY(root);
  const JsonField field{&*root, ""};
  TableReader tables;
  MNEME_TRY(tables.Read(field));
  return std::move(tables).Take();
}

Result<TokenizerFile> ReadTokenizerFile(const std::string& path) {
  const auto context = fmt::format("tokenizer file {}", path);
  auto text = ReadTextFile(path, kTokenizerFileBytesMax);
  if (!text) return Fail(std::move(text).error().Within("tokenizer file"));
  auto file = ParseTokenizer(*text);
  if (!file) return Fail(std::move(file).error().Within(context));
  return file;
}

}  // namespace mneme::model
