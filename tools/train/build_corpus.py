"""Builds the generated part of eval/corpus: names, words and filler. Run once; the results are in the repository.

The wording and attribute files are written by hand. Needs the unpacked Debian packages wamerican, scowl, miscfiles,
manpages, python3.11-doc and wordnet-base below one folder (each as x_NAME), and PyPI's wonderwords:

    python3 tools/train/build_corpus.py --packages DIR --wonderwords DIR
"""

import argparse
import gzip
import json
import random
import re
from pathlib import Path

import filler_grammar

CORPUS = Path(__file__).resolve().parents[2] / "eval" / "corpus"
CITIES = """Lisbon Porto Madrid Seville Paris Lyon Nantes Rome Milan Turin Naples Vienna Graz Berlin Hamburg Munich Dresden
Prague Brno Warsaw Krakow Gdansk Budapest Zagreb Athens Sofia Oslo Bergen Stockholm Malmo Helsinki Tampere Tallinn Riga
Vilnius Dublin Cork London Leeds Bristol Glasgow Cardiff Zurich Geneva Basel Brussels Ghent Utrecht Rotterdam Cairo Tunis
Lagos Accra Nairobi Dakar Tokyo Osaka Kyoto Seoul Busan Taipei Hanoi Manila Jakarta Bangkok Delhi Mumbai Lima Quito Bogota
Santiago Montevideo Toronto Ottawa Denver Boston Chicago Seattle Portland Dallas Austin Sydney Perth Auckland
Salzburg Bilbao Valencia Marseille Bordeaux Toulouse Bologna Verona Leipzig Cologne Nuremberg Ankara Izmir Tbilisi Yerevan
Almaty Karachi Lahore Dhaka Colombo Havana Kingston Caracas Rosario Cordoba Curitiba Recife Belgrade Skopje Tirana Sarajevo
Ljubljana Bratislava Kosice Poznan Lublin Odessa Minsk Turku Aarhus Odense Trondheim Uppsala Reykjavik Limerick Aberdeen
Dundee Swansea York Chester Durban Pretoria Lusaka Harare Kampala Kigali Rabat Tangier Algiers""".split()
COLORS = "red blue green yellow orange purple brown black white gray silver gold pink beige violet crimson teal maroon ivory navy".split()
HELD_OUT_COLORS = "scarlet turquoise olive lavender amber charcoal copper magenta".split()
FOODS = """pasta rice bread soup salad cheese pizza curry stew porridge noodles pancakes dumplings beans lentils potatoes apples
pears plums cherries grapes melon yogurt honey toast tea coffee cocoa lemonade pudding waffles""".split()
HELD_OUT_FOODS = "risotto goulash omelette muffins raisins figs apricots cider sherbet crackers".split()
JOBS = """baker tailor plumber nurse pilot painter farmer chemist lawyer dentist gardener teacher librarian carpenter welder
cook barber driver printer clerk surgeon builder sailor juggler translator editor optician courier""".split()
HELD_OUT_JOBS = "locksmith botanist florist auditor midwife glazier archivist blacksmith".split()
PETS = """Biscuit Pepper Luna Ziggy Mango Hazel Toffee Rufus Bella Oscar Milo Coco Waffle Tiger Shadow Daisy Ginger Simba
Nacho Pixel Sunny Rocky Willow Maple Olive Peanut Bandit Cookie Dusty Felix""".split()
HELD_OUT_PETS = "Pumpkin Scout Noodle Marble Gizmo Clover Sprout Tofu Banjo Juniper".split()
MONTHS = "January February March April May June July August September October November December".split()
SITES = "office lab warehouse station clinic library museum factory studio school hotel harbor".split()
HELD_OUT_SITES = "depot workshop bakery gallery hangar cottage".split()
KIN = "sister brother mother father uncle aunt son daughter wife husband grandmother colleague neighbor boss friend".split()
HELD_OUT_KIN = "cousin nephew niece grandfather flatmate".split()
ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w y z".split()
VOWELS = "a e i o u ai ea ia io oa ei".split()
CODAS = ["", "", "", "l", "n", "r", "s", "m", "nd", "x", "ck", "th", "rn"]


