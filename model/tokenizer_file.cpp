#include "model/tokenizer_file.h"

#include <boost/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "model/mapped_file.h"
#include "model/strict_json.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

// A value for each token, three for each merge, and all else.
constexpr size_t kJsonValuesInFileMax = 4 * kVocabTokensMax + 16 * kAddedTokensMax;

std::string_view KindOf(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "nothing";
}

std::string_view View(const json::string& text) { return {text.data(), text.size()}; }

// A value and where it stands in the file, so that a complaint can say so.
struct Field {
  const json::value* value = nullptr;  // null where the object has no such member
  std::string path;

  Field Member(std::string_view name) const {
    const json::value* member =
        value != nullptr && value->is_object() ? value->get_object().if_contains(name) : nullptr;
    return {member, path.empty() ? std::string(name) : fmt::format("{}.{}", path, name)};
  }

  Error Unexpected(std::string_view expected) const {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: expected {}, found {}", path, expected,
                             value == nullptr ? "nothing" : KindOf(*value)));
  }

  bool IsNull() const { return value == nullptr || value->is_null(); }
};

Result<const json::object*> AsObject(const Field& field) {
  if (field.value == nullptr || !field.value->is_object()) {
    return Fail(field.Unexpected("an object"));
  }
  return &field.value->get_object();
}

Result<const json::array*> AsArray(const Field& field) {
  if (field.value == nullptr || !field.value->is_array()) return Fail(field.Unexpected("an array"));
  return &field.value->get_array();
}

Status ExpectText(const Field& field, std::string_view expected) {
  if (field.value == nullptr || !field.value->is_string()) {
    return Fail(field.Unexpected(fmt::format("\"{}\"", expected)));
  }
  if (View(field.value->get_string()) != expected) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: expected \"{}\", found another string of {} bytes", field.path, expected,
                field.value->get_string().size());
  }
  return {};
}

// A switch that must be off; leaving it out means off too.
Status ExpectOff(const Field& field) {
  if (field.IsNull() || (field.value->is_bool() && !field.value->get_bool())) return {};
  return Fail(field.Unexpected("false"));
}

Status ExpectOffBecauseOnByDefault(const Field& field) {
  if (field.value == nullptr) return Fail(field.Unexpected("false"));
  return ExpectOff(field);
}

Status ExpectNull(const Field& field) {
  if (!field.IsNull()) return Fail(field.Unexpected("null"));
  return {};
}

Status ExpectEmptyText(const Field& field) {
  if (field.IsNull()) return {};
  if (field.value->is_string() && field.value->get_string().empty()) return {};
  return Fail(field.Unexpected("null or an empty string"));
}

Result<int32_t> AsId(const Field& field, size_t tokens) {
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

// Checks all of the file that is not a table.
Status CheckShape(const Field& root) {
  MNEME_TRY(ExpectNull(root.Member("truncation")));
  MNEME_TRY(ExpectNull(root.Member("padding")));
  MNEME_TRY(ExpectText(root.Member("normalizer").Member("type"), "NFC"));

  const Field pre = root.Member("pre_tokenizer");
  MNEME_TRY(ExpectText(pre.Member("type"), "Sequence"));
  const Field list = pre.Member("pretokenizers");
  const auto steps = AsArray(list);
  MNEME_TRY(steps);
  if ((*steps)->size() != 2) {
    return Fail(ErrorCode::kInvalidArgument, "{}: expected 2 steps, found {}", list.path,
                (*steps)->size());
  }
  const Field split{&(**steps)[0], list.path + "[0]"};
  MNEME_TRY(ExpectText(split.Member("type"), "Split"));
  MNEME_TRY(ExpectText(split.Member("pattern").Member("Regex"), kPreTokenizerRegex));
  MNEME_TRY(ExpectText(split.Member("behavior"), "Isolated"));
  MNEME_TRY(ExpectOff(split.Member("invert")));
  const Field bytes{&(**steps)[1], list.path + "[1]"};
  MNEME_TRY(ExpectText(bytes.Member("type"), "ByteLevel"));
  MNEME_TRY(ExpectOffBecauseOnByDefault(bytes.Member("add_prefix_space")));
  MNEME_TRY(ExpectOffBecauseOnByDefault(bytes.Member("use_regex")));

  MNEME_TRY(ExpectText(root.Member("decoder").Member("type"), "ByteLevel"));
  const Field post = root.Member("post_processor");
  if (!post.IsNull()) MNEME_TRY(ExpectText(post.Member("type"), "ByteLevel"));

  const Field model = root.Member("model");
  MNEME_TRY(ExpectText(model.Member("type"), "BPE"));
  const Field dropout = model.Member("dropout");
  const bool drops_nothing =
      dropout.IsNull() || (dropout.value->is_double() && dropout.value->get_double() == 0.0);
  if (!drops_nothing) return Fail(dropout.Unexpected("null or 0.0"));
  MNEME_TRY(ExpectEmptyText(model.Member("continuing_subword_prefix")));
  MNEME_TRY(ExpectEmptyText(model.Member("end_of_word_suffix")));
  MNEME_TRY(ExpectOff(model.Member("byte_fallback")));
  MNEME_TRY(ExpectOff(model.Member("ignore_merges")));
  return {};
}

Result<AddedToken> ReadAddedToken(const Field& field) {
  const auto object = AsObject(field);
  MNEME_TRY(object);
  AddedToken token;
  const auto id = AsId(field.Member("id"), kVocabTokensMax + kAddedTokensMax);
  MNEME_TRY(id);
  token.id = *id;
  const Field content = field.Member("content");
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
    const Field member = field.Member(name);
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
  Status Read(const Field& root) {
    MNEME_TRY(ReadAdded(root.Member("added_tokens")));
    MNEME_TRY(ReadVocab(root.Member("model").Member("vocab")));
    MNEME_TRY(CheckBytes());
    return ReadMerges(root.Member("model").Member("merges"));
  }

  TokenizerFile Take() && { return std::move(file_); }

 private:
  Status ReadAdded(const Field& field) {
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

  Status ReadVocab(const Field& field) {
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
      auto bytes = alphabet_.BytesOf(text);
      if (!bytes || bytes->empty() || bytes->size() > kTokenBytesMax) {
        return Fail(ErrorCode::kInvalidArgument,
                    "{}: token {} is not the byte-level text of 1 to {} bytes", field.path, *id,
                    kTokenBytesMax);
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

  Status CheckBytes() {
    file_.byte_ids.fill(-1);
    for (const auto& [text, id] : ids_) {
      const std::string& bytes = file_.token_bytes[static_cast<size_t>(id)];
      if (bytes.size() == 1) file_.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
    }
    for (size_t byte = 0; byte < file_.byte_ids.size(); ++byte) {
      if (file_.byte_ids[byte] < 0) {
        return Fail(ErrorCode::kInvalidArgument, "model.vocab: byte {:#04x} has no token", byte);
      }
    }
    return {};
  }

  Status ReadMerges(const Field& field) {
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
  const Field field{&*root, ""};
  MNEME_TRY(CheckShape(field));
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
