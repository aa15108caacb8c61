"""Prints the tables of model/unicode_versions.cpp.

The `tokenizers` library sorts characters into classes by one version of Unicode and normalises by
another. This asks the library about every code point and prints what Debian 12's PCRE2 and
utf8proc would get wrong.

    python3.11 with unicodedata of Unicode 14, the version of PCRE2 10.42
    pip install tokenizers==0.23.3 unicodedata2==18.0.0
    python3 tools/golden/unicode_versions.py
"""

import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFC = normalizers.NFC().normalize_str


def ranges(points):
    found = []
    for point in sorted(points):
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return found


def members(letter):
    """Code points that are \\p{letter} to the library."""
    split = pre_tokenizers.Split(Regex(rf"\p{{{letter}}}+"), behavior="removed")
    text = "".join(map(chr, POINTS))
    rest = {ord(c) for part, _ in split.pre_tokenize_str(text) for c in part}
    return set(POINTS) - rest


def unknown_to_nfc():
    """Code points whose class or composition the library's NFC does not know."""
    points = set()
    for point in POINTS:
        text = chr(point)
        if unicodedata2.combining(text):
            # A mark it knows moves past one of a higher class (U+0345) or before U+0334 (class 1).
            for probe in ("\u0338" + text + "\u0334", "\u0345" + text + "\u0334"):
                if NFC(probe) != unicodedata2.normalize("NFC", probe):
                    points.add(point)
        parts = unicodedata2.normalize("NFD", text)
        if len(parts) > 1 and NFC(parts) != unicodedata2.normalize("NFC", parts):
            points |= {point, ord(parts[0])}
    return points


def main():
    assert unicodedata.unidata_version == "14.0.0"
    for letter in "LMN":
        later = {c for c in members(letter) if unicodedata.category(chr(c))[0] != letter}
        print(letter, " ".join(rf"\x{{{a:x}}}" + ("" if a == b else rf"-\x{{{b:x}}}")
                               for a, b in ranges(later)))
    print("NFC", ", ".join(f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(unknown_to_nfc())))


if __name__ == "__main__":
    main()
