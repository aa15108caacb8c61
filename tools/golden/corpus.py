"""Seeded lines of text for tokenizers to disagree about.

Every line comes from one of the makers below: plain text in many scripts, code, numbers, and
everything that normalisation, the pre-tokenizer's classes or UTF-8 make hard. All words were
written for this file; the rest is drawn from Unicode's blocks.
"""

import random

WORDS = {
    "english": """the a of and to in that it was for on with as he be at by had not but from which
        they his her she you or were this we when there can an your all one have so their what
        about up out if will would could should don't can't I'm we've you're they'll he'd it's
        memory session server chunk page river mountain yesterday tomorrow quietly remembers
        telephone station harbour bicycle kitchen library garden answer question number letter
        understanding international responsibility unbelievable electricity""",
    "german": """der die das und nicht über für mit größer Straße Äpfel Öl Übung schön heißt
        Geschwindigkeitsbegrenzung gestern morgen vielleicht Gedächtnis""",
    "french": """le la les des à où déjà été l'école aujourd'hui garçon cœur naïf Noël forêt
        mémoire s'il qu'elle""",
    "spanish": """el los niño mañana corazón ¿qué? ¡hola! también según memoria pingüino""",
    "vietnamese": """tiếng Việt không được người những một trong của ký ức nhớ Nguyễn""",
    "turkish": """İstanbul ışık çocuk güzel değil öğrenci şehir""",
    "polish": """zażółć gęślą jaźń pamięć źródło dziękuję łódź""",
    "russian": """память сервер и не что он она вчера завтра дорога объём ещё Москва""",
    "greek": """μνήμη και δεν είναι Ελλάδα θάλασσα ἀρχή ᾧ ΐ ὀδυσσεύς""",
    "hebrew": """זיכרון שלום את של לא מָחָר בְּרֵאשִׁית""",
    "arabic": """ذاكرة السلام عليكم في من على كتاب مُحَمَّد العَرَبِيَّة لا ﷺ ﻻ""",
    "hindi": """स्मृति नमस्ते है में और किताब क्षेत्र हिन्दी क़लम ज़रा""",
    "thai": """ความจำ สวัสดีครับ น้ำ ภาษาไทย กำลัง เมื่อวานนี้ ที่อยู่""",
    "tamil": """நினைவு வணக்கம் கொடு தமிழ்""",
    "chinese": """记忆 服务器 昨天 我们 不 的 是 在 了 漢字 臺灣 你好，世界。""",
    "japanese": """記憶 サーバー きのう がぎぐげご パピプペポ ﾊﾞﾋﾞ 東京へ行きました。 々 ー""",
    "korean": """기억 서버 어제 안녕하세요 한국어 값 읽다 뷁""",
    "georgian": """მეხსიერება საქართველო""",
    "ethiopic": """ትውስታ ሰላም""",
}
WORDS = {language: text.split() for language, text in WORDS.items()}

EMOJI = """😀 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☎︎ 1️⃣ 🧑🏿‍🚀 🐻‍❄️ ✋🏻 🤷‍♀️ ©️ ™""".split()
MARKS = [chr(c) for c in (*range(0x300, 0x370), *range(0x591, 0x5C8), *range(0x64B, 0x660),
                          *range(0x1DC0, 0x1E00), *range(0x20D0, 0x20F1), 0x3099, 0x309A)]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u00a0",
          "\u1680", "\u180e", "\u2003", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]
HIDDEN = ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u061c", "\u200e", "\u200f",
          "\u202a", "\u202e", "\u2066", "\u2069", "\u034f", "\ufe0e", "\ufe0f", "\U000e0061"]
ENDINGS = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'x",
           "'\u017f", "\u2019s", "''s", "'", "'lL"]
DIGITS = "0123456789٠١٢٣०१२๐๑๒〇一二ⅣⅫ½¾²³①②𝟘𝟙𝍠"
# Each composes, decomposes or changes under NFC, or looks as if it should and does not.
NORMAL = ["é", "e\u0301", "Å", "A\u030a", "\u212b", "ñ", "n\u0303", "\u0958", "\u0915\u093c",
          "\ufb01", "\u1e9b\u0323", "\u1100\u1161\u11a8", "\uac00\u11a8", "각", "\u0344", "\u0340",
          "\u2126", "\u212a", "\u037e", "\u0387", "\uf900", "\ufa0e", "\u3392", "\U0001d15e",
          "\U0002f800", "q\u0323\u0307", "q\u0307\u0323", "\u0cca", "\u0cc6\u0cc2\u0cd5",
          "a\u0315\u0300\u05ae\u0062", "\u09c7\u09be", "\u0b47\u0b3e", "\u1025\u102e", "\u2adc"]
