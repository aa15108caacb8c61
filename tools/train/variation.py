"""Variation that only training has: text around keys that no list of frames holds, names that no list holds, and facts quoted from prose.

Frames are few and people's wording is not. So a share of the statements and questions gets random English around the
key, cut from filler; words of names and values are exchanged or made up, and some values are put together from any
pieces, digits and marks; some facts are sentences of prose with a value put in, asked for by a part of their words; and
some messages are typed in small letters or with two letters swapped.
"""

import re

from phrases import Key, Sentence

LINKS = ["is", "is", "is", "was", "are", "will be", "has been", "remains", "reads", "equals", "means", "says", "comes to", "would be", "is just", "is simply", ":", "=",
         "is going to be", "got changed to", "is listed as", "ended up being", "happens to be", "has to be", "goes by", "turned into", "is called", "stands at", "is exactly",
         "is now known as", "should read", "shows", "->", "-", "is set to", "was given as", "is most likely", "ought to be", "looks like", "is none other than", "is spelled"]
ADVERBS = ["still", "now", "really", "probably", "always", "usually", "apparently", "officially", "finally", "certainly", "currently", "of course", "indeed", "simply", "sadly", "luckily"]
QUESTION_ENDS = ["?", "?", "?", ".", ", please.", ", please?", "", "!"]
STATEMENT_ENDS = [".", ".", ".", "", "!", ", OK?", ", thanks.", " ."]
STOP_WORDS = set("a an the is are was were be been do does did of to for in on at my our i me we us it that this which who what where when how please can could you would have has had".split())
QUOTING = ["complete this: {0} ...", "{0} what?", "what comes after \"{0}\"?", "{0} ...", "fill in the rest: {0}", "I said something about {0}. What was it?", "what did I say about {0}?",
           "{0} - what was that?", "which word belongs to {0}?", "what did I tell you, {0} ...?", "what was it with {0}?", "how does it go, {0} ...?", "finish the sentence: {0}",
           "who or what was it: {0}?", "remember {0}?", "tell me again, {0}?", "{0}?", "where did I say {0}?", "what do you have on {0}?", "something about {0}, what exactly?"]
QUOTED_KINDS = ["words", "words", "words", "person", "city", "digits", "serial", "place", "object", "food", "color", "date", "time", "duration", "activity", "company"]
ONSETS = "b bl br c ch cl cr d dr dw f fl fr g gl gn gr h j k kn kr l ll m mb n ng p ph pl pr qu r rh s sc sh sk sl sm sn sp st str sv sw t th tr ts tw v vl w wh wr x y z zh".split() + [""]
VOWELS = "a e i o u a e i o u y ae ai au ay ea ee ei eo eu ey ia ie io oa oe oi oo ou ow ua ue ui".split()
CODAS = ["", "", ""] + "b ck ct d f ff ft g h k l ll lm ln lt m mp n nd ng nk nn nt p pt r rd rg rk rm rn rt rx s sh sk ss st t th tt tz v w x xt z".split()
MARKS = ["-", "-", "-", "/", ".", "_", ":", " ", " ", "#", "+", "@", "*", "&", "", "", " - ", ", "]
ACCENTED = str.maketrans("aeiouncsyzoAEO", "\u00e4\u00e9\u00ed\u00f6\u00fc\u00f1\u00e7\u0161\u00fd\u017e\u00f8\u00c5\u00c9\u00d6")
WORD = re.compile(r"[^\W\d_]{3,}")
LETTER_PAIR = re.compile(r"[a-z]{2}")


