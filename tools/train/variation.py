"""Variation that only training has: text around keys that no list of frames holds, and names that no list holds.

Frames are few and people's wording is not. So a share of the statements and questions gets random English around the
key, cut from filler, and a share of the names and values gets the tail of another word.
"""

import re

from phrases import Sentence

LINKS = ["is", "is", "is", "was", "are", "will be", "has been", "remains", "reads", "equals", "means", "says", "comes to", "would be", "is just", "is simply", ":", "="]
QUESTION_ENDS = ["?", "?", "?", ".", ", please.", ", please?", "", "!"]
STATEMENT_ENDS = [".", ".", ".", "", "!", ", OK?", ", thanks.", " ."]
WORD = re.compile(r"[A-Za-z]{5,}")


class Variation:
    def __init__(self, phrases, corpus, rng):
        self.phrases, self.rng = phrases, rng
        self.lines = [line for name in ("python_manual", "meeting_notes") for line in corpus.filler[name]]
        self.words = corpus.values["slots"]["word"]["choice"]

    def span(self, words_max):
        """Up to words_max successive words of a filler line."""
        words = [w for w in self.rng.choice(self.lines).split() if w.isalpha()]
        count = self.rng.randint(0, words_max)
        start = self.rng.randint(0, max(len(words) - count, 0))
        return " ".join(words[start:start + count])

    def lead_in(self):
        """Nothing, a few words and a mark, or a sentence."""
        text = self.span(5)
        return text[:1].upper() + text[1:] + self.rng.choice([": ", ", ", ". ", "! ", " - ", "? "]) if text else ""

    def statement(self, key, value, correct):
        """A statement in the corpus's wording, or one with other words around the key."""
        sentence = (self.phrases.correction if correct else self.phrases.statement)(key, value)
        if key.relation < 0 and not correct and self.rng.random() < 0.3:
            front = join(self.span(4), self.phrases.name(key), self.rng.choice(LINKS)) + " "
            text = front[0].upper() + front[1:] + value
            sentence = Sentence(text + self.rng.choice(STATEMENT_ENDS), len(front), len(text))
        return self.typed(self.led(sentence))

    def question(self, key):
        """A question in the corpus's wording, or other words around the key."""
        sentence = self.phrases.question(key)
        if key.relation < 0 and self.rng.random() < 0.4:
            text = join(self.span(6), self.phrases.name(key), self.span(4) if self.rng.random() < 0.3 else "")
            sentence = Sentence(text[0].upper() + text[1:] + self.rng.choice(QUESTION_ENDS))
        return self.typed(self.led(sentence))

    def led(self, sentence):
        if self.rng.random() < 0.3:
            lead_in = self.lead_in()
            text = sentence.text if lead_in.endswith((". ", "! ", "? ")) else sentence.text[0].lower() + sentence.text[1:]
            return Sentence(lead_in + text, sentence.value_start + len(lead_in), sentence.value_end + len(lead_in))
        return sentence

    def typed(self, sentence):
        """Now and then as people type: without the last mark, or with a small first letter."""
        if self.rng.random() < 0.1 and sentence.text[-1] in ".?":
            sentence.text = sentence.text[:-1]
        if self.rng.random() < 0.1:
            sentence.text = sentence.text[0].lower() + sentence.text[1:]
        return sentence

    def blended(self, text):
        """The text with the tails of some of its words exchanged, so that no list of words can be learned by heart."""
        return WORD.sub(lambda m: self._blend(m.group()) if self.rng.random() < 0.4 else m.group(), text)

    def _blend(self, word):
        head = self.rng.randint(2, len(word) - 2)
        return word[:head] + self.rng.choice(self.words)[-self.rng.randint(2, 4):]


def join(*parts):
    return " ".join(part for part in parts if part).replace(" :", ":")
