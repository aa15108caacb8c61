"""The mean of checkpoints that were trained one from the other: their errors differ, their mean makes fewer.

    python3 tools/train/average.py --out checkpoints/demo runs/demo runs/again

Weights, router and, where each folder has one, the static mixing. Means of folders trained apart, each from nothing, are noise.
"""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import checkpoint


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    folders = arguments.folders
    if len({(folder / "tokenizer.json").read_bytes() for folder in folders}) > 1:
        raise SystemExit(f"{', '.join(map(str, folders))}: tokenizer.json differs, so their weights speak of different tokens")
    models = [checkpoint.load(folder) for folder in folders]
    with torch.no_grad():
        for values in zip(*(model.parameters() for model in models)):
            values[0].copy_(torch.stack(values).mean(0))
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.out.resolve() != folders[0].resolve():
        shutil.copy(folders[0] / "tokenizer.json", arguments.out / "tokenizer.json")
    mixing = [folder / "mixing.safetensors" for folder in folders]
    if all(file.exists() for file in mixing):
        gates = [load_file(file) for file in mixing]
        with safe_open(mixing[0], "pt") as file:
            save_file({name: torch.stack([one[name] for one in gates]).mean(0) for name in gates[0]}, arguments.out / "mixing.safetensors", file.metadata())
    checkpoint.save(models[0], arguments.out)


if __name__ == "__main__":
    main()
