"""Trains the byte-level BPE vocabulary of the demo model and writes tokenizer.json.

The file has the form of Qwen3.5's (NFC, the same pre-tokenizer, byte-level pieces, added tokens by content), but the
merges are chosen so that a word is the same pieces wherever it stands: merges join letters to letters or marks to
marks only, and a leading blank stays a piece of its own, except before the most frequent small words and before
frequent words that begin no name or value. A value told after a blank and answered at the start of a line is then one
and the same token sequence, but for the few that begin like a small word.

    python3 tools/train/train_tokenizer.py --out checkpoints/demo
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

from corpus import Corpus

PRE_TOKENIZER = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NOT_SPECIAL = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
VOCABULARY = 4096
SPACED_WORDS_MAX = 500
SMALL_WORDS = 80  # the most frequent words, joined to their blank whatever begins with them
PIECE_BYTES_MAX = 8
RUN = re.compile(r"[A-Za-z]+|[^\sA-Za-z0-9]+")


def byte_symbols():
    """The printable character that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {b: chr(b) for b in printable}
    for shifted, b in enumerate(b for b in range(256) if b not in symbols):
        symbols[b] = chr(256 + shifted)
    return symbols


def count_runs(texts):
    """Counts of letter runs and mark runs over the texts."""
    counts = Counter()
    for text in texts:
        counts.update(RUN.findall(text))
    return counts


def learn_merges(counts, merges_max):
    """Greedy pair merges inside the runs; returns [(left, right)] in order of rank."""
    words = [list(word) for word in counts]
    weights = list(counts.values())
    pairs, where = Counter(), defaultdict(set)
    for index, pieces in enumerate(words):
        for pair in zip(pieces, pieces[1:]):
            pairs[pair] += weights[index]
            where[pair].add(index)
    merges = []
    while len(merges) < merges_max:
        pair = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(pair)
        for index in list(where[pair]):
            for old in zip(words[index], words[index][1:]):
                pairs[old] -= weights[index]
            words[index] = merge_pair(words[index], pair)
            for fresh in zip(words[index], words[index][1:]):
                if len(fresh[0] + fresh[1]) <= PIECE_BYTES_MAX:
                    pairs[fresh] += weights[index]
                    where[fresh].add(index)
        del pairs[pair], where[pair]
    return merges


def merge_pair(pieces, pair):
    merged, i = [], 0
    while i < len(pieces):
        if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == pair:
            merged.append(pieces[i] + pieces[i + 1])
            i += 2
        else:
            merged.append(pieces[i])
            i += 1
    return merged


def split(word, ranks):
    """Pieces of one run under the learned merges."""
    pieces = list(word)
    while len(pieces) > 1:
        best = min(zip(pieces, pieces[1:]), key=lambda p: ranks.get(p, len(ranks)))
        if best not in ranks:
            break
        pieces = merge_pair(pieces, best)
    return pieces


def spaced_words(texts, ranks, remembered):
    """Frequent lower-case words that are one piece: the small ones, and those that no name or value begins with."""
    beginnings = {split(run, ranks)[0] for run in remembered}
    counts = Counter()
    for text in texts:
        counts.update(re.findall(r" ([a-z]+|I)(?![A-Za-z])", text))
    frequent = [w for w, _ in counts.most_common() if len(split(w, ranks)) == 1]
    return (frequent[:SMALL_WORDS] + [w for w in frequent[SMALL_WORDS:] if w not in beginnings])[:SPACED_WORDS_MAX]


def tokenizer_file(merges):
    symbols = byte_symbols()
    pieces = [symbols[b] for b in range(256)] + [a + b for a, b in merges]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    added = [{"id": len(pieces) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": content in SPECIAL} for i, content in enumerate(SPECIAL + NOT_SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PRE_TOKENIZER}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary,
                  "merges": [[a, b] for a, b in merges]},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    corpus = Corpus.train()
    texts = corpus.texts()
    blank, newline = byte_symbols()[32], byte_symbols()[10]
    whitespace = [(blank, blank), (blank * 2, blank * 2), (newline, newline)]
    room = VOCABULARY - 256 - len(SPECIAL + NOT_SPECIAL) - SPACED_WORDS_MAX - len(whitespace)
    merges = learn_merges(count_runs(texts), room)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    remembered = {run for text in corpus.remembered_words() for run in RUN.findall(text)}
    spaced = spaced_words(texts, ranks, remembered)
    merges += whitespace + [(blank, word) for word in spaced]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "tokenizer.json").write_text(json.dumps(tokenizer_file(merges), ensure_ascii=False, indent=0) + "\n")
    print(f"{256 + len(merges)} pieces, {len(spaced)} of them with a leading blank: {' '.join(spaced[:40])} ...")


if __name__ == "__main__":
    main()
