"""Draws recall as SVG from what the evaluation measured. Needs nothing but Python.

    python3 tools/train/plot_recall.py --measured docs/recall/measured.jsonl --out docs/recall

Each line of the input is what `mneme eval retrieval --json` or `mneme eval needles --json` printed; lines of other weights than the shipped ones have their name as "weights". Three files come out:

    length.svg    recall against length, by reader, for both halves of the corpus (dashed: the half the model was trained on)
    needles.svg   recall by depth and length, a map for every reader and half
    gates.svg     gates open per token and key head, by layer, while a history is read and while answers are written
"""

import argparse
import json
import math
from pathlib import Path

HALVES = {"held_out": "held out", "in_distribution": "as trained"}
INK, PALE, PAPER = "#24292f", "#d0d7de", "#ffffff"
READER_COLOURS = {"HLA": "#0969da", "MHLA": "#8250df", "native": "#cf222e", "native control": "#bc4c00", "gates closed": "#6e7781"}
LAYER_COLOURS = ["#0969da", "#1a7f37", "#bc4c00", "#8250df", "#cf222e", "#6e7781"]
# Longer lists of facts are a test of their own and stand in the tables.
FACTS_MAX = 40


class Drawing:
    def __init__(self, width, height):
        self.width, self.height = width, height
        self.parts = [f'<rect width="{width}" height="{height}" fill="{PAPER}"/>']

    def text(self, x, y, words, anchor="start", colour=INK, size=12, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} fill="{colour}" font-size="{size}"{weight}>{words}</text>')

    def line(self, points, colour, width=1.0, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def curve(self, places, colour, half):
        """A line through places with a dot at each; dashed and hollow where it is not the half that counts."""
        counts = half == "held_out"
        self.line(places, colour, 2, "" if counts else "5 4")
        dot = f'r="3.5" stroke="{colour}" stroke-width="1.5" fill="{colour if counts else PAPER}"'
        self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" {dot}/>' for x, y in places]

    def box(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" stroke="{PAPER}"/>')

    def write(self, path):
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
        path.write_text("\n".join([head, *self.parts, "</svg>"]) + "\n")


class Axes:
    """A plot with lengths, by powers of two, along the bottom, and `low` to `high` upwards, by powers of ten where `logarithmic`."""

    def __init__(self, drawing, left, width, lengths, low, high, logarithmic=False):
        self.drawing, self.left, self.width = drawing, left, width
        self.top, self.height = 50, 270
        self.first, self.last = math.log2(min(lengths)) - 0.2, math.log2(max(lengths)) + 0.2
        self.scale = math.log10 if logarithmic else float
        self.low, self.high = self.scale(low), self.scale(high)
        bottom = self.top + self.height
        for tokens in sorted(set(lengths)):
            drawing.text(self.x(tokens), bottom + 16, short(tokens), "middle", size=11)
        drawing.text(left + width / 2, bottom + 34, "tokens of history", "middle")
        drawing.line([(left, self.top), (left, bottom), (left + width, bottom)], INK)

    def ticks(self, values, words):
        for value in values:
            self.drawing.line([(self.left, self.y(value)), (self.left + self.width, self.y(value))], PALE, 0.7)
            self.drawing.text(self.left - 6, self.y(value) + 4, words(value), "end", size=11)

    def x(self, tokens):
        return self.left + self.width * (math.log2(tokens) - self.first) / (self.last - self.first)

    def y(self, value):
        part = (self.scale(value) - self.low) / (self.high - self.low) if value > 0 else 0
        return self.top + self.height * (1 - min(max(part, 0), 1))

    def curve(self, points, colour, half):
        self.drawing.curve([(self.x(tokens), self.y(value)) for tokens, value in sorted(points)], colour, half)


def legend(drawing, x, y, colour, half, name):
    drawing.curve([(x + 4, y), (x + 28, y)], colour, half)
    drawing.text(x + 38, y + 4, f"{name}, {HALVES[half]}")


def short(tokens):
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens:,}"


def reader_of(row):
    if "weights" in row:
        return row["weights"]
    if row["gates_closed"]:
        return "gates closed"
    return row["reader"].upper() if row["reader"] in ("hla", "mhla") else row["reader"]


def is_needles(row):
    return isinstance(row["held_out"], list)


def share(count):
    return count["right"] / count["asked"]


def recall_by_length(rows):
    """{(reader, half): {tokens: count}}; of several measurements at one length, the one with the most questions."""
    curves = {}
    for row in rows:
        if is_needles(row) or row["facts"] > FACTS_MAX:
            continue
        for half in HALVES:
            curve = curves.setdefault((reader_of(row), half), {})
            known = curve.get(row["tokens"])
            if known is None or row[half]["asked"] > known["asked"]:
                curve[row["tokens"]] = row[half]
    return curves


def draw_length(rows, path):
    curves = recall_by_length(rows)
    drawing = Drawing(810, 370)
    axes = Axes(drawing, 60, 520, [tokens for curve in curves.values() for tokens in curve], 0, 1)
    axes.ticks([0, 0.25, 0.5, 0.75, 1], lambda value: f"{100 * value:.0f} %")
    drawing.text(60, 28, "Questions answered to the letter", size=14, bold=True)
    for place, ((reader, half), curve) in enumerate(curves.items()):
        colour = READER_COLOURS[reader]
        axes.curve([(tokens, share(count)) for tokens, count in curve.items()], colour, half)
        legend(drawing, 600, 60 + 22 * place, colour, half, reader)
    drawing.write(path)


def needle_maps(rows):
    """{reader: {half: {tokens: counts by depth}}}; of several measurements at one length, the last."""
    maps = {}
    for row in rows:
        for half in HALVES if is_needles(row) else []:
            lines = maps.setdefault(reader_of(row), {}).setdefault(half, {})
            lines.update({line["tokens"]: line["depths"] for line in row[half]})
    return maps


def shade(value):
    """Red for 0, yellow for half, green for all."""
    red, yellow, green = (207, 34, 46), (240, 200, 80), (26, 127, 55)
    low, high, part = (red, yellow, 2 * value) if value < 0.5 else (yellow, green, 2 * value - 1)
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(low, high))


