"""Questions with several answers, after RULER: two facts at once, all values of one name, variables that pass a value on."""

import zlib
from dataclasses import dataclass, field

from phrases import Sentence

NAMED = [("special magic numbers", "digits"), ("special magic numbers", "digits"), ("magic words", "words"), ("secret codes", "serial"), ("lucky numbers", "digits"), ("guests", "person"),
         ("stops", "city"), ("helpers", "person"), ("dishes", "food"), ("pass phrases", "words"), ("owners", "person"), ("ports", "digits"), ("opening times", "time"), ("names", "words")]
ONE_OF = ["One of the {what} for {name} is: {value}.", "One of the {what} for {name} is {value}.", "Another of the {what} for {name} is {value}.", "{value} is one of the {what} for {name}.",
          "The {what} for {name} include {value}.", "Add {value} to the {what} for {name}.", "To the {what} for {name} belongs {value}.", "{name} has {value} among its {what}."]
ALL_OF = ["What are all the {what} for {name} mentioned in the provided text?", "What are all the {what} for {name}?", "List the {what} for {name}.", "Which {what} are there for {name}?",
          "name every one of the {what} for {name}", "Tell me all {what} for {name}, please.", "I need the {what} for {name}, all of them.", "Which are the {what} for {name}?"]
BOTH = ["What are {0} and {1}?", "{0} and {1}?", "Tell me {0} and {1}.", "I need {0} and {1}.", "What is {0}, and what is {1}?", "Two things: {0}, and {1}?", "Can you give me {0} and {1}, please?",
        "first {0}, then {1}", "Do you remember {0}? And {1}?", "Remind me of {0}, and also of {1}."]
ASSIGNED = ["VAR {0} = {1}", "VAR {0} = {1}", "{0} = {1}", "set {0} to {1}", "let {0} be {1}", "{0} := {1}"]
HOLDING = ["Find all variables that are assigned the value {0} in the text above.", "Which variables hold {0}?", "which variables have the value {0}", "List the variables equal to {0}.",
           "What are all the variables with the value {0}?"]
VALUES_MAX, LETTERS = 4, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass
class Part:
    """One text of an answer, and the positions of its tokens where it was told."""
    text: str
    positions: list
    key: int  # id under which chunks that mention it are neither right nor wrong


@dataclass
class Collection:
    """What one question asks for together."""
    what: str
    name: str
    kind: str                                   # of values; "variables" for a chain of assignments
    parts: list = field(default_factory=list)

    @property
    def id(self):
        return zlib.crc32(f"{self.kind}|{self.what}|{self.name}".encode()) | 1


def listed(parts):
    """The answer "a, b and c." and where its parts stand."""
    text, spans = "", []
    for i, part in enumerate(parts):
        text += "" if i == 0 else " and " if i == len(parts) - 1 else ", "
        spans.append((len(text), len(text) + len(part.text)))
        text += part.text
    return text + ".", spans


class Ruler:
    """The collections of one conversation."""

    def __init__(self, phrases, corpus, variation, rng):
        self.phrases, self.corpus, self.variation, self.rng = phrases, corpus, variation, rng
        self.collections = []

    def next_part(self, variables):
        """A statement that adds a part to a collection: (collection, text of the part, Sentence around it)."""
        fitting = [c for c in self.collections if (c.kind == "variables") == variables and len(c.parts) < VALUES_MAX]
        collection = self.rng.choice(fitting) if fitting and self.rng.random() < 0.7 else self._new(variables)
        if variables:
            part = "".join(self.rng.choice(LETTERS) for _ in range(self.rng.choice([1, 3, 5, 5])))
            before = collection.parts[-1].text if collection.parts else collection.name
            form = self.rng.choice(ASSIGNED)
            sentence = form.replace("{1}", f"VAR {before}" if collection.parts and form.startswith("VAR") else before)
            place = "{0}"
        else:
            part = self.variation.value(self.corpus.value(self.rng, collection.kind))
            sentence, place = self.rng.choice(ONE_OF).replace("{what}", collection.what).replace("{name}", collection.name), "{value}"
        if part in (p.text for p in collection.parts):
            return None
        start = sentence.index(place)
        return collection, part, Sentence(sentence.replace(place, part), start, start + len(part))

    def _new(self, variables):
        name = str(self.rng.randrange(10000, 100000)) if variables else "-".join(self.rng.choice(self.variation.lexicon) for _ in range(self.rng.choice([1, 2, 2])))
        what, kind = ("", "variables") if variables else self.rng.choice(NAMED)
        self.collections.append(Collection(what, name, kind))
        return self.collections[-1]

    def question(self, collection):
        if collection.kind == "variables":
            return Sentence(self.rng.choice(HOLDING).format(collection.name))
        return Sentence(self.rng.choice(ALL_OF).format(what=collection.what, name=collection.name))

    def both(self, keys):
        """One question for two attributes."""
        text = self.rng.choice(BOTH).format(*map(self.phrases.name, keys))
        return Sentence(text[0].upper() + text[1:] if self.rng.random() < 0.7 else text)
