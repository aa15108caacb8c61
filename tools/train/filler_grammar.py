"""Filler written by small grammars: text that looks like tool output and notes, but states no fact.

Every grammar is a function of a random generator and of a word list and yields lines. A folder of the corpus takes
some grammars only, so that held-out filler has forms that no training sample had.
"""

import json

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _clock(rng):
    return f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}"


def server_log(rng, words):
    verbs = ["started", "stopped", "accepted", "rejected", "finished", "retried", "opened", "closed", "flushed", "skipped"]
    levels = ["INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"]
    while True:
        yield (f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d} {_clock(rng)} {rng.choice(levels)} "
               f"{rng.choice(words)}-{rng.randrange(64)}: {rng.choice(verbs)} {rng.choice(words)} "
               f"after {rng.randrange(2000)} ms, {rng.randrange(100)} left")


def json_records(rng, words):
    while True:
        yield json.dumps({"id": rng.randrange(10**6), "type": rng.choice(words), "status": rng.choice(["ok", "failed", "pending"]),
                          "tags": [rng.choice(words) for _ in range(rng.randrange(4))], "size": rng.randrange(10**5)})


def file_listing(rng, words):
    endings = ["txt", "md", "py", "cc", "h", "json", "log", "csv"]
    while True:
        yield (f"-rw-r--r-- 1 {rng.choice(words)} staff {rng.randrange(10**6):7d} {rng.choice(MONTHS)} "
               f"{rng.randrange(1, 29):2d} {rng.randrange(24):02d}:{rng.randrange(60):02d} "
               f"{rng.choice(words)}/{rng.choice(words)}.{rng.choice(endings)}")


def meeting_notes(rng, words):
    subjects = ["We", "They", "The team", "Someone", "Two of us", "The others", "Most people", "Nobody"]
    verbs = ["talked about", "looked at", "agreed on", "postponed", "tested", "ordered", "cleaned", "forgot", "described", "praised"]
    places = ["in the morning", "after lunch", "on the phone", "in the hall", "last week", "for an hour", "once more", "without a result"]
    while True:
        yield " ".join(f"{rng.choice(subjects)} {rng.choice(verbs)} the {rng.choice(words)} {rng.choice(places)}."
                       for _ in range(rng.randrange(2, 6)))


def inventory(rng, words):
    while True:
        yield f"{rng.choice(words)} {rng.choice(words)}: {rng.randrange(500)} pieces, shelf {rng.randrange(40)}, row {rng.randrange(9)}"


def commit_log(rng, words):
    verbs = ["Fix", "Add", "Remove", "Rename", "Move", "Speed up", "Document", "Test"]
    while True:
        yield f"{rng.getrandbits(28):07x} {rng.choice(verbs)} {rng.choice(words)} in {rng.choice(words)} (#{rng.randrange(9000)})"


def test_report(rng, words):
    while True:
        state = rng.choice(["PASSED", "PASSED", "PASSED", "FAILED", "SKIPPED"])
        yield f"tests/test_{rng.choice(words)}.py::test_{rng.choice(words)}_{rng.choice(words)} {state} [{rng.randrange(100):2d}%] {rng.random():.3f}s"


def weather_report(rng, words):
    skies = ["cloudy", "clear", "rain later", "fog early", "snow above the valley", "thunder in the evening"]
    while True:
        yield (f"Station {rng.choice(words)}: {rng.choice(skies)}, {rng.randrange(-10, 35)} degrees, wind {rng.randrange(60)} km/h, "
               f"humidity {rng.randrange(20, 100)} percent.")


def key_value_file(rng, words):
    while True:
        yield f"{rng.choice(words)}.{rng.choice(words)}={rng.choice([rng.choice(words), str(rng.randrange(10**4)), 'true', 'false'])}"


TRAINING = [server_log, json_records, file_listing, meeting_notes, inventory]
HELD_OUT = [commit_log, test_report, weather_report, key_value_file]


def lines(grammar, rng, words, characters):
    """Lines of one grammar until they hold `characters` characters."""
    written = 0
    for line in grammar(rng, words):
        yield line
        written += len(line) + 1
        if written >= characters:
            return
