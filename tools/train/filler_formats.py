"""Filler in forms made up on the spot: every pasted text gets a random line format of its own.

A few grammars are soon known by heart, and a reader then takes any line it has not seen for a fact. So a share of the
pasted texts in training has lines of random fields, marks and order, or prose with its words exchanged.
"""

SEPARATORS = [" ", " ", ", ", ": ", " | ", "=", " - ", "; ", "/", "::", ",", " -> ", "  ", ".", "_", " & ", "\t", " + "]
OPENINGS = ["", "", "", "", "- ", "* ", "> ", "# ", "[", "(", "<", "1. ", "// ", "+ ", "@", "$ ", "| ", "\"", "## ", "! "]
CLOSINGS = ["", "", "", "", ".", ";", "]", ")", ">", ",", " |", "\"", "!", ":", " ..."]


def fields(rng, words, sentences, names):
    """Makers of one field each."""
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    fixed = [rng.choice(words) for _ in range(rng.randint(2, 8))]

    def number():
        return str(rng.randrange(10 ** rng.randint(1, 6)))

    def phrase():
        found = rng.choice(sentences).split()
        start = rng.randrange(len(found))
        return " ".join(found[start:start + rng.randint(1, 6)])

    return [
        lambda: rng.choice(words), lambda: rng.choice(words), lambda: rng.choice(fixed), lambda: rng.choice(fixed).upper(), lambda: rng.choice(words).capitalize(),
        number, number, lambda: f"{rng.random() * 10 ** rng.randint(0, 3):.{rng.randint(1, 3)}f}", lambda: f"{rng.getrandbits(24):06x}",
        lambda: f"{rng.randrange(24):02d}:{rng.randrange(60):02d}", lambda: f"{rng.randrange(1, 29)} {rng.choice(months)} {rng.randrange(1900, 2030)}",
        lambda: f"20{rng.randrange(30):02d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}", lambda: rng.choice(names), phrase, phrase,
        lambda: f"{rng.choice(words)}_{rng.choice(words)}", lambda: f"{rng.choice(words)}.{rng.choice(fixed)}", lambda: f"{rng.randrange(101)}%",
        lambda: rng.choice(["yes", "no", "true", "false", "ok", "none", "OK", "FAIL", "done", "n/a"]), lambda: f"({rng.choice(words)})", lambda: f"\"{rng.choice(words)}\"",
    ]


def random_lines(rng, words, sentences, names):
    """Endless lines: one to three random formats, taken in turns."""
    formats = []
    makers = fields(rng, words, sentences, names)
    for _ in range(rng.choice([1, 1, 2, 3])):
        chosen = [rng.choice(makers) for _ in range(rng.randint(1, 7))]
        one = rng.choice(SEPARATORS)
        separators = [one if rng.random() < 0.6 else rng.choice(SEPARATORS) for _ in chosen]
        formats.append((rng.choice(OPENINGS), chosen, separators, rng.choice(CLOSINGS)))
    while True:
        opening, chosen, separators, closing = rng.choice(formats)
        text = opening + "".join(x for maker, separator in zip(chosen, separators) for x in (maker(), separator))
        yield text[:len(text) - len(separators[-1])].rstrip() + closing


def exchanged_prose(rng, words, sentences, names):
    """Endless sentences some of whose words are others, or names."""
    share = rng.choice([0.0, 0.1, 0.3])
    while True:
        line = []
        for _ in range(rng.randint(1, 4)):
            found = rng.choice(sentences).split()
            line.append(" ".join(rng.choice(names) if rng.random() < 0.02 else rng.choice(words) if len(w) > 3 and rng.random() < share else w for w in found))
        yield ". ".join(s[:1].upper() + s[1:] for s in line) + "."
