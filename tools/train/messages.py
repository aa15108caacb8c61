"""Messages that tell facts: sentence after sentence, inside a letter or note, or as a list."""

import re
from dataclasses import dataclass

from phrases import Sentence

FACT = re.compile(r"\{fact\}")
MESSAGE_SHARE, SMALL_LETTERS_SHARE = 0.17, 0.07


@dataclass
class Message:
    text: str
    sentences: list  # (start, end) of each told sentence, in characters
    values: list     # (start, end) of each value

    def small_letters(self):
        """The same typed without capitals; the offsets stay, so texts whose length would change are left alone."""
        if len(self.text.lower()) == len(self.text):
            self.text = self.text.lower()


class MessageWriter:
    def __init__(self, corpus, phrases, rng):
        self.phrases, self.rng = phrases, rng
        self.lists = corpus.messages["lists"]
        self.frames = {}  # number of facts -> texts around them
        for text in corpus.messages["messages"]:
            self.frames.setdefault(len(FACT.findall(text)), []).append(text)

    def item(self, form, number, key, value):
        """One line of a list. Only attributes have a name of their own; None for other keys."""
        if key.relation >= 0 or key.topic:
            return None
        name = self.phrases.name(key)
        before, after = (part.replace("{n}", str(number)).replace("{key}", name) for part in form["item"].split("{value}"))
        return Sentence(before + value + after, len(before), len(before) + len(value))

    def list(self, items, form=None):
        """Items one after another, between what `form` says before and after them."""
        form = form or {}
        intro, end = form.get("intro"), form.get("end")
        separator = form.get("join") or self.rng.choice(["\n"] * 8 + [", ", "; "])
        return self._joined(f"{intro}\n" if intro else "", items, lambda: separator, f"\n{end}" if end else "")

    def message(self, sentences):
        """One to three sentences, in a row or where a frame has room for them."""
        frames = self.frames.get(len(sentences))
        if frames and self.rng.random() < MESSAGE_SHARE:
            parts = FACT.split(self.rng.choice(frames))
            between = iter(parts[1:-1])
            message = self._joined(parts[0], sentences, lambda: next(between), parts[-1])
        else:
            message = self._joined("", sentences, lambda: self.rng.choice([" ", " ", " ", "\n", " And "]), "")
        if self.rng.random() < SMALL_LETTERS_SHARE:
            message.small_letters()
        return message

    @staticmethod
    def _joined(text, sentences, separator, end):
        message = Message(text, [], [])
        for sentence in sentences:
            message.text += separator() if message.sentences else ""
            start = len(message.text)
            message.sentences.append((start, start + len(sentence.text)))
            message.values.append((start + sentence.value_start, start + sentence.value_end))
            message.text += sentence.text
        message.text += end
        return message
