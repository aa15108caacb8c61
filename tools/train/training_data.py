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
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from corpus import Corpus
from filler_formats import exchanged_prose, random_lines
from messages import MessageWriter
from phrases import Phrases
from ruler import Part, Ruler, listed
from turns import TurnWriter
from variation import Variation

CHUNK = 256
NONE, TOLD, UNTOLD = 0, 1, 2
KEYS_PER_CHUNK = 24
WEIGHT_FIRST, WEIGHT_ANSWER, WEIGHT_REPLY, WEIGHT_TEXT = 2.0, 1.0, 0.2, 0.05  # of predicting an answer's first token, ...
RELATION_SHARE, QUOTATION_SHARE, MADE_UP_FILLER_SHARE = 0.55, 0.08, 0.45
LIST_SHARE, COLLECTION_SHARE, VARIABLES_SHARE = 0.1, 0.05, 0.4  # of telling turns; of telling turns; of collections
TWO_ASKED_SHARE, SYSTEM_SHARE, SMALL_LETTERS_SHARE = 0.04, 0.12, 0.1  # of questions; of conversations; of questions


@dataclass
class Fact:
    key: object
    value: str
    versions: list = field(default_factory=list)  # of each statement, oldest first: positions of the value's tokens


class Conversation:
    """One growing sample."""

    def __init__(self, corpus, writer, rng, tokens, filler=1.0):
        """filler: how much of the usual pasted text there is; 1 is half of the tokens."""
        self.corpus, self.writer, self.rng, self.tokens = corpus, writer, rng, tokens
        self.phrases = Phrases(corpus, rng)
        self.variation = Variation(self.phrases, corpus, rng)
        self.messages = MessageWriter(corpus, self.phrases, rng)
        self.ruler = Ruler(self.phrases, corpus, self.variation, rng)
        self.ids, self.weights, self.spans, self.answers = [], [], [], []
        self.rows_left = tokens // 8 - 16
        self.facts = {}
        self.sources = list(corpus.filler.values())
        pool = rng.randint(2, 3 + tokens // 256)
        self.owners = {c: [self.owner(c) for _ in range(pool)] for c in ("person", "thing", "self", "team")}
        for names in (self.owners["person"], self.owners["thing"]):
            names += [self.variation.similar(name) for name in names if rng.random() < 0.15]
        self.attributes = [self.phrases.attribute() for _ in range(pool)]
        self.siblings = {}  # attribute -> others that are easily taken for it
        for group in rng.sample(corpus.contrasts, rng.choice([0, 1, 1, 2])):
            members = [(text, group["kind"], group["owners"]) for text in rng.sample(group["members"], min(len(group["members"]), rng.randint(2, 5)))]
            self.siblings.update({text: [m for m in members if m[0] != text] for text, _, _ in members})
            self.attributes += members
        self.filler_tokens = int(16 * (filler * tokens / 40) ** rng.random())  # mean length of a pasted text
        self.filler_share = 1 - (1 - 0.12 * filler) * rng.choice([1.0, 1.0, 1.0, 1 - 0.4 * filler, 1 - 0.8 * filler])  # of turns

    def write(self):
        if self.rng.random() < SYSTEM_SHARE:
            self.append(self.writer.system(self.writer.fresh(self.variation.lead_in() + self.variation.span(30, 4).capitalize() + ".")), 0.0)
        while len(self.ids) < self.tokens + 1:
            draw = self.rng.random()
            if self.rng.random() < self.filler_share:
                self.filler_turn([])
            elif draw < 0.25 or not self.facts:
                self.telling_turn(correct=bool(self.facts) and self.rng.random() < 0.2)
            elif draw < 0.98 and self.rows_left > 16:
                self.rows_left -= self.asking_turn()
            elif draw < 0.98:
                self.filler_turn([])
            else:
                self.small_talk_turn()

    def append(self, ids, weight):
        """Adds tokens; weight is that of predicting each of them. Returns the position of the first."""
        start = len(self.ids)
        self.ids += ids
        self.weights += [weight] * len(ids)
        return start

    def reply(self, phrases):
        content = self.writer.line(self.rng.choice(phrases))
        self.append(self.writer.prompt, 0.0)
        self.append(content + [self.writer.end_id], WEIGHT_REPLY)
        self.append(self.writer.newline, 0.0)

    def owner(self, owner_class):
        return self.variation.altered_owner(self.corpus.owner(self.rng, owner_class))

    def value(self, key):
        return self.variation.value(self.corpus.value(self.rng, key.kind))

    def new_key(self):
        if self.rng.random() < QUOTATION_SHARE:
            owner_class = self.rng.choice(["self", "person", "thing"])
            return self.variation.quotation(owner_class, self.rng.choice(self.owners[owner_class]))
        if self.rng.random() < 0.4:
            fresh = {c: [self.owner(c)] for c in self.owners}
            return self.phrases.key(fresh, [self.phrases.attribute()], RELATION_SHARE)
        return self.phrases.key(self.owners, self.attributes, RELATION_SHARE)

    def telling_turn(self, correct):
        """One to three facts in one message, a list of facts, or facts inside a pasted text."""
        if not correct and self.rng.random() < COLLECTION_SHARE:
            self.collecting_turn()
            return
        form = self.rng.choice(self.messages.lists) if not correct and self.rng.random() < LIST_SHARE else None
        told = []
        for number in range(1, 1 + (self.rng.randint(2, 7) if form else self.rng.choice([1, 1, 1, 1, 1, 1, 1, 2, 2, 3]))):
            if correct:
                fact = self.rng.choice(list(self.facts.values()))
                fact.value = self.value(fact.key)
                told.append((fact, self.variation.statement(fact.key, fact.value, correct=True)))
                continue
            key = self.new_key()
            if key.id not in self.facts:
                fact = self.facts[key.id] = Fact(key, self.value(key))
                sentence = form and self.messages.item(form, number, key, fact.value)
                told.append((fact, sentence or self.variation.statement(key, fact.value, correct=False)))
        if not told:
            return
        if not form and self.rng.random() < 0.15:
            self.filler_turn(told)
            return
        sentences = [sentence for _, sentence in told]
        message = self.messages.list(sentences, form) if form else self.messages.message(sentences)
        places = self.append_message(message)
        for (fact, _), (start, end) in zip(told, message.values):
            fact.value = message.text[start:end]
        self.mark_told([(fact, *place) for (fact, _), place in zip(told, places)])
        self.reply(self.wording("acknowledgements"))

    def append_message(self, message):
        """A user's turn; returns the positions of each told sentence and of its value."""
        spans = [span for pair in zip(message.sentences, message.values) for span in pair]
        content, indices = self.writer.passage(message.text, spans)
        start = self.append(self.writer.user(content), WEIGHT_TEXT) + self.writer.user_prefix
        positions = [[start + i for i in some] for some in indices]
        return list(zip(positions[::2], positions[1::2]))

    def collecting_turn(self):
        """One more value of a collection, of which all are asked for together."""
        added = self.ruler.next_part(self.rng.random() < VARIABLES_SHARE)
        if not added:
            return
        collection, text, sentence = added
        (told, value), = self.append_message(self.messages.list([sentence]))
        self.mark_value(collection.id, told, value)
        collection.parts.append(Part(text, value, collection.id))
        self.reply(self.wording("acknowledgements"))

    def mark_told(self, places):
        """places: (fact, positions of its sentence, positions of its value)."""
        for fact, sentence, value in places:
            self.mark_value(fact.key.id, sentence, value)
            fact.versions.append(value)

    def mark_value(self, key, sentence, value):
        """The positions of a sentence mention `key`; those of its value cannot be predicted and have no weight."""
        for p in value:
            self.weights[p] = 0.0
        self.spans.append((sentence[0], sentence[-1] + 1, key))

    def wording(self, name):
        return self.corpus.wording[name]

    def filler_turn(self, told):
        """A pasted text or tool output with the told sentences as lines of their own inside it."""
        lines = self.lines()
        length = min(int(self.rng.expovariate(1 / self.filler_tokens)) + 8, self.tokens // 2)
        content, places, told = [], [], list(told)
        share = self.rng.random()
        as_tool = self.rng.random() < 0.25
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
        start = self.append(turn, WEIGHT_TEXT) + (self.writer.tool_prefix if as_tool else self.writer.user_prefix)
        self.mark_told([(fact, [start + i for i in sentence], [start + i for i in value]) for fact, sentence, value in places])
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
        collections = [c for c in self.ruler.collections if c.parts]
        if collections and self.rng.random() < 0.1:
            collection = self.rng.choice(collections)
            return self.ask_parts(self.ruler.question(collection), collection.parts)
        facts = list(self.facts.values())
        named = [f for f in facts if f.key.relation < 0 and not f.key.topic]
        if len(named) > 1 and self.rng.random() < TWO_ASKED_SHARE:
            two = self.rng.sample(named, 2)
            return self.ask_parts(self.ruler.both([f.key for f in two]), [Part(f.value, f.versions[-1], f.key.id) for f in two])
        corrected = [f for f in facts if len(f.versions) > 1]
        fact = self.rng.choice(corrected if corrected and self.rng.random() < 0.3 else facts)
        return self.ask_parts(self.question(fact.key), [Part(fact.value, fact.versions[-1], fact.key.id)], fact.versions[-3:-1])

    def question(self, key):
        question = self.variation.question(key)
        if self.rng.random() < SMALL_LETTERS_SHARE:
            question.text = question.text.lower()
        return question

    def ask_parts(self, question, parts, older=()):
        """Asks for texts told before; `older` are the positions of earlier versions of a single one."""
        text, spans = listed(parts)
        answer, indices = self.writer.passage(text, spans)
        if len(answer) > self.rows_left:
            return 0
        first = self.ask(question, {part.key for part in parts}, answer, WEIGHT_FIRST)
        part, piece = 0, 0
        for i in range(len(answer)):
            if part + 1 < len(parts) and i >= indices[part + 1][0]:
                part, piece = part + 1, 0
            source = parts[part].positions
            self.answers.append((first + i, TOLD, parts[part].key, source[min(piece, len(source) - 1)] // CHUNK, [p[min(piece, len(p) - 1)] // CHUNK for p in older]))
            piece += 1
        self.question_ends()
        return len(answer)

    def ask_untold(self):
        key = self.near_miss() if self.rng.random() < 0.6 and self.facts else self.new_key()
        if not key or key.id in self.facts:
            return 0
        first = self.ask(self.question(key), {key.id}, self.writer.line(self.wording("unknown")), WEIGHT_FIRST)
        self.answers.append((first, UNTOLD, key.id, -1, []))
        self.question_ends()
        return 1

    def near_miss(self):
        """A key that differs from that of a told fact in the owner, or in an attribute of the same kind."""
        near = self.rng.choice(list(self.facts.values())).key
        if near.topic == "quotation":
            return None
        if near.relation < 0 and (not near.owner or self.rng.random() < 0.6):
            others = self.siblings.get(near.attribute) if self.rng.random() < 0.7 else None
            others = [(t, k) for t, k, classes in others or self.attributes if near.owner_class in classes and not t.endswith(near.attribute) and not near.attribute.endswith(t)]
            if not others:
                return None
            attribute, kind = self.rng.choice(others)
            return replace(near, attribute=attribute, kind=kind)
        if not near.owner:
            return None
        owner = self.variation.similar(near.owner) if self.rng.random() < 0.5 else self.rng.choice(self.owners[near.owner_class])
        return replace(near, owner=owner) if owner != near.owner else None

    def ask(self, question, keys, answer, weight):
        """Appends question and answer, whose first token weighs `weight`; returns the position that predicts that token."""
        question = self.writer.sentence(question).ids
        start = self.append(self.writer.user(question), WEIGHT_TEXT)
        self.append(self.writer.prompt, 0.0)
        begin = self.append(answer[:1], weight)
        self.append(answer[1:], WEIGHT_ANSWER)
        self.spans += [(start, len(self.ids), key) for key in keys]
        self.append([self.writer.end_id], WEIGHT_REPLY)
        self.append(self.writer.newline, 0.0)
        return begin - 1

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
        assert len(positions) == R
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

    def __init__(self, tokenizer_path, tokens, batch, seed, filler=1.0):
        self.tokenizer_path, self.tokens, self.batch, self.seed, self.filler = tokenizer_path, tokens, batch, seed, filler

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(f"{self.seed}/{worker.id if worker else 0}")
        corpus, writer = Corpus.training(), TurnWriter(self.tokenizer_path)
        while True:
            samples = []
            for _ in range(self.batch):
                conversation = Conversation(corpus, writer, rng, self.tokens, self.filler)
                conversation.write()
                samples.append(conversation.arrays())
            yield {name: torch.from_numpy(np.stack([s[name] for s in samples])) for name in samples[0]}