CELL_WIDTH, CELL_HEIGHT = 34, 24


def draw_map(drawing, left, top, title, lines):
    """One needle map; answers where it ends."""
    drawing.text(left, top + 16, title, size=13, bold=True)
    depths = max(len(counts) for counts in lines.values())
    y = top + 28
    for tokens, counts in sorted(lines.items()):
        drawing.text(left - 8, y + 16, short(tokens), "end", size=11)
        for depth, count in enumerate(counts):
            x = left + depth * CELL_WIDTH
            asked = count["asked"] > 0
            drawing.box(x, y, CELL_WIDTH, CELL_HEIGHT, shade(share(count)) if asked else PALE)
            colour = PAPER if asked and abs(share(count) - 0.5) > 0.3 else INK
            drawing.text(x + CELL_WIDTH / 2, y + 16, f"{100 * share(count):.0f}" if asked else "-", "middle", colour, 10)
        y += CELL_HEIGHT
    for depth in range(depths + 1):
        drawing.text(left + depth * CELL_WIDTH, y + 14, f"{depth / depths:.1f}", "middle", size=10)
    return y + 30


def draw_needles(rows, path):
    maps = needle_maps(rows)
    drawing = Drawing(900, 0)
    top = 10
    for reader, halves in maps.items():
        ends = []
        for column, (half, lines) in enumerate(halves.items()):
            ends.append(draw_map(drawing, 70 + 430 * column, top, f"{reader}, {HALVES[half]}: % right", lines))
        top = max(ends)
    drawing.text(450, top + 8, "down: tokens of history; across: where the fact was told, as a share of the history", "middle")
    drawing.height = top + 24
    drawing.parts[0] = f'<rect width="{drawing.width}" height="{drawing.height}" fill="{PAPER}"/>'
    drawing.write(path)


def gates_by_layer(rows):
    """{(layer, half): {tokens: gates}} of the HLA reader; of several measurements at one length, the last."""
    layers = {}
    for row in rows:
        if is_needles(row) or reader_of(row) != "HLA":
            continue
        for half in HALVES:
            for gates in row[half].get("gates", []):
                layers.setdefault((gates["layer"], half), {})[row["tokens"]] = gates
    return layers


def draw_gates(rows, path):
    layers = gates_by_layer(rows)
    lengths = [tokens for points in layers.values() for tokens in points]
    drawing = Drawing(940, 370)
    read = Axes(drawing, 60, 310, lengths, 1e-5, 1, logarithmic=True)
    read.ticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1], lambda value: f"{value:g}")
    written = Axes(drawing, 440, 310, lengths, 0, 2)
    written.ticks([0, 0.5, 1, 1.5, 2], lambda value: f"{value:g}")
    colours = dict(zip(sorted({layer for layer, _ in layers}), LAYER_COLOURS))
    for axes, phase, words in [(read, "history", "while a history is read"), (written, "answers", "while an answer is written")]:
        drawing.text(axes.left, 28, f"Gates open {words}", size=14, bold=True)
        for (layer, half), points in layers.items():
            axes.curve([(tokens, gates[phase]) for tokens, gates in points.items()], colours[layer], half)
    for place, (layer, half) in enumerate(sorted(layers)):
        legend(drawing, 770, 60 + 22 * place, colours[layer], half, f"layer {layer}")
    drawing.write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="one JSON object a line")
    parser.add_argument("--out", type=Path, required=True, help="folder for the drawings")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.measured.read_text().splitlines() if line.strip()]
    options.out.mkdir(parents=True, exist_ok=True)
    draw_length(rows, options.out / "length.svg")
    draw_needles(rows, options.out / "needles.svg")
    draw_gates(rows, options.out / "gates.svg")


if __name__ == "__main__":
    main()
