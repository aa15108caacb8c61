"""Sentences about facts: keys, statements, corrections and questions in the wording of one corpus."""

import zlib
from dataclasses import dataclass, field

from corpus import draw, fill


@dataclass(frozen=True)
class Key:
    """What a fact is about: an attribute of an owner ("Anna's door code"), or a relation ("where Anna lives")."""
    owner_class: str
    owner: str
    kind: str
    attribute: str = ""  # of a relation: the verb, where it has one; of a quotation: its words
    topic: str = ""      # of a relation: what it is about; relations of one topic and owner are one key
    relation: int = field(default=-1, compare=False)  # index into wording["relations"], -1 for attributes

    @property
    def id(self):
        """A positive number, equal for equal keys."""
        return zlib.crc32(f"{self.owner_class}|{self.owner}|{self.attribute}|{self.topic}".encode()) | 1


@dataclass
class Sentence:
    text: str
    value_start: int = 0  # characters; equal to value_end where there is no value
    value_end: int = 0


class Phrases:
    def __init__(self, corpus, rng):
        self.corpus, self.wording, self.rng = corpus, corpus.wording, rng
        self._third_person = dict(corpus.verbs)
        self._attribute_weights = [group["weight"] for group in corpus.attributes]

    def attribute(self):
        """A random attribute: (text, kind, owner classes)."""
        group, = self.rng.choices(self.corpus.attributes, self._attribute_weights)
        text = f"{self.rng.choice(group['modifiers'])} {self.rng.choice(group['nouns'])}".strip()
        text = draw(self.rng, [text], self.corpus.values["slots"])
        return text, group["kind"], group["owners"]

    def key(self, owners, attributes, relation_share):
        """A key from pools: owners {class: [names]} and attributes [(text, kind, classes)]."""
        if self.rng.random() < relation_share:
            index = self.rng.randrange(len(self.wording["relations"]))
            relation = self.wording["relations"][index]
            owner_class = self.rng.choice(relation["owners"])
            verb = self.rng.choice(self.corpus.verbs)[0] if relation.get("verbs") else ""
            return Key(owner_class, self.rng.choice(owners[owner_class]), relation["kind"], verb, relation["topic"], index)
        text, kind, classes = self.rng.choice(attributes)
        owner_class = self.rng.choice(classes)
        return Key(owner_class, self.rng.choice(owners[owner_class]), kind, attribute=text)

    def statement(self, key, value):
        return self._telling(key, value, "statements")

    def correction(self, key, value):
        return self._telling(key, value, "corrections")

    def question(self, key):
        return Sentence(self._start(self.rng.choice(self.wording["question_lead_ins"]), self._frame(key, "questions")))

    def answer(self, value):
        template = self.wording["answer"]
        start = template.index("{value}")
        return Sentence(template.replace("{value}", value), start, start + len(value))

    def _telling(self, key, value, form):
        lead_in = self.rng.choice(self.wording["lead_ins"]) if self.rng.random() < 0.5 else ""
        text = self._start(lead_in, self._frame(key, form))
        start = text.index("{value}")
        return Sentence(text.replace("{value}", value), start, start + len(value))

    def _frame(self, key, form):
        """A sentence in which only {value} is left open."""
        if key.relation >= 0:
            template = self.rng.choice(self.wording["relations"][key.relation][form])
            return fill(template, {"owner": key.owner, "value": "{value}", "verb": key.attribute, "verbs": self._third_person.get(key.attribute)})
        return fill(self.rng.choice(self.wording[form]), {"key": self.name(key), "value": "{value}"})

    def name(self, key):
        """A noun phrase for an attribute of an owner."""
        return fill(self.rng.choice(self.wording["key_forms"][key.owner_class]), {"owner": key.owner, "attribute": key.attribute})

    @staticmethod
    def _start(lead_in, sentence):
        """The first letter is raised at the start of a message and after a full stop."""
        if not lead_in or lead_in.endswith(". "):
            sentence = sentence[0].upper() + sentence[1:]
        return lead_in + sentence
