"""Makes tests/golden/tokenizer: a small tokenizer in the Qwen3.5 form and what the `tokenizers`
library says about 21,000 lines.

    pip install tokenizers==0.23.3
    python3 tools/golden/tokenizer.py
"""

import json
import pathlib
import struct

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

import corpus

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer"
REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
         r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# In the order of the Qwen3.5 family's own files; the last group is not special there either.
SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|>
    <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|>
    <|vision_pad|> <|image_pad|> <|video_pad|>""".split()
NOT_SPECIAL = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|>
    <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>""".split()


def train():
    tokenizer = Tokenizer(models.BPE(unk_token=None, continuing_subword_prefix="",
                                     end_of_word_suffix="", fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=4096, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus.lines(seed=1, count=30000), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in NOT_SPECIAL])
    # Two that the family does not have: one begins like another and is longer, one is looked for
    # after NFC.
    tokenizer.add_tokens([AddedToken("<|file_sep|>2", special=False, normalized=False),
                          AddedToken("<|caf\u00e9|>", special=False, normalized=True)])
    return tokenizer


def write(name, tokenizer, lines):
    """line := u16 bytes, UTF-8 text, u16 count, count u16 ids; all little-endian."""
    with open(OUT / name, "wb") as file:
        for line in lines:
            text = line.encode()
            ids = tokenizer.encode(line, add_special_tokens=False).ids
            file.write(struct.pack("<H", len(text)) + text)
            file.write(struct.pack(f"<H{len(ids)}H", len(ids), *ids))


def write_every_code_point(name, tokenizer):
    """One u64 for each 256 code points: FNV-1a over the ids, as four bytes each, of a text that
    puts every one of them between letters, before and after a mark, and on its own."""
    with open(OUT / name, "wb") as file:
        for first in range(0, 0x110000, 256):
            points = (c for c in range(first, first + 256) if not 0xD800 <= c < 0xE000)
            text = "".join(f"a{chr(c)}\u0301b \u0323{chr(c)}{chr(c)}7\n" for c in points)
            value = 0xCBF29CE484222325
            for number in tokenizer.encode(text, add_special_tokens=False).ids:
                for byte in number.to_bytes(4, "little"):
                    value = (value ^ byte) * 0x100000001B3 % 2**64
            file.write(struct.pack("<Q", value))


def with_added(lines):
    """Lines in which added tokens stand in every position."""
    import random
    rng = random.Random(3)
    added = SPECIAL[:3] + NOT_SPECIAL + ["<|file_sep|>2", "<|file_sep|>", "<|caf\u00e9|>",
                                         "<|cafe\u0301|>", "<|im_end", "<think", "think>"]
    for line in lines:
        parts = [line[i:i + 4] for i in range(0, len(line), 4)][:6]
        for _ in range(rng.randint(1, 3)):
            parts.insert(rng.randint(0, len(parts)), rng.choice(added))
        yield "".join(parts)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    whole = json.loads(tokenizer.to_str())
    (OUT / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False,
                                                   separators=(",", ":")) + "\n", encoding="utf-8")
    # As text: the same tokenizer without its added tokens.
    plain = Tokenizer.from_str(json.dumps({**whole, "added_tokens": []}))
    write("as_text.bin", plain, corpus.lines(seed=2, count=21000))
    write("recognised.bin", tokenizer, with_added(corpus.lines(seed=4, count=1000)))
    write_every_code_point("every_code_point.bin", plain)
    print("tokenizers", tokenizers.__version__, {f.name: f.stat().st_size for f in OUT.iterdir()})


if __name__ == "__main__":
    main()
