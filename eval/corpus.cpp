#include "eval/corpus.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <fstream>

#include "base/file_error.h"
#include "model/mapped_file.h"

namespace mneme::eval {
namespace {

namespace json = boost::json;
using Texts = std::vector<std::string>;

// Reads fields of one file; the first thing that is wrong is remembered and ends the reading.
class Reading {
 public:
  explicit Reading(std::filesystem::path file) : file_(std::move(file)) {}

  json::value Parse() {
    const auto text = model::ReadTextFile(file_, kCorpusFileBytesMax);
    if (!text) {
      if (!error_) error_ = text.error();
      return {};
    }
    boost::system::error_code failure;
    json::value value = json::parse(*text, failure);
    if (failure) Refuse(ErrorCode::kInvalidArgument, "is not JSON: " + failure.message());
    return value;
  }

  const json::value& Field(const json::value& object, const char* name) {
    static const json::value nothing;
    const json::object* fields = object.if_object();
    const json::value* found = fields == nullptr ? nullptr : fields->if_contains(name);
    if (found == nullptr) Refuse(ErrorCode::kInvalidArgument, std::string(name) + " is missing");
    return found == nullptr ? nothing : *found;
  }

  std::string Text(const json::value& value, const char* name) {
    if (const json::string* text = value.if_string()) return std::string(text->c_str());
    Refuse(ErrorCode::kInvalidArgument, std::string(name) + " is not a text");
    return {};
  }

  int64_t Number(const json::value& value, const char* name) {
    if (const int64_t* number = value.if_int64()) return *number;
    Refuse(ErrorCode::kInvalidArgument, std::string(name) + " is not a whole number");
    return 0;
  }

  // False where the field is absent.
  bool Flag(const json::value& object, const char* name) {
    const json::object* fields = object.if_object();
    const json::value* found = fields == nullptr ? nullptr : fields->if_contains(name);
    if (found == nullptr) return false;
    if (const bool* flag = found->if_bool()) return *flag;
    Refuse(ErrorCode::kInvalidArgument, std::string(name) + " is not true or false");
    return false;
  }

  Texts List(const json::value& value, const char* name) {
    Texts texts;
    const json::array* items = value.if_array();
    if (items == nullptr || items->empty()) {
      Refuse(ErrorCode::kInvalidArgument, std::string(name) + " is not a list of texts");
      return texts;
    }
    for (const json::value& item : *items) texts.push_back(Text(item, name));
    return texts;
  }

  Texts List(const json::value& object, const char* name, int) {
    return List(Field(object, name), name);
  }

  Slots ReadSlots(const json::value& value) {
    Slots slots;
    const json::object* fields = value.if_object();
    if (fields == nullptr) {
      Refuse(ErrorCode::kInvalidArgument, "slots is not an object");
      return slots;
    }
    for (const auto& field : *fields)
      slots[std::string(field.key())] = ReadSlot(field.value(), std::string(field.key()));
    return slots;
  }

  void Refuse(ErrorCode code, const std::string& what) {
    if (!error_) error_ = Error(code, file_.string() + ": " + what);
  }

  Status status() const {
    if (error_) return Fail(*error_);
    return {};
  }

 private:
  Slot ReadSlot(const json::value& value, const std::string& name) {
    static const std::map<std::string, Slot::Form> forms = {{"choice", Slot::Form::kChoice},
                                                            {"range", Slot::Form::kRange},
                                                            {"digits", Slot::Form::kDigits},
                                                            {"letters", Slot::Form::kLetters}};
    Slot slot;
    const json::object* fields = value.if_object();
    const auto form = fields == nullptr || fields->size() != 1
                          ? forms.end()
                          : forms.find(std::string(fields->begin()->key()));
    if (form == forms.end()) {
      Refuse(ErrorCode::kInvalidArgument, "slot " + name + " has no form of its own");
      return slot;
    }
    slot.form = form->second;
    const json::value& limits = fields->begin()->value();
    if (slot.form == Slot::Form::kChoice) {
      slot.choices = List(limits, name.c_str());
      return slot;
    }
    const json::array* pair = limits.if_array();
    if (pair == nullptr || pair->size() != 2) {
      Refuse(ErrorCode::kInvalidArgument, "slot " + name + " has no two limits");
      return slot;
    }
    slot.first = Number((*pair)[0], name.c_str());
    slot.last = Number((*pair)[1], name.c_str());
    if (slot.first > slot.last || slot.first < 0)
      Refuse(ErrorCode::kInvalidArgument, "slot " + name + " has its limits the wrong way round");
    return slot;
  }

