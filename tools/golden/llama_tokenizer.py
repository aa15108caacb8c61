"""Makes tests/golden/llama_tokenizer: tokenizers in the Llama 2 form (BPE over characters, with
bytes for those that are not in the vocabulary) and what the `tokenizers` library says about them.

    pip install tokenizers==0.23.3
    python3 tools/golden/llama_tokenizer.py
"""

import json
import pathlib
import random
import struct

import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import corpus

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "llama_tokenizer"
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "\u2581"


def training_lines():
    """Seeded lines, and the prose of the training corpus for a vocabulary of ordinary size."""
    yield from corpus.lines(seed=1, count=30000)
    for file in sorted((ROOT / "eval" / "corpus" / "train" / "filler").iterdir()):
        yield from file.read_text(encoding="utf-8").splitlines()


def train(size, pattern):
    """Vocabulary and merges in Llama's order: special tokens, bytes, merged tokens, characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=700,
                                  initial_alphabet=[SPACE], special_tokens=SPECIAL + BYTES)
    lines = (SPACE + line.replace(" ", SPACE) for line in training_lines())
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    old = sorted(model["vocab"], key=model["vocab"].get)
    first = len(SPECIAL) + len(BYTES)
    merged = {"".join(pair if isinstance(pair, list) else pair.split(" "))
              for pair in model["merges"]}
    order = old[:first] + [t for t in old[first:] if t in merged] + \
        [t for t in old[first:] if t not in merged]
    model["vocab"] = {text: index for index, text in enumerate(order)}
    return model


def whole(model, normalizer, pre_tokenizer):
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, token in enumerate(SPECIAL)],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "TemplateProcessing", "single": [start, text],
            "pair": [start, text, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
        "model": model}


def write(name, pairs):
    """line := u16 bytes, UTF-8 text, u16 count, count u16 ids; all little-endian."""
    with open(OUT / name, "wb") as file:
        for text, ids in pairs:
            encoded = text.encode()
            file.write(struct.pack("<H", len(encoded)) + encoded)
            file.write(struct.pack(f"<H{len(ids)}H", len(ids), *ids))


def with_special(lines):
    rng = random.Random(3)
    for line in lines:
        parts = [line[i:i + 4] for i in range(0, len(line), 4)][:6]
        for _ in range(rng.randint(1, 3)):
            parts.insert(rng.randint(0, len(parts)), rng.choice(SPECIAL + ["<s", "/s>", " "]))
        yield "".join(parts)


def decodings(tokenizer, count):
    """Ids that no text need give, and their text, where their bytes form characters."""
    rng = random.Random(9)
    found = 0
    while found < count:
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randint(1, 6))]
        for character in rng.sample("é漢😀\n\u0301 a", rng.randint(0, 2)):
            at = rng.randint(0, len(ids))
            ids[at:at] = [len(SPECIAL) + byte for byte in character.encode()]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        if "\ufffd" in text:
            continue
        found += 1
        yield text, ids


def make(name, file):
    text = json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n"
    (OUT / f"{name}.json").write_text(text, encoding="utf-8")
    tokenizer = Tokenizer.from_str(text)
    ids = lambda t, line: t.encode(line, add_special_tokens=False).ids
    plain = Tokenizer.from_str(json.dumps({**file, "added_tokens": []}))
    lines = corpus.lines(seed=2, count=4000)
    lines += [" ", "  ", "   a", " a", "a ", "a  b   c", "\n", "\n\n a", "\t\ta", "\u2581a",
              " \u2581 a", "a\u2581b", "<0x41>", "<0x0A>\n", "</s>", "<s> a", "\0", "😀😀", "漢字かな"]
    write(f"{name}_as_text.bin", [(line, ids(plain, line)) for line in lines])
    special = list(with_special(corpus.lines(seed=4, count=1000)))
    write(f"{name}_recognised.bin", [(line, ids(tokenizer, line)) for line in special])
    write(f"{name}_decoded.bin", list(decodings(tokenizer, 1000)))
    print(name, tokenizer.get_vocab_size(), "entries,", len(file["model"]["merges"]), "merges")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    prepend = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]}
    # Spaces only begin a token, as in Llama's own vocabulary.
    make("llama2", whole(train(32000, f"{SPACE}*[^{SPACE}]+|{SPACE}+"), prepend, None))
    # The form that newer conversions have; here tokens run across spaces.
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first",
                 "split": False}
    make("metaspace", whole(train(1500, r"[\r\n]+|[^\r\n]+"), None, metaspace))
    print("tokenizers", tokenizers.__version__, {f.name: f.stat().st_size for f in OUT.iterdir()})


if __name__ == "__main__":
    main()