OBJECTS = """drawer shelf box basket lamp chair table bench carpet mat blanket pillow mirror clock vase kettle pan oven stove fridge
bucket ladder rope hammer saw wrench suitcase backpack umbrella coat scarf hat boot bicycle scooter cart boat tent cabinet desk printer monitor
keyboard cable battery camera radio guitar violin notebook folder envelope map statue fountain fence gate stairs porch garage cellar attic""".split()
ANIMALS = "dog cat horse goat sheep parrot tortoise hamster rabbit duck hen donkey ferret pony canary lizard goldfish owl pig cow".split()
PREPOSITIONS = ["under", "behind", "beside", "next to", "on top of", "inside", "above", "below", "in", "near", "across from", "in front of", "at", "on", "between the wall and"]
LANGUAGES = """English French German Spanish Italian Portuguese Dutch Danish Swedish Norwegian Finnish Polish Czech Hungarian Greek Turkish Arabic Hebrew
Persian Hindi Bengali Tamil Urdu Thai Vietnamese Korean Japanese Mandarin Swahili Zulu Basque Catalan Welsh Irish Latvian""".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
SMALL_NUMBERS = "two three four five six seven eight nine ten eleven twelve twenty thirty forty".split()
UNITS = "minutes hours days weeks months years seconds".split()
MUSIC = "cello violin viola piano flute oboe clarinet trumpet trombone harp guitar banjo drums accordion organ tuba saxophone lute".split()
MATERIALS = "oak pine maple steel iron copper brass bronze marble granite slate glass cotton wool linen silk leather rubber clay concrete bamboo wax".split()
ENDINGS = "csv txt json yaml md log pdf png py cpp sql zip tar toml".split()
DOMAINS = "org net local io lan com example internal".split()
ACTIVITIES = """chess rowing swimming climbing knitting fencing skating dancing sailing hiking archery yoga judo painting baking carving
drawing collecting repairing planting washing sorting polishing counting training""".split()
SUBJECTS = ["the road", "the bridge", "she", "he", "they", "the train", "the key", "the battery", "the engine", "nobody", "the weather", "the roof", "the water", "the teacher", "my phone"]
HAPPENED = ["was flooded", "was closed", "lost the keys", "broke down", "was late", "got sick", "ran out", "was too cold", "leaked", "fell asleep", "was stolen", "did not answer",
            "was full", "had to leave", "forgot the date", "was on fire", "missed the bus", "was being painted", "stopped working", "was too loud"]
FIRMS = ["Foods", "Motors", "Shipping", "Press", "Systems", "Brothers", "Optics", "Textiles", "Bakery", "Bank", "Insurance", "Labs", "Tools", "Energy", "Media"]
UNSUITED_WORDS = "lesbian homosexual bisexual negro gypsy slave slavery corpse murderer suicide terrorist terrorism nazi cancer stripper".split()


def made_up_name(rng):
    syllables = [rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.choice([2, 2, 3]))]
    return "".join(syllables).capitalize()


def proper_names(packages):
    names = set()
    for path in packages.glob("**/usr/share/dict/scowl/english-proper-names.[1-5]*"):
        names.update(path.read_text(encoding="latin-1").split())
    return sorted(n for n in names if re.fullmatch(r"[A-Z][a-z]{3,9}", n) and n not in CITIES)


def common_words(packages, wonderwords):
    """Lower-case English words, without those on wonderwords' list of profanities and a few more."""
    words = set((wonderwords / "nounlist.txt").read_text().split())
    words |= set((wonderwords / "adjectivelist.txt").read_text().split())
    profane = set((wonderwords / "profanitylist.txt").read_text().split())
    return sorted(w for w in words if re.fullmatch(r"[a-z]{4,9}", w) and w not in profane and w not in UNSUITED_WORDS)


def rude_words(wonderwords):
    return set((wonderwords / "profanitylist.txt").read_text().split()) | set(UNSUITED_WORDS)


def verbs(wonderwords):
    """[base, third person] of common verbs, without those that held-out relations use."""
    found = [v for v in (wonderwords / "verblist.txt").read_text().split() if re.fullmatch(r"[a-z]{3,8}", v)]
    profane = set((wonderwords / "profanitylist.txt").read_text().split())
    return [[v, third_person(v)] for v in sorted(set(found) - profane - {"open", "order", "come", "bear", "name"})]


def third_person(verb):
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(s|sh|ch|x|z|o)$", verb) else "s")


def tidy(text):
    """Lines without markup rulers, long tables, non-ASCII characters and runs of blanks."""
    for line in text.splitlines():
        line = re.sub(r"[ \t]{2,}", " ", line.strip())
        if len(line) >= 12 and line.isascii() and not re.fullmatch(r"[-=~^*+.:|# ]+", line):
            yield line


def python_manual(packages):
    sources = packages / "x_python3.11-doc/usr/share/doc/python3.11/html/_sources"
    for path in sorted((sources / "library").glob("*.rst.txt"), key=lambda p: p.name):
        yield from tidy(re.sub(r":[a-z:]+:`~?([^`]*)`", r"\1", path.read_text(encoding="utf-8")))