  std::filesystem::path file_;
  std::optional<Error> error_;
};

Status ReadWording(const std::filesystem::path& file, Wording& wording) {
  Reading reading(file);
  const json::value root = reading.Parse();
  MNEME_TRY(reading.status());
  const auto list = [&](const char* name) { return reading.List(root, name, 0); };
  wording.lead_ins = list("lead_ins");
  wording.statements = list("statements");
  wording.corrections = list("corrections");
  wording.questions = list("questions");
  wording.question_lead_ins = list("question_lead_ins");
  wording.acknowledgements = list("acknowledgements");
  wording.filler_acknowledgements = list("filler_acknowledgements");
  wording.filler_intros = list("filler_intros");
  wording.answer = reading.Text(reading.Field(root, "answer"), "answer");
  wording.unknown = reading.Text(reading.Field(root, "unknown"), "unknown");
  if (const json::object* forms = reading.Field(root, "key_forms").if_object()) {
    for (const auto& form : *forms)
      wording.key_forms[std::string(form.key())] = reading.List(form.value(), "key_forms");
  }
  const json::array* relations = reading.Field(root, "relations").if_array();
  if (relations == nullptr) reading.Refuse(ErrorCode::kInvalidArgument, "relations is not a list");
  for (const json::value& item : relations == nullptr ? json::array() : *relations) {
    wording.relations.push_back({.owners = reading.List(item, "owners", 0),
                                 .kind = reading.Text(reading.Field(item, "kind"), "kind"),
                                 .topic = reading.Text(reading.Field(item, "topic"), "topic"),
                                 .has_verb = reading.Flag(item, "verbs"),
                                 .statements = reading.List(item, "statements", 0),
                                 .corrections = reading.List(item, "corrections", 0),
                                 .questions = reading.List(item, "questions", 0)});
  }
  return reading.status();
}

Status ReadAttributes(const std::filesystem::path& file, std::vector<AttributeGroup>& groups) {
  Reading reading(file);
  const json::value root = reading.Parse();
  MNEME_TRY(reading.status());
  const json::array* items = root.if_array();
  if (items == nullptr || items->empty()) {
    reading.Refuse(ErrorCode::kInvalidArgument, "is not a list of attribute groups");
    return reading.status();
  }
  for (const json::value& item : *items) {
    groups.push_back({.kind = reading.Text(reading.Field(item, "kind"), "kind"),
                      .weight = reading.Number(reading.Field(item, "weight"), "weight"),
                      .owners = reading.List(item, "owners", 0),
                      .modifiers = reading.List(item, "modifiers", 0),
                      .nouns = reading.List(item, "nouns", 0)});
    if (groups.back().weight < 1) reading.Refuse(ErrorCode::kInvalidArgument, "weight is below 1");
  }
  return reading.status();
}

Status ReadVerbs(const std::filesystem::path& file, std::vector<Verb>& verbs) {
  Reading reading(file);
  const json::value root = reading.Parse();
  MNEME_TRY(reading.status());
  const json::array* items = root.if_array();
  if (items == nullptr) reading.Refuse(ErrorCode::kInvalidArgument, "is not a list of verbs");
  for (const json::value& item : items == nullptr ? json::array() : *items) {
    const Texts forms = reading.List(item, "verb");
    if (forms.size() != 2) {
      reading.Refuse(ErrorCode::kInvalidArgument, "a verb has two forms");
      break;
    }
    verbs.push_back({.plain = forms[0], .third_person = forms[1]});
  }
  return reading.status();
}

Status ReadNames(const std::filesystem::path& file, Corpus& corpus) {
  Reading reading(file);
  const json::value root = reading.Parse();
  MNEME_TRY(reading.status());
  corpus.name_slots = reading.ReadSlots(reading.Field(root, "slots"));
  MNEME_TRY(reading.status());
  for (const auto& field : root.as_object()) {
    if (field.key() == "slots") continue;
    corpus.owner_templates[std::string(field.key())] = reading.List(field.value(), "templates", 0);
  }
  return reading.status();
}

Status ReadValues(const std::filesystem::path& file, Corpus& corpus) {
  Reading reading(file);
  const json::value root = reading.Parse();
  MNEME_TRY(reading.status());
  corpus.value_slots = reading.ReadSlots(reading.Field(root, "slots"));
  const json::object* kinds = reading.Field(root, "kinds").if_object();
  if (kinds == nullptr) reading.Refuse(ErrorCode::kInvalidArgument, "kinds is not an object");
  for (const auto& kind : kinds == nullptr ? json::object() : *kinds)
    corpus.value_templates[std::string(kind.key())] = reading.List(kind.value(), "kinds");
  return reading.status();
}

Status ReadFiller(const std::filesystem::path& folder, Corpus& corpus) {
  std::vector<std::filesystem::path> files;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    if (!stream)
      return Fail(FileErrorCode(errno), "{}", FileErrorText(file.string(), "opened", errno));
    Texts lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    if (!lines.empty()) corpus.filler.push_back(std::move(lines));
  }
  if (corpus.filler.empty())
    return Fail(ErrorCode::kNotFound, "{}: no filler (*.txt)", folder.string());
  return {};
}

// Everything that is drawn from a list must have one.
Status CheckNames(const std::filesystem::path& folder, const Corpus& corpus) {
  const auto kind_exists = [&](const std::string& kind) -> Status {
    if (corpus.value_templates.contains(kind)) return {};
    return Fail(ErrorCode::kInvalidArgument, "{}: values.json has no kind {}", folder.string(),
                kind);
  };
  for (const AttributeGroup& group : corpus.attributes) {
    MNEME_TRY(kind_exists(group.kind));
    for (const std::string& owner : group.owners) {
      if (!corpus.wording.key_forms.contains(owner))
        return Fail(ErrorCode::kInvalidArgument, "{}: wording.json has no key_forms of {}",
                    folder.string(), owner);
    }
  }
  for (const Relation& relation : corpus.wording.relations) {
    MNEME_TRY(kind_exists(relation.kind));
    if (relation.has_verb && corpus.verbs.empty())
      return Fail(ErrorCode::kInvalidArgument, "{}: a relation wants verbs, verbs.json has none",
                  folder.string());
  }
  return {};
}

std::string DrawSlot(Random& random, const Slot& slot) {
  if (slot.form == Slot::Form::kChoice) return random.Pick(slot.choices);
  if (slot.form == Slot::Form::kRange) return std::to_string(random.Between(slot.first, slot.last));
  const bool digits = slot.form == Slot::Form::kDigits;
  std::string text;
  const int64_t length = random.Between(slot.first, slot.last);
  for (int64_t index = 0; index < length; ++index) {
    const int64_t first = digits && index == 0 ? 1 : 0;  // numbers do not begin with 0
    text += static_cast<char>((digits ? '0' : 'A') + random.Between(first, digits ? 9 : 25));
  }
  return text;
}

// Calls replace(name) for every {name} and puts its text in the place.
template <typename Replace>
std::string ReplaceSlots(const std::string& text, Replace replace) {
  std::string result;
  size_t done = 0;
  while (done < text.size()) {
    const size_t open = text.find('{', done);
    const size_t close = open == std::string::npos ? open : text.find('}', open);
    if (close == std::string::npos) break;
    result += text.substr(done, open - done) + replace(text.substr(open + 1, close - open - 1));
    done = close + 1;
  }
  return result + text.substr(done);
}

}  // namespace

