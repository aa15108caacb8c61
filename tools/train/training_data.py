"""Training conversations: facts told, corrected and asked among filler, with the labels that routing is taught by.

A sample is a dict of arrays; T tokens, N = T / 256 chunks, R = T / 8 rows (the tokens that may read routed history):

    ids            int64 [T]      tokens
    target         int64 [T]      the token after each
    weight         float32 [T]    weight of predicting it
    rows           int64 [R]      positions, ascending: every answer token, else random ones
    row_kind       int64 [R]      NONE, TOLD, UNTOLD (see below)
    row_key        int64 [R]      id of the key that the row speaks about, or 0
    row_chunk      int64 [R]      chunk that holds the piece to be answered, -1 where no closed chunk does
    row_older      int64 [R, 2]   chunks of older versions of the same fact, -1 for none
    row_question   int64 [R]      number of the question within the sample, -1 outside answers
    chunk_keys     int64 [N, 24]  ids of keys mentioned in a chunk (statements, questions, answers), 0 for none
"""

import random
from dataclasses import dataclass, field

import numpy as np
import torch

from corpus import Corpus
from filler_formats import exchanged_prose, random_lines
from phrases import Phrases
from turns import TurnWriter
from variation import Variation

CHUNK = 256
NONE, TOLD, UNTOLD = 0, 1, 2
KEYS_PER_CHUNK = 24
WEIGHT_FIRST, WEIGHT_ANSWER, WEIGHT_REPLY, WEIGHT_TEXT = 2.0, 1.0, 0.2, 0.05  # of predicting an answer's first token, its others, ...
RELATION_SHARE, QUOTATION_SHARE, MADE_UP_FILLER_SHARE = 0.45, 0.1, 0.45


@dataclass
class Fact:
    key: object
    value: str
    versions: list = field(default_factory=list)  # of each statement, oldest first: positions of the value's tokens