CODE = ["def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
        "if err != nil {\n\t\treturn nil, err\n\t}", "SELECT * FROM t WHERE id='7';",
        "{\"key\": [1, 2.5e-3, null]}", "<div class=\"x\">&nbsp;</div>", "a->b::c<T>&&(d||!e)",
        "#include <vector>\r\n", "x_y_z = camelCase + PascalCase + SCREAMING_CASE",
        "https://example.org/a/b?c=d&e=%20#f", "C:\\Users\\x\\n.txt", "----------", "/* ... */",
        "=====>>>>", "$HOME/.bashrc && echo \"$?\"", "0x7fFF 1_000_000 3.14159 1e10"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
           "</tool_call>", "<|im_end", "im_end|>", "<|im_start|>system\n", "<tool_response>"]


def words(rng, language, count):
    return " ".join(rng.choice(WORDS[language]) for _ in range(count))


def sentence(rng):
    text = words(rng, "english", rng.randint(2, 7))
    return text[0].upper() + text[1:] + rng.choice([".", "!", "?", "...", ", ", "", ";", " —"])


def foreign(rng):
    return words(rng, rng.choice(list(WORDS)), rng.randint(1, 3)) + rng.choice(["", ".", "!", " "])


def mixed(rng):
    return "".join(words(rng, rng.choice(list(WORDS)), 1) + rng.choice(["", " ", "-", ","])
                   for _ in range(rng.randint(2, 3)))


def emoji(rng):
    return "".join(rng.choice([rng.choice(EMOJI), rng.choice(EMOJI), rng.choice(WORDS["english"]),
                               " ", rng.choice(HIDDEN)]) for _ in range(rng.randint(1, 4)))


def marks(rng):
    parts = []
    for _ in range(rng.randint(1, 2)):
        base = rng.choice(["", " ", "a", "o", "Z", "ا", "ש", "か", "1", "-", "\n", "가"])
        parts.append(base + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 4))))
    return "".join(parts)


def normal(rng):
    return rng.choice(["", " "]).join(rng.choice(NORMAL) for _ in range(rng.randint(1, 4)))


def digits(rng):
    text = "".join(rng.choice(DIGITS[:10]) for _ in range(rng.randint(1, 9)))
    odd = "".join(rng.choice(DIGITS) for _ in range(rng.randint(0, 3)))
    return rng.choice(["", " ", "v", "-", "$"]) + text + rng.choice(["", ".", ",", "%"]) + odd


def spaces(rng):
    parts = []
    for _ in range(rng.randint(1, 3)):
        parts.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))))
        parts.append(rng.choice(["", "a", "word", "7", "!", "é", "你", "\u0301"]))
    return "".join(parts)


def hidden(rng):
    control = chr(rng.choice([*range(0x00, 0x20), 0x7F, *range(0x80, 0xA0)]))
    return "".join(rng.choice([rng.choice(HIDDEN), control, rng.choice(WORDS["english"]),
                               rng.choice(WORDS["arabic"])]) for _ in range(rng.randint(1, 4)))


def endings(rng):
    return "".join(rng.choice(["it", "THEY", "é", "7", "", " "]) + rng.choice(ENDINGS)
                   for _ in range(rng.randint(1, 3)))


def code(rng):
    text = rng.choice(CODE)
    return "    " * rng.randint(0, 3) + text + rng.choice(["", "\n", "\n\n", "  \n", ";"])


def special(rng):
    return "".join(rng.choice([rng.choice(SPECIAL), words(rng, "english", 1), "\n", " "])
                   for _ in range(rng.randint(1, 4)))


def signs(rng):
    pool = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~…—–«»“”‘’¿¡€£¥°±×÷∑∫√≠≤≥→⇒∀∃∈░█♠♥♫✓"
    return "".join(rng.choice(pool) for _ in range(rng.randint(1, 7))) + rng.choice(
        ["", "\n", "\r\n\r\n", " ", "a"])


def anything(rng):
    """Any assigned or unassigned code point but surrogates, with friends."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        top = rng.choice([0x250, 0x3000, 0x10000, 0x20000, 0x110000])
        point = rng.randrange(top)
        parts.append("\ufffd" if 0xD800 <= point < 0xE000 else chr(point))
        parts.append(rng.choice(["", " ", "a", "\u0301"]))
    return "".join(parts)


def long_run(rng):
    unit = rng.choice(["a", " ", "ha", "=", "\n", "你", "\u0301", "ab ", "9", "\t", "👍", "-"])
    return unit * rng.randint(8, 60 // len(unit.encode()) + 8)


MAKERS = [(sentence, 18), (foreign, 22), (mixed, 10), (emoji, 8), (marks, 8), (normal, 6),
          (digits, 6), (spaces, 8), (hidden, 8), (endings, 4), (code, 6), (special, 4), (signs, 6),
          (anything, 6), (long_run, 2)]


def lines(seed, count):
    """`count` different lines."""
    rng = random.Random(seed)
    makers = [maker for maker, weight in MAKERS for _ in range(weight)]
    seen = {}
    while len(seen) < count:
        seen.setdefault(rng.choice(makers)(rng))
    return list(seen)
