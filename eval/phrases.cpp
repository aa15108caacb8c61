#include "eval/phrases.h"

#include <cctype>

namespace mneme::eval {
namespace {

constexpr double kRelationShare = 0.2;
constexpr double kLeadInShare = 0.5;

// The first letter is raised at the start of a message and after a full stop.
std::string Begin(const std::string& lead_in, std::string sentence) {
  if ((lead_in.empty() || lead_in.ends_with(". ")) && !sentence.empty()) {
    sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  }
  return lead_in + sentence;
}

}  // namespace

Key Phrases::FreshKey() {
  Key key;
  if (random_.Unit() < kRelationShare && !corpus_.wording.relations.empty()) {
    key.relation = static_cast<int>(random_.Below(corpus_.wording.relations.size()));
    const Relation& relation = corpus_.wording.relations[static_cast<size_t>(key.relation)];
    key.owner_class = random_.Pick(relation.owners);
    key.kind = relation.kind;
    key.topic = relation.topic;
    if (relation.has_verb) key.verb = static_cast<int>(random_.Below(corpus_.verbs.size()));
  } else {
    int64_t weights = 0;
    for (const AttributeGroup& group : corpus_.attributes) weights += group.weight;
    int64_t drawn = random_.Between(0, weights - 1);
    size_t index = 0;
    while (drawn >= corpus_.attributes[index].weight) drawn -= corpus_.attributes[index++].weight;
    const AttributeGroup& group = corpus_.attributes[index];
    const std::string& modifier = random_.Pick(group.modifiers);
    key.attribute =
        Draw(random_, modifier + (modifier.empty() ? "" : " ") + random_.Pick(group.nouns),
             corpus_.value_slots);
    key.owner_class = random_.Pick(group.owners);
    key.kind = group.kind;
  }
  key.owner = corpus_.Owner(random_, key.owner_class);
  return key;
}

std::string Phrases::Statement(const Key& key, const std::string& value) {
  return Telling(key, value, Form::kStatement);
}

std::string Phrases::Correction(const Key& key, const std::string& value) {
  return Telling(key, value, Form::kCorrection);
}

std::string Phrases::Question(const Key& key) {
  const std::string lead_in = random_.Pick(corpus_.wording.question_lead_ins);
  return Begin(lead_in, Sentence(key, "", Form::kQuestion));
}

std::string Phrases::Answer(const std::string& value) const {
  return Fill(corpus_.wording.answer, {{"value", value}});
}

std::string Phrases::Telling(const Key& key, const std::string& value, Form form) {
  const std::string lead_in =
      random_.Unit() < kLeadInShare ? random_.Pick(corpus_.wording.lead_ins) : "";
  // The value is put in last, so that its first letter stays as it is.
  return Fill(Begin(lead_in, Sentence(key, "{value}", form)), {{"value", value}});
}

std::string Phrases::Sentence(const Key& key, const std::string& value, Form form) {
  const auto of = [form](const auto& lists) -> const std::vector<std::string>& {
    if (form == Form::kStatement) return lists.statements;
    return form == Form::kCorrection ? lists.corrections : lists.questions;
  };
  if (key.relation >= 0) {
    const Relation& relation = corpus_.wording.relations[static_cast<size_t>(key.relation)];
    const Verb verb = key.verb < 0 ? Verb{} : corpus_.verbs[static_cast<size_t>(key.verb)];
    return Fill(random_.Pick(of(relation)), {{"owner", key.owner},
                                             {"verb", verb.plain},
                                             {"verbs", verb.third_person},
                                             {"value", value}});
  }
  const std::string name = Fill(random_.Pick(corpus_.wording.key_forms.at(key.owner_class)),
                                {{"owner", key.owner}, {"attribute", key.attribute}});
  return Fill(random_.Pick(of(corpus_.wording)), {{"key", name}, {"value", value}});
}

}  // namespace mneme::eval