class Conversation:
    """One growing sample."""

    def __init__(self, corpus, writer, rng, tokens):
        self.corpus, self.writer, self.rng, self.tokens = corpus, writer, rng, tokens
        self.phrases = Phrases(corpus, rng)
        self.variation = Variation(self.phrases, corpus, rng)
        self.ids, self.weights, self.spans, self.answers = [], [], [], []
        self.facts = {}
        self.sources = list(corpus.filler.values())
        pool = rng.randint(2, 3 + tokens // 256)
        self.owners = {c: [self.owner(c) for _ in range(pool)] for c in ("person", "thing", "self", "team")}
        self.attributes = [self.phrases.attribute() for _ in range(pool)]
        self.filler_tokens = int(16 * (tokens / 40) ** rng.random())  # mean length of a pasted text
        self.density = rng.choice([1.0, 1.0, 1.0, 0.6, 0.2])  # share of turns that are about facts

    def write(self):
        rows_left = self.tokens // 8 - 16
        while len(self.ids) < self.tokens + 1:
            draw = self.rng.random()
            if self.rng.random() > self.density or draw < 0.12:
                self.filler_turn([])
            elif draw < 0.38 or not self.facts:
                self.telling_turn(correct=bool(self.facts) and self.rng.random() < 0.2)
            elif draw < 0.98 and rows_left > 16:
                rows_left -= self.asking_turn()
            elif draw < 0.98:
                self.filler_turn([])
            else:
                self.small_talk_turn()

    def append(self, ids, weight, key=0):
        """Adds tokens; weight is that of predicting each of them."""
        start = len(self.ids)
        self.ids += ids
        self.weights += [weight] * len(ids)
        if key:
            self.spans.append((start, len(self.ids), key))
        return start

    def reply(self, phrases):
        content = self.writer.line(self.rng.choice(phrases))
        self.append(self.writer.prompt, 0.0)
        self.append(content + [self.writer.end_id], WEIGHT_REPLY)
        self.append(self.writer.newline, 0.0)

    def owner(self, owner_class):
        return self.variation.altered_owner(self.corpus.owner(self.rng, owner_class))

    def value(self, key):
        return self.variation.altered(self.corpus.value(self.rng, key.kind))

    def new_key(self):
        if self.rng.random() < QUOTATION_SHARE:
            owner_class = self.rng.choice(["self", "person", "thing"])
            return self.variation.quotation(owner_class, self.rng.choice(self.owners[owner_class]))
        if self.rng.random() < 0.4:
            fresh = {c: [self.owner(c)] for c in self.owners}
            return self.phrases.key(fresh, [self.phrases.attribute()], RELATION_SHARE)
        return self.phrases.key(self.owners, self.attributes, RELATION_SHARE)

    def telling_turn(self, correct):
        """One to three facts in one message, sometimes inside a pasted text."""
        told = []
        for _ in range(self.rng.choice([1, 1, 1, 1, 1, 1, 1, 2, 2, 3])):
            if correct:
                fact = self.rng.choice(list(self.facts.values()))
                fact.value = self.value(fact.key)
                told.append((fact, self.variation.statement(fact.key, fact.value, correct=True)))
            else:
                key = self.new_key()
                if key.id in self.facts:
                    continue
                fact = self.facts[key.id] = Fact(key, self.value(key))
                told.append((fact, self.variation.statement(key, fact.value, correct=False)))
        if not told:
            return
        if self.rng.random() < 0.15:
            self.filler_turn(told)
            return
        text, spans = "", []
        for fact, sentence in told:
            text += self.rng.choice([" ", " ", " ", "\n", " And "]) if text else ""
            spans += [(len(text), len(text) + len(sentence.text)), (len(text) + sentence.value_start, len(text) + sentence.value_end)]
            text += sentence.text
        content, indices = self.writer.passage(text, spans)
        start = self.append(self.writer.user(content), WEIGHT_TEXT) + self.writer.user_prefix
        self.mark_told(start, [(fact, *indices[2 * i:2 * i + 2]) for i, (fact, _) in enumerate(told)])
        self.reply(self.wording("acknowledgements"))

    def mark_told(self, start, places):
        """places: (fact, indices of its sentence, indices of its value), from `start` on. The value cannot be predicted and has no weight."""
        for fact, sentence, value in places:
            positions = [start + i for i in value]
            for p in positions:
                self.weights[p] = 0.0
            fact.versions.append(positions)
            self.spans.append((start + sentence[0], start + sentence[-1] + 1, fact.key.id))

    def wording(self, name):
        return self.corpus.wording[name]

    def filler_turn(self, told):
        """A pasted text or tool output with the told sentences as lines of their own inside it."""
        lines = self.lines()
        length = min(int(self.rng.expovariate(1 / self.filler_tokens)) + 8, self.tokens // 2)
        content, places, told = [], [], list(told)
        share = self.rng.random()
        as_tool = not told and self.rng.random() < 0.25
        if not as_tool and self.rng.random() < 0.7:
            content += self.writer.line(self.rng.choice(self.wording("filler_intros")))
        while len(content) < length or told:
            content += self.writer.newline if content else []
            if told and len(content) >= share * length:
                fact, sentence = told.pop(0)
                encoded = self.writer.sentence(sentence)
                places.append((fact, [len(content), len(content) + len(encoded.ids) - 1], [len(content) + i for i in encoded.value]))
                content += encoded.ids
            else:
                content += next(lines)
        turn = self.writer.tool(content) if as_tool else self.writer.user(content)
        start = self.append(turn, WEIGHT_TEXT) + self.writer.user_prefix
        self.mark_told(start, places)
        self.reply(self.wording("acknowledgements" if places else "filler_acknowledgements"))

    def lines(self):
        """Endless lines of one text as ids: of a corpus file, or in a form made up for it."""
        if self.rng.random() < MADE_UP_FILLER_SHARE:
            made_up = self.rng.choice([random_lines, random_lines, exchanged_prose])
            names = self.owners["person"] + self.owners["thing"]
            for line in made_up(self.rng, self.variation.lexicon, self.variation.sentences, names):
                yield self.writer.fresh(line)
        lines = self.rng.choice(self.sources)
        at = self.rng.randrange(len(lines))
        while True:
            yield self.shuffled_digits(self.writer.line(lines[at % len(lines)]))
            at += 1

    def shuffled_digits(self, ids):
        """Other numbers in the same text, so that filler is not learned by heart."""
        digits = self.writer.digits
        return [digits[self.rng.randrange(10)] if t in digits else t for t in ids]

    def asking_turn(self):
        """A question and its answer; returns the rows that it takes."""
        if self.rng.random() < 0.16:
            return self.ask_untold()
        facts = list(self.facts.values())
        corrected = [f for f in facts if len(f.versions) > 1]
        fact = self.rng.choice(corrected if corrected and self.rng.random() < 0.3 else facts)
        answer = self.writer.sentence(self.phrases.answer(fact.value))
        newest, older = fact.versions[-1], fact.versions[-3:-1]
        first = self.ask(fact.key, answer.ids)
        for i in range(len(answer.value) + 1):
            source = newest[min(i, len(newest) - 1)]
            self.answers.append((first + i, TOLD, fact.key.id, source // CHUNK, [p[min(i, len(p) - 1)] // CHUNK for p in older]))
        self.question_ends()
        return len(answer.value) + 1

    def ask_untold(self):
        key = self.new_key()
        if self.rng.random() < 0.5 and self.facts:  # a near miss: same owner or same attribute as something told
            near = self.rng.choice(list(self.facts.values())).key
            if near.relation < 0 and near.owner and not near.topic:
                swapped = {near.owner_class: [near.owner if self.rng.random() < 0.5 else self.owner(near.owner_class)]}
                attributes = [(near.attribute, near.kind, [near.owner_class])]
                if swapped[near.owner_class][0] == near.owner:
                    attributes = [(t, k, [near.owner_class]) for t, k, c in self.attributes if near.owner_class in c] or attributes
                key = self.phrases.key(swapped, attributes, relation_share=0.0)
        if key.id in self.facts:
            return 0
        first = self.ask(key, self.writer.line(self.wording("unknown")))
        self.answers.append((first, UNTOLD, key.id, -1, []))
        self.question_ends()
        return 1

    def ask(self, key, answer):
        """Appends question and answer; returns the position that predicts the answer's first token."""
        question = self.writer.sentence(self.variation.question(key))
        self.append(self.writer.user(question.ids), WEIGHT_TEXT, key.id)
        self.append(self.writer.prompt, 0.0, key.id)
        start = self.append(answer[:1], WEIGHT_FIRST, key.id)
        self.append(answer[1:], WEIGHT_ANSWER, key.id)
        self.append([self.writer.end_id], WEIGHT_REPLY)
        self.append(self.writer.newline, 0.0)
        return start - 1

    def question_ends(self):
        self.answers.append(None)

    def small_talk_turn(self):
        message, reply = self.rng.choice(self.wording("small_talk"))
        self.append(self.writer.user(self.writer.line(message)), WEIGHT_TEXT)
        self.reply([reply])

    def arrays(self):
        T, N, R = self.tokens, self.tokens // CHUNK, self.tokens // 8
        token_key = np.zeros(T, np.int64)
        keys_of = [set() for _ in range(N)]
        for start, end, key in self.spans:
            token_key[start:end] = key
            for chunk in range(start // CHUNK, min((end - 1) // CHUNK, N - 1) + 1):
                keys_of[chunk].add(key)
        rows, question = {}, 0
        for answer in self.answers:
            if answer is None:
                question += 1
            elif answer[0] < T:
                rows[answer[0]] = (*answer[1:], question)
        others = self.rng.sample(range(T), R)
        for position in others:
            if len(rows) == R:
                break
            rows.setdefault(position, (NONE, int(token_key[position]), -1, [], -1))
        positions = sorted(rows)
        sample = {"ids": np.array(self.ids[:T], np.int64), "weight": np.zeros(T, np.float32), "rows": np.array(positions, np.int64)}
        sample["weight"][:] = self.weights[1:T + 1]
        sample["target"] = np.array(self.ids[1:T + 1], np.int64)
        picked = [rows[p] for p in positions]
        current = sample["rows"] // CHUNK
        sample["row_kind"] = np.array([p[0] for p in picked], np.int64)
        sample["row_key"] = np.array([p[1] for p in picked], np.int64)
        chunk = np.array([p[2] for p in picked], np.int64)
        sample["row_chunk"] = np.where(chunk < current, chunk, -1)
        older = np.array([(p[3] + [-1, -1])[:2] for p in picked], np.int64)
        sample["row_older"] = np.where(older < current[:, None], older, -1)
        sample["row_question"] = np.array([p[4] for p in picked], np.int64)
        sample["chunk_keys"] = np.array([(sorted(k) + [0] * KEYS_PER_CHUNK)[:KEYS_PER_CHUNK] for k in keys_of], np.int64)
        return sample


class Conversations(torch.utils.data.IterableDataset):
    """Endless batches of `batch` samples; every worker and every rank draws its own stream from the seed."""

    def __init__(self, tokenizer_path, tokens, batch, seed):
        self.tokenizer_path, self.tokens, self.batch, self.seed = tokenizer_path, tokens, batch, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(f"{self.seed}/{worker.id if worker else 0}")
        corpus, writer = Corpus.train(), TurnWriter(self.tokenizer_path)
        while True:
            samples = []
            for _ in range(self.batch):
                conversation = Conversation(corpus, writer, rng, self.tokens)
                conversation.write()
                samples.append(conversation.arrays())
            yield {name: torch.from_numpy(np.stack([s[name] for s in samples])) for name in samples[0]}
