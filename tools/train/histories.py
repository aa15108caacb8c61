"""Evaluation histories: facts told at chosen depths among filler, and questions asked at the end, each in a fork.

The rules are those of eval/corpus/README.md, which the C++ evaluation follows too; the random numbers differ.
"""

import random
from dataclasses import dataclass, field

from phrases import Phrases

RELATION_SHARE = 0.2
PASTE_TOKENS = (100, 600)


@dataclass
class Question:
    kind: str      # "told", "corrected" or "untold"
    depth: float   # where the newest statement stands, as a share of the history
    turn: list     # token ids from the user's turn to the end of the generation prompt
    answer: list   # token ids that must follow, <|im_end|> included


@dataclass
class History:
    ids: list
    questions: list = field(default_factory=list)


class HistoryWriter:
    """Writes histories of one corpus."""

    def __init__(self, corpus, writer, seed):
        self.corpus, self.writer = corpus, writer
        self.rng = random.Random(seed)
        self.phrases = Phrases(corpus, self.rng)

    def write(self, tokens, facts, corrected=0, untold=0, depth=(0.0, 0.95)):
        """A history of about `tokens` tokens with `facts` facts, `corrected` of them told twice, and `untold` more questions."""
        keys = self._keys(facts + untold)
        told = {key: self.corpus.value(self.rng, key.kind) for key in keys[:facts]}
        events = [(self.rng.uniform(*depth), key, False) for key in told]
        for key in keys[:corrected]:
            first, second = sorted(self.rng.uniform(*depth) for _ in range(2))
            events = [e for e in events if e[1] != key] + [(first, key, False), (second, key, True)]
        history, at = History([]), {}
        for where, key, again in sorted(events, key=lambda e: e[0]):
            self._paste_until(history, int(where * tokens))
            if again:
                told[key] = self.corpus.value(self.rng, key.kind)
            sentence = (self.phrases.correction if again else self.phrases.statement)(key, told[key])
            at[key] = len(history.ids) / tokens
            history.ids += self.writer.user(self.writer.sentence(sentence).ids) + self._reply("acknowledgements")
        self._paste_until(history, tokens)
        for key in keys:
            kind = "untold" if key not in told else "corrected" if key in keys[:corrected] else "told"
            answer = self.phrases.answer(told[key]).text if key in told else self.corpus.wording["unknown"]
            turn = self.writer.user(self.writer.sentence(self.phrases.question(key)).ids) + self.writer.prompt
            history.questions.append(Question(kind, at.get(key, -1.0), turn, self.writer.line(answer) + [self.writer.end_id]))
        return history

    def _keys(self, count):
        found = {}
        while len(found) < count:
            owners = {c: [self.corpus.owner(self.rng, c)] for c in ("person", "thing", "self", "team")}
            key = self.phrases.key(owners, [self.phrases.attribute()], RELATION_SHARE)
            found.setdefault(key.id, key)
        return list(found.values())

    def _paste_until(self, history, tokens):
        """Pasted texts, each answered, until the history has `tokens` tokens; the last one is cut to fit."""
        writer, wording = self.writer, self.corpus.wording
        while len(history.ids) < tokens - 40:
            lines = self.rng.choice(list(self.corpus.filler.values()))
            at, length = self.rng.randrange(len(lines)), min(self.rng.randint(*PASTE_TOKENS), tokens - len(history.ids) - 30)
            content = list(writer.line(self.rng.choice(wording["filler_intros"])))
            while len(content) < length:
                content += writer.newline + writer.line(lines[at % len(lines)])
                at += 1
            history.ids += writer.user(content) + self._reply("filler_acknowledgements")

    def _reply(self, form):
        return self.writer.assistant(self.writer.line(self.rng.choice(self.corpus.wording[form])))
