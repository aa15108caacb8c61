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


def csv_table(rng, words):
    yield ",".join(rng.choice(words) for _ in range(5))
    while True:
        yield f"{rng.randrange(10**4)},{rng.choice(words)},{rng.choice(words)},{rng.random() * 100:.2f},{rng.choice(['yes', 'no', ''])}"


def chat_log(rng, words):
    says = ["did anybody see the {}?", "the {} is fine", "can we talk about the {} tomorrow", "lol, the {} again", "no idea what the {} does", "the {} and the {} look alike",
            "I will bring the {}", "who moved the {}?", "ok", "thanks", "+1", "the {} broke", "we need {} more {}"]
    nicks = ["ann", "bob", "kit", "max", "zoe", "tim", "eva", "sam"]
    while True:
        yield f"[{_clock(rng)}] <{rng.choice(nicks)}> " + rng.choice(says).format(rng.choice(words), rng.choice(words))


def stack_trace(rng, words):
    while True:
        yield f"  File \"{rng.choice(words)}/{rng.choice(words)}.py\", line {rng.randrange(2000)}, in {rng.choice(words)}_{rng.choice(words)}"
        if rng.random() < 0.2:
            yield f"{rng.choice(['ValueError', 'KeyError', 'TimeoutError', 'OSError'])}: {rng.choice(words)} is not a {rng.choice(words)}"


def nested_settings(rng, words):
    while True:
        yield f"{rng.choice(words)}:"
        for _ in range(rng.randrange(1, 5)):
            yield f"  {rng.choice(words)}_{rng.choice(words)}: {rng.choice([rng.choice(words), str(rng.randrange(10**4)), 'true', 'null', '[]'])}"


def letters(rng, words):
    openings = ["Dear all,", "Hello everyone,", "Dear friends,", "Good evening,"]
    bodies = ["thank you for the {} you sent last week.", "we had to cancel the {} because of the {}.", "the {} arrived in one piece, the {} did not.", "please find the {} enclosed.",
              "nobody has asked about the {} so far.", "I wonder whether the {} could be painted before the {} comes.", "our {} has been very quiet this year."]
    while True:
        yield rng.choice(openings)
        for _ in range(rng.randrange(2, 6)):
            text = rng.choice(bodies).format(rng.choice(words), rng.choice(words))
            yield text[0].upper() + text[1:]
        yield rng.choice(["Best wishes,", "Yours,", "Kind regards,", "See you soon,"])


def shell_session(rng, words):
    while True:
        yield f"$ {rng.choice(['ls', 'cat', 'grep', 'mv', 'rm', 'make', 'git add', 'tar xf', 'head'])} {rng.choice(words)}{rng.choice(['', '.txt', '/', '.tar', '.log'])} {rng.choice(words)}"
        for _ in range(rng.randrange(3)):
            yield f"{rng.choice(words)}: {rng.choice(['no such file', 'done', 'permission denied', 'ok', str(rng.randrange(10**5))])}"


def measured_facts(rng, words):
    """Sentences that look like facts somebody might tell."""
    while True:
        yield rng.choice([f"The {rng.choice(words)} of the {rng.choice(words)} is {rng.randrange(10**rng.randrange(1, 6))}.",
                          f"The {rng.choice(words)} {rng.choice(words)} was set to {rng.choice(words)}.",
                          f"Its {rng.choice(words)} is called {rng.choice(words).capitalize()} and weighs {rng.randrange(2, 500)} grams.",
                          f"The {rng.choice(words)} of every {rng.choice(words)} has a {rng.choice(words)}.",
                          f"In {rng.randrange(1700, 2020)} the {rng.choice(words)} moved from the {rng.choice(words)} to the {rng.choice(words)}."])


MORE_TRAINING = [csv_table, chat_log, stack_trace, nested_settings, letters, shell_session, measured_facts]
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
