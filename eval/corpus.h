// Corpus is one half of eval/corpus: wording, attributes, names, values and filler, from which
// histories and questions are made. `train` is what the demo model was trained on, `held_out` is
// what no training sample used. eval/corpus/README.md describes the files and the rules.
//
// Errors:   kNotFound         a file is missing
//           kInvalidArgument  a file is not what the README says; the message names file and field
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "eval/random.h"

namespace mneme::eval {

inline constexpr uint64_t kCorpusFileBytesMax = uint64_t{64} << 20;  // of a JSON file

// A text for a `{name}` of a template.
struct Slot {
  enum class Form { kChoice, kRange, kDigits, kLetters };
  Form form = Form::kChoice;
  std::vector<std::string> choices;
  int64_t first =
      0;  // kRange: smallest and largest number; kDigits, kLetters: shortest and longest
  int64_t last = 0;
};

using Slots = std::map<std::string, Slot>;

// Something told of an owner in words of its own: "{owner} lives in {value}."
struct Relation {
  std::vector<std::string> owners;  // classes
  std::string kind;                 // of the value
  std::string topic;                // what it is about: "residence"
  bool has_verb = false;            // "{owner} {verbs} {value}."
  std::vector<std::string> statements, corrections, questions;
};

struct Verb {
  std::string plain;         // "collect"
  std::string third_person;  // "collects"
};

struct Wording {
  std::vector<std::string> lead_ins, statements, corrections, questions, question_lead_ins;
  std::vector<std::string> acknowledgements, filler_acknowledgements, filler_intros;
  std::string answer, unknown;
  std::map<std::string, std::vector<std::string>> key_forms;  // by owner class
  std::vector<Relation> relations;
};

// Attributes that share a kind of value: "door code", "locker number".
struct AttributeGroup {
  std::string kind;
  int64_t weight = 1;
  std::vector<std::string> owners, modifiers, nouns;
};

struct Corpus {
  Wording wording;
  std::vector<Verb> verbs;
  std::vector<AttributeGroup> attributes;
  std::map<std::string, std::vector<std::string>> owner_templates;  // by owner class
  Slots name_slots;
  std::map<std::string, std::vector<std::string>> value_templates;  // by kind
  Slots value_slots;
  std::vector<std::vector<std::string>> filler;  // lines of each source

  static Result<Corpus> Load(const std::filesystem::path& folder);

  // A value of this kind, as "4711" or "the blue door".
  std::string Value(Random& random, const std::string& kind) const;
  // A person or a thing; empty for classes without a name ("self", "team").
  std::string Owner(Random& random, const std::string& owner_class) const;
};

// `template_text` with every {name} drawn afresh from its slot.
std::string Draw(Random& random, const std::string& template_text, const Slots& slots);

// `template_text` with every {name} replaced by values.at(name); others stay.
std::string Fill(const std::string& template_text,
                 const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace mneme::eval
