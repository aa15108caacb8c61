"""One part of the corpus (train, development or held_out below eval/corpus): wording, attributes, names, values, verbs, filler.

The files and the rules by which conversations are made of them are described in eval/corpus/README.md.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "eval" / "corpus"
SLOT = re.compile(r"\{(\w+)\}")
FILES = ("wording", "attributes", "names", "values", "verbs", "filler")
DIGITS, LETTERS = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def fill(template, slots):
    """The template with each {name} replaced by slots[name]."""
    return SLOT.sub(lambda m: slots[m.group(1)], template)


def draw_slot(rng, slot):
    """A text for one slot: {"choice": [...]}, {"range": [lo, hi]}, {"digits": [min, max]} or {"letters": [min, max]}."""
    (form, limits), = slot.items()
    if form == "choice":
        return rng.choice(limits)
    if form == "range":
        return str(rng.randint(*limits))
    length = rng.randint(*limits)
    if form == "digits":
        return rng.choice(DIGITS[1:]) + "".join(rng.choice(DIGITS) for _ in range(length - 1))
    return "".join(rng.choice(LETTERS) for _ in range(length))


def draw(rng, templates, slots):
    """One of the templates, every occurrence of a slot drawn afresh."""
    return SLOT.sub(lambda m: draw_slot(rng, slots[m.group(1)]), rng.choice(templates))


_training = False


def begin_training():
    """From now on this process refuses to open the held-out half."""
    global _training
    _training = True


@dataclass
class Corpus:
    wording: dict
    attributes: list
    names: dict
    values: dict
    verbs: list   # [base, third person]
    filler: dict  # source name -> lines
    messages: dict = None   # of training() alone: texts and lists that facts stand in
    contrasts: list = None  # of training() alone: groups of attributes that are easily taken for each other

    @classmethod
    def train(cls):
        """What the score "in distribution" is asked from."""
        return cls._load({name: "train" for name in FILES})

    @classmethod
    def training(cls):
        """The same and train_more/: everything that training may see."""
        corpus = cls.train()
        more = {path.stem: json.loads(path.read_text()) for path in (ROOT / "train_more").glob("*.json")}
        corpus.messages, corpus.contrasts = more.pop("messages"), more.pop("contrasts")
        for name, addition in more.items():
            setattr(corpus, name, _extended(getattr(corpus, name), addition))
        return corpus

    @classmethod
    def development(cls):
        """Wording and attributes that training does not have, for choices between recipes and for calibration."""
        return cls._load({name: "development" if name in ("wording", "attributes") else "train" for name in FILES})

    @classmethod
    def held_out(cls):
        """For evaluation only: a process that trains is refused."""
        if _training:
            raise PermissionError("eval/corpus/held_out is for evaluation; nothing that trains may open it")
        return cls._load({name: "held_out" for name in FILES})

    @classmethod
    def _load(cls, halves):
        """halves: the folder that each of FILES comes from."""
        files = {name: json.loads((ROOT / half / f"{name}.json").read_text()) for name, half in halves.items() if name != "filler"}
        filler = {path.stem: path.read_text().splitlines() for path in sorted((ROOT / halves["filler"] / "filler").glob("*.txt"))}
        return cls(**files, filler=filler)

    def value(self, rng, kind):
        return draw(rng, self.values["kinds"][kind], self.values["slots"])

    def owner(self, rng, owner_class):
        """A person or a thing that has attributes; empty for the classes without a name ("self", "team")."""
        if owner_class not in self.names:
            return ""
        return draw(rng, self.names[owner_class]["templates"], self.names["slots"])

    @cached_property
    def lexicon(self):
        """The words of values, and single small-letter words that the definitions explain."""
        defined = (line.split(":", 1)[0] for line in self.filler["definitions"])
        return self.values["slots"]["word"]["choice"] + [w for w in defined if re.fullmatch("[a-z]{3,10}", w)]

    @cached_property
    def prose(self):
        """Lines of English, the example sentences twice."""
        return [line for name in ("example_sentences", "example_sentences", "python_manual", "meeting_notes") for line in self.filler[name]]

    def texts(self):
        """All text that teaches the tokenizer: filler and wording, without names and values."""
        frames = [s for s in _strings(self.wording) + _strings(self.attributes)] * 6
        return ["\n".join(lines) for lines in self.filler.values()] + ["\n ".join(frames)]

    def remembered_words(self):
        return [s for lists in (self.names, self.values) for slot in lists["slots"].values() for s in slot.get("choice", [])]


def _extended(value, addition):
    """Lists one after the other, dictionaries key by key."""
    if isinstance(value, dict):
        return {name: _extended(value[name], addition[name]) if name in value and name in addition else value.get(name, addition.get(name)) for name in {**value, **addition}}
    return value + addition


def _strings(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [s for item in value for s in _strings(item)] if not isinstance(value, (int, float)) else []