class Variation:
    def __init__(self, phrases, corpus, rng):
        self.phrases, self.rng = phrases, rng
        self.lines, self.lexicon = corpus.prose, corpus.lexicon
        self.sentences = corpus.filler["example_sentences"]

    def span(self, words_max, words_min=0):
        """Up to words_max successive words of a filler line."""
        words = [w for w in self.rng.choice(self.lines).split() if w.isalpha()]
        count = self.rng.randint(words_min, words_max)
        start = self.rng.randint(0, max(len(words) - count, 0))
        return " ".join(words[start:start + count])

    def lead_in(self):
        """Nothing, a few words and a mark, or a sentence."""
        if self.rng.random() < 0.3:
            text = self.rng.choice(self.sentences)
            return text[0].upper() + text[1:] + self.rng.choice([". ", ". ", "! ", "? "])
        text = self.span(5)
        return text[:1].upper() + text[1:] + self.rng.choice([": ", ", ", ". ", "! ", " - ", "? "]) if text else ""

    def quotation(self, owner_class, owner):
        """A key made of words from prose, as a person might say anything at all."""
        words = ""
        while words.count(" ") < 2:
            words = self.span(7, 3)
        return Key(owner_class, owner, self.rng.choice(QUOTED_KINDS), words, topic="quotation")

    def statement(self, key, value, correct):
        """A statement in the corpus's wording, or one with other words around the key."""
        if key.topic == "quotation":
            return self._quoted_statement(key, value, correct)
        sentence = (self.phrases.correction if correct else self.phrases.statement)(key, value)
        draw = self.rng.random()
        if key.relation < 0 and not correct and draw < 0.25:
            front = join(self.span(4), self.phrases.name(key), self._link()) + " "
            sentence = _with_value(front, value, self.rng.choice(STATEMENT_ENDS))
        elif key.relation < 0 and not correct and draw < 0.3:
            sentence = _with_value("", value, " " + join(self._link(), self.phrases.name(key), self.span(3)) + ".")
        sentence = self.led(sentence)
        if self.rng.random() < 0.2 and sentence.text[-1] == ".":
            tail = self.rng.choice([", " + self.span(5, 1) + ".", " " + self.span(4, 1) + ".", ". " + self.rng.choice(self.sentences).capitalize() + "."])
            sentence = Sentence(sentence.text[:-1] + tail, sentence.value_start, sentence.value_end)
        return self.typed(sentence)

    def question(self, key):
        """A question in the corpus's wording, or other words around the key."""
        if key.topic == "quotation":
            return self.typed(self.led(self._quoted_question(key)))
        sentence = self.phrases.question(key)
        if key.relation < 0 and self.rng.random() < 0.3:
            text = join(self.span(6), self.phrases.name(key), self.span(4) if self.rng.random() < 0.3 else "")
            sentence = Sentence(text[0].upper() + text[1:] + self.rng.choice(QUESTION_ENDS))
        if self.rng.random() < 0.08:
            sentence = Sentence(self._without_stop_words(sentence.text, 0.6) or sentence.text)
        sentence = self.led(sentence)
        if self.rng.random() < 0.12:
            sentence = Sentence(sentence.text + " " + self.rng.choice(self.sentences).capitalize() + ".")
        return self.typed(sentence)

    def _link(self):
        return join(self.rng.choice(ADVERBS) if self.rng.random() < 0.15 else "", self.rng.choice(LINKS), self.rng.choice(ADVERBS) if self.rng.random() < 0.15 else "")

    def _quoted_statement(self, key, value, correct):
        front = join(self.rng.choice(["now", "no,", "correction:", "actually", "I mean"]) if correct else "", key.owner, key.attribute)
        if self.rng.random() < 0.3:
            front = join(front, self._link())
        if self.rng.random() < 0.15 and not correct:
            return self.led(_with_value("", value, " " + join(self.rng.choice(["is what", "is where", "is who", "-", "was when", ":"]), key.owner, key.attribute) + "."))
        return self.led(_with_value(front + " ", value, self.rng.choice([".", ".", "", "!", f" {self.span(4)}."])))

    def _quoted_question(self, key):
        """Two or more telling words of the quotation, in order, most of the small ones left out at times."""
        words = key.attribute.split()
        keep = [w for w in words if self.rng.random() < (0.6 if w.lower() in STOP_WORDS else 0.85)]
        return Sentence(self.rng.choice(QUOTING).format(join(key.owner, " ".join(keep if len(keep) >= 2 else words))))

    def _without_stop_words(self, text, share):
        return " ".join(w for w in text.split() if w.lower().strip("?.,!") not in STOP_WORDS or self.rng.random() > share)

    def led(self, sentence):
        if self.rng.random() < 0.3:
            lead_in = self.lead_in()
            keeps_capital = lead_in.endswith((". ", "! ", "? ")) or sentence.value_start == 0 < sentence.value_end
            text = sentence.text if keeps_capital else sentence.text[0].lower() + sentence.text[1:]
            return Sentence(lead_in + text, sentence.value_start + len(lead_in), sentence.value_end + len(lead_in))
        return sentence

    def typed(self, sentence):
        """Now and then as people type: without the last mark, with a small first letter, or with two letters swapped."""
        if self.rng.random() < 0.05:
            self._swap_letters(sentence)
        if self.rng.random() < 0.1 and len(sentence.text) > 2 and sentence.text[-1] in ".?":
            sentence.text = sentence.text[:-1]
        if self.rng.random() < 0.1 and not sentence.value_start == 0 < sentence.value_end:
            sentence.text = sentence.text[0].lower() + sentence.text[1:]
        return sentence

    def _swap_letters(self, sentence):
        places = [m.start() for m in LETTER_PAIR.finditer(sentence.text) if m.end() <= sentence.value_start or m.start() >= sentence.value_end]
        if places:
            at, text = self.rng.choice(places), sentence.text
            sentence.text = text[:at] + text[at + 1] + text[at] + text[at + 2:]

    def value(self, text):
        """The value of a fact: as drawn, altered, several words, or any pieces between marks."""
        draw = self.rng.random()
        if draw < 0.06:
            return " ".join(self._other_word(self.rng.choice(["word", "word", "Name"])) for _ in range(self.rng.randint(2, 5)))
        if draw < 0.12:
            return self._marked()
        return self.altered(text)

    def _marked(self):
        """Two to four pieces with marks between them: words, letters and digits, as in codes, paths and versions."""
        mark, text = self.rng.choice(MARKS), self.rng.choice(["", "", "", "", "#", "v", "No. "])
        for i in range(self.rng.randint(2, 4)):
            if i:
                text += mark if self.rng.random() < 0.7 else self.rng.choice(MARKS)
            draw = self.rng.random()
            if draw < 0.45:
                text += "".join(self.rng.choice("0123456789") for _ in range(self.rng.choice([1, 2, 2, 2, 3, 4])))
            elif draw < 0.6:
                text += "".join(self.rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(self.rng.choice([1, 2, 2, 3])))
            else:
                word = self._other_word("word")
                text += word.capitalize() if self.rng.random() < 0.2 else word
        return text

    def similar(self, name):
        """A name that is easily taken for the given one: its last word begins in the same way."""
        head, _, word = name.rpartition(" ")
        keep = self.rng.randint(1, max(len(word) - 2, 1))
        return join(head, word[:keep] + self.rng.choice(self.lexicon)[-self.rng.randint(1, 4):])

    def altered(self, text):
        """The text with some of its words altered, so that no list of words can be learned by heart."""
        if self.rng.random() < 0.5:
            return text
        return WORD.sub(lambda m: self._other_word(m.group()) if self.rng.random() < 0.6 else m.group(), text)

    def altered_owner(self, text):
        """The same for an owner, whose small words ("my", "the", "project") stay."""
        return " ".join(w if w in ("my", "the", "project") else self.altered(w) for w in text.split(" "))

    def _other_word(self, word):
        """The word with another's tail, another word, one made of syllables, or one made of any letters' pieces."""
        draw = self.rng.random()
        if draw < 0.35:
            head = self.rng.randint(2, len(word) - 1)
            other = word[:head] + self.rng.choice(self.lexicon)[-self.rng.randint(2, 4):]
        elif draw < 0.6:
            other = self.rng.choice(self.lexicon)
        elif draw < 0.75:
            other = "".join(self.rng.choice(ONSETS) + self.rng.choice(VOWELS) + self.rng.choice(CODAS) for _ in range(self.rng.randint(1, 3)))
        else:
            other = "".join(self._piece() for _ in range(self.rng.randint(1, 4)))
        if self.rng.random() < 0.06:
            other = "".join(c.translate(ACCENTED) if self.rng.random() < 0.4 else c for c in other)
        return other.capitalize() if word[0].isupper() else other.lower()

    def _piece(self):
        word = self.rng.choice(self.lexicon)
        start = self.rng.randrange(len(word) - 2)
        return word[start:start + self.rng.randint(2, 5)]


def join(*parts):
    return " ".join(part for part in parts if part).replace(" :", ":")


def _with_value(front, value, end):
    """A sentence whose value stands between two texts; only a first word before the value gets a capital."""
    front = front[:1].upper() + front[1:]
    return Sentence(front + value + end, len(front), len(front) + len(value))
