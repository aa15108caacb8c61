// Phrases makes the sentences of one corpus: what a fact is about, how it is told, corrected, asked
// for and answered.
#pragma once

#include <string>
#include <tuple>

#include "eval/corpus.h"
#include "eval/random.h"

namespace mneme::eval {

// What a fact is about: an attribute of an owner ("Anna's door code") or a relation ("where Anna
// lives").
struct Key {
  std::string owner_class;
  std::string owner;      // empty for "self" and "team"
  std::string kind;       // of the value
  std::string attribute;  // empty for a relation
  std::string topic;      // of a relation, else empty
  int relation = -1;      // index into Wording::relations, or -1
  int verb = -1;          // index into Corpus::verbs, or -1

  // Relations of one topic are one key, because their answers could be mistaken for each other.
  bool operator==(const Key& other) const {
    return std::tie(owner_class, owner, attribute, topic, verb) ==
           std::tie(other.owner_class, other.owner, other.attribute, other.topic, other.verb);
  }
};

class Phrases {
 public:
  // Both must outlive it.
  Phrases(const Corpus& corpus, Random& random) : corpus_(corpus), random_(random) {}

  // A fresh key; a fifth are relations.
  Key FreshKey();
  std::string Value(const Key& key) { return corpus_.Value(random_, key.kind); }
  std::string Statement(const Key& key, const std::string& value);
  std::string Correction(const Key& key, const std::string& value);
  std::string Question(const Key& key);
  // The one right answer to a question about a fact with this value.
  std::string Answer(const std::string& value) const;
  // The one right answer where nothing was told.
  const std::string& Unknown() const { return corpus_.wording.unknown; }

 private:
  enum class Form { kStatement, kCorrection, kQuestion };

  std::string Telling(const Key& key, const std::string& value, Form form);
  std::string Sentence(const Key& key, const std::string& value, Form form);

  const Corpus& corpus_;
  Random& random_;
};

}  // namespace mneme::eval