Result<Corpus> Corpus::Load(const std::filesystem::path& folder) {
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure)) {
    return Fail(ErrorCode::kNotFound,
                "corpus {}: no such folder (looked for {}); start the command in the repository, "
                "whose eval/corpus has train/ and held_out/, or name such a folder with --corpus",
                folder.string(), std::filesystem::absolute(folder, failure).string());
  }
  Corpus corpus;
  MNEME_TRY(ReadWording(folder / "wording.json", corpus.wording));
  MNEME_TRY(ReadAttributes(folder / "attributes.json", corpus.attributes));
  MNEME_TRY(ReadVerbs(folder / "verbs.json", corpus.verbs));
  MNEME_TRY(ReadNames(folder / "names.json", corpus));
  MNEME_TRY(ReadValues(folder / "values.json", corpus));
  MNEME_TRY(ReadFiller(folder / "filler", corpus));
  MNEME_TRY(CheckNames(folder, corpus));
  return corpus;
}

std::string Corpus::Value(Random& random, const std::string& kind) const {
  return Draw(random, random.Pick(value_templates.at(kind)), value_slots);
}

std::string Corpus::Owner(Random& random, const std::string& owner_class) const {
  const auto templates = owner_templates.find(owner_class);
  if (templates == owner_templates.end()) return {};
  return Draw(random, random.Pick(templates->second), name_slots);
}

std::string Draw(Random& random, const std::string& template_text, const Slots& slots) {
  return ReplaceSlots(template_text, [&](const std::string& name) {
    const auto slot = slots.find(name);
    return slot == slots.end() ? "{" + name + "}" : DrawSlot(random, slot->second);
  });
}

std::string Fill(const std::string& template_text,
                 const std::vector<std::pair<std::string, std::string>>& values) {
  return ReplaceSlots(template_text, [&](const std::string& name) {
    for (const auto& [slot, text] : values) {
      if (slot == name) return text;
    }
    return "{" + name + "}";
  });
}

}  // namespace mneme::eval