def manual_pages(packages):
    """Text of the pages under the Linux-man-pages-copyleft licence, without their formatting requests."""
    for path in sorted(packages.glob("x_manpages/usr/share/man/man*/*.gz")):
        if path.is_symlink():
            continue
        source = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        if "Linux-man-pages-copyleft" in source.split("\n.TH", 1)[0]:
            text = re.sub(r'^[.\'].*$', "", source, flags=re.M)
            yield from tidy(re.sub(r"\\f.|\\&|\\-", "", text))


def us_founding_texts(packages):
    for path in sorted(packages.glob("x_miscfiles/usr/share/state/*.gz")):
        yield from tidy(gzip.decompress(path.read_bytes()).decode("latin-1"))


def wordnet_glosses(packages):
    """(word, definition, example sentences) of every WordNet entry that is plain ASCII."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (packages / f"x_wordnet-base/usr/share/wordnet/data.{part}").read_text(encoding="latin-1").splitlines():
            if not line.startswith("  ") and line.isascii():
                entry, gloss = line.split(" | ", 1)
                yield entry.split()[4].split("(")[0].replace("_", " "), gloss.split(';')[0].strip(), re.findall(r'"([^"]+)"', gloss)


def wordnet_texts(packages, rng, rude, kept_back):
    """Example sentences of five to sixteen words, and "word: definition" lines; nothing that holds a word of `rude`, no definition of a word `kept_back`."""
    sentences, definitions = [], []
    for word, definition, examples in wordnet_glosses(packages):
        if word not in kept_back:
            definitions.append(f"{word}: {definition}")
        sentences += [e.strip() for e in examples if 5 <= len(e.split()) <= 16]
    polite = [[line for line in lines if not rude & set(re.findall("[a-z]+", line.lower())) and "\"" not in line] for lines in (sentences, definitions)]
    for lines in polite:
        rng.shuffle(lines)
    return {"example_sentences": polite[0], "definitions": polite[1]}


def clip(lines, characters):
    kept, written = [], 0
    for line in lines:
        if written >= characters:
            break
        kept.append(line)
        written += len(line) + 1
    return kept


def write_json(path, value):
    text = json.dumps(value, ensure_ascii=True, indent=1)
    text = re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda m: "[" + re.sub(r"\n\s+", " ", m.group(1)) + "]", text)
    path.write_text(text + "\n")


def more_value_kinds(lists):
    """Slots and kinds that only training has, for wording of wider reach."""
    choices = {"plural": [w + "s" for w in lists["words"][:400] if re.search(r"[^sxyhz]$", w)], "object": OBJECTS, "animal": ANIMALS, "preposition": PREPOSITIONS,
               "language": LANGUAGES, "weekday": WEEKDAYS, "small": SMALL_NUMBERS, "unit": UNITS, "music": MUSIC, "material": MATERIALS,
               "ending": ENDINGS, "verb": ACTIVITIES, "subject": SUBJECTS, "happened": HAPPENED, "firm": FIRMS, "domain": DOMAINS}
    slots = {name: {"choice": texts} for name, texts in choices.items()} | {"part": {"range": [0, 255]}, "minor": {"range": [0, 30]}, "some": {"range": [2, 90]}}
    kinds = {
        "place": ["{preposition} the {object}", "{preposition} the {color} {object}", "{preposition} the {word}", "{preposition} the {word} {object}"],
        "object": ["a {color} {object}", "the {word} {object}", "a {object}", "{small} {plural}", "a {word}", "two {plural}"],
        "language": ["{language}"], "weekday": ["{weekday}", "{weekday}", "{weekday} evening"], "duration": ["{small} {unit}", "{some} {unit}"], "count": ["{some}", "{small}"],
        "email": ["{word}@{word}.{domain}", "{word}.{word}@{word}.{domain}"], "path": ["/{word}/{word}.{ending}", "/{word}/{word}/{word}", "{word}.{ending}", "{word}_{word}.{ending}"],
        "version": ["{minor}.{minor}", "{minor}.{minor}.{minor}"], "host": ["{word}-{level}.{domain}", "{word}.{word}.{domain}", "{part}.{part}.{part}.{part}", "{word}-{word}"],
        "animal": ["a {animal}", "{animal}", "a {color} {animal}", "two {animal}s"], "music": ["{music}", "the {music}"], "material": ["{material}", "{word} {material}"],
        "activity": ["{verb}", "{verb} {plural}", "{verb} with {name}"], "reason": ["{subject} {happened}", "the {word} {happened}"],
        "company": ["{name} and Sons", "{name} {firm}", "{word} {firm}", "{name} and {name}"],
    }
    return slots, kinds


def value_kinds(lists):
    """Kinds of values: templates over slots; each slot is drawn afresh wherever its name stands."""
    return {
        "slots": {
            "digits": {"digits": [3, 7]}, "amount": {"digits": [2, 5]}, "level": {"range": [1, 9]}, "day": {"range": [1, 28]},
            "hour": {"range": [10, 23]}, "minute": {"range": [10, 59]}, "letters": {"letters": [2, 3]}, "number": {"digits": [3, 5]},
            "month": {"choice": MONTHS}, "word": {"choice": lists["words"]}, "name": {"choice": lists["names"]},
            "city": {"choice": lists["cities"]}, "color": {"choice": lists["colors"]}, "food": {"choice": lists["foods"]},
            "job": {"choice": lists["jobs"]}, "pet": {"choice": lists["pets"]},
        },
        "kinds": {
            "digits": ["{digits}"], "words": ["{word}", "{word} {word}", "{word} {word}"], "person": ["{name}", "{name} {name}"],
            "city": ["{city}", "{city}", "{name}"], "color": ["{color}", "dark {color}", "{word} {color}", "{color} and {color}"],
            "date": ["{month} {day}"], "time": ["{hour}:{minute}"], "amount": ["{amount} dollars", "{amount} euros"],
            "serial": ["{letters}-{number}", "{letters}{number}", "{number}-{letters}"],
            "food": ["{food}", "{food} with {food}", "{word} {food}"], "job": ["{job}", "{word} {job}"], "animal_name": ["{pet}", "{name}"], "place_digits": ["{level}"],
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--wonderwords", type=Path, required=True)
    arguments = parser.parse_args()
    rng = random.Random(20261129)
    names, words = proper_names(arguments.packages), common_words(arguments.packages, arguments.wonderwords)
    made_up = sorted({made_up_name(rng) for _ in range(3000)})
    for some in (names, words, made_up):
        rng.shuffle(some)
    cities = CITIES[:]
    rng.shuffle(cities)

    halves = {
        "train": {"names": names[:1500] + made_up[:2000], "words": words[:4000], "cities": cities[:110], "colors": COLORS,
                  "foods": FOODS, "jobs": JOBS, "pets": PETS, "sites": SITES, "kin": KIN, "verbs": verbs(arguments.wonderwords)},
        "held_out": {"names": names[1500:1800] + made_up[2000:2150], "words": words[4000:4800], "cities": cities[110:], "colors": HELD_OUT_COLORS,
                     "foods": HELD_OUT_FOODS, "jobs": HELD_OUT_JOBS, "pets": HELD_OUT_PETS, "sites": HELD_OUT_SITES, "kin": HELD_OUT_KIN, "verbs": []},
    }
    prose = {
        "train": {"python_manual": clip(python_manual(arguments.packages), 700_000),
                  **{name: clip(lines, 450_000) for name, lines in wordnet_texts(arguments.packages, random.Random(1), rude_words(arguments.wonderwords), set(words[4000:])).items()}},
        "held_out": {"us_founding_texts": clip(us_founding_texts(arguments.packages), 60_000),
                     "manual_pages": clip(manual_pages(arguments.packages), 160_000)},
    }
    grammars = {"train": (filler_grammar.TRAINING, 110_000), "held_out": (filler_grammar.HELD_OUT, 45_000)}
    for half, lists in halves.items():
        folder = CORPUS / half
        write_json(folder / "names.json", {
            "person": {"templates": ["{name}", "{name}", "{name}", "{name} {name}", "my {kin}"]},
            "thing": {"templates": ["the {word} project", "the {word} {site}", "project {name}", "the {name} {site}"]},
            "slots": {"name": {"choice": lists["names"]}, "word": {"choice": lists["words"]}, "site": {"choice": lists["sites"]},
                      "kin": {"choice": lists["kin"]}},
        })
        kinds = value_kinds(lists)
        if half == "train":
            slots, more = more_value_kinds(lists)
            kinds = {"slots": kinds["slots"] | slots, "kinds": kinds["kinds"] | more}
        write_json(folder / "values.json", kinds)
        write_json(folder / "verbs.json", lists["verbs"])
        texts = dict(prose[half])
        functions, characters = grammars[half]
        for grammar in functions:
            texts[grammar.__name__] = list(filler_grammar.lines(grammar, rng, lists["words"], characters))
        for grammar in filler_grammar.MORE_TRAINING if half == "train" else []:
            texts[grammar.__name__] = list(filler_grammar.lines(grammar, random.Random(grammar.__name__), lists["words"], 60_000))
        for name, text in texts.items():
            (folder / "filler" / f"{name}.txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
