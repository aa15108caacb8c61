#!/usr/bin/env python3
"""Makes a folder that Mneme reads from a checkpoint as its authors published it. README.md beside
this file says how; nothing of the checkpoint is run."""

import argparse
import array
import hashlib
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import layouts  # noqa: E402
import safetensors_file  # noqa: E402
from torch_file import Refused, TorchFile  # noqa: E402

LAYOUTS = ("hla-1.3b", "gdn-1.3b", "hla", "mhla-340m", "mhla")
TOKENIZER_FILES = ("tokenizer.json", "generation_config.json")
# Bits of the exponent, all of which are set in a number that is not finite, and the number's size.
EXPONENT = {"F32": ("I", 0x7F800000, 4), "BF16": ("H", 0x7F80, 2), "F16": ("H", 0x7C00, 2)}


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            digest.update(part)
    return digest.hexdigest()


def check_finite(path, name, dtype, numbers):
    code, bits, size = EXPONENT[dtype]
    # Few numbers are so large that the top byte alone cannot clear them.
    mask = bits >> 8 * (size - 1)
    top = numbers[size - 1::size]
    if not any(byte & mask == mask and byte in top for byte in range(256)):
        return
    values = array.array(code)
    values.frombytes(numbers)
    if sys.byteorder == "big":
        values.byteswap()
    for index, value in enumerate(values):
        if value & bits == bits:
            raise Refused(f"{path}: {name}: expected finite numbers, found one that is not at "
                          f"{index}")


def read_config(path):
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise Refused(f"{path}: expected an object")
    return config


def plan(arguments, file):
    released = arguments.layout in ("hla-1.3b", "gdn-1.3b", "mhla-340m")
    if arguments.layout.startswith("mhla"):
        if arguments.config is None:
            raise Refused("--config: the sizes of an MHLA model are in its config.json; name it")
        if arguments.theta is not None:
            raise Refused("--theta: an MHLA model has no router")
        return layouts.mhla(file, released, read_config(arguments.config))
    router = {"hla-1.3b": True, "gdn-1.3b": False}.get(arguments.layout)
    return layouts.hla(file, released, router, arguments.theta)


def convert(arguments):
    out = arguments.folder
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refused(f"{out}: expected a new or an empty folder")
    if not arguments.checkpoint.is_file():
        raise Refused(f"{arguments.checkpoint}: no such file")
    if arguments.theta is not None and not 0 <= arguments.theta < 1:
        raise Refused(f"--theta: expected a number from 0 to below 1, found {arguments.theta}")
    if arguments.sha256 is not None:
        found = digest_of(arguments.checkpoint)
        if found != arguments.sha256.lower():
            raise Refused(f"{arguments.checkpoint}: expected SHA-256 {arguments.sha256.lower()}, "
                          f"found {found}: the file is another or was not copied whole")
    file = TorchFile(arguments.checkpoint)
    tensors, config = plan(arguments, file)
    copied = []
    if arguments.tokenizer is not None:
        copied = [arguments.tokenizer / name for name in TOKENIZER_FILES
                  if (arguments.tokenizer / name).is_file()]
        if not (arguments.tokenizer / "tokenizer.json").is_file():
            raise Refused(f"{arguments.tokenizer}: no tokenizer.json; a tokenizer.model alone must "
                          "be converted by its own library first")

    def read(name):
        numbers = file.read(name)
        check_finite(file.path, name, tensors[name].dtype, numbers)
        return numbers

    out.mkdir(parents=True, exist_ok=True)
    sums = {"model.safetensors": safetensors_file.write(
        out / "model.safetensors", tensors, read, {"format": "pt", "layout": arguments.layout})}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    for source in copied:
        shutil.copyfile(source, out / source.name)
    for name in ("config.json", *(source.name for source in copied)):
        sums[name] = digest_of(out / name)
    (out / "SHA256SUMS").write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    left = len(file.tensors) - len(tensors)
    print(f"{out}: {len(tensors)} tensors, {sum(t.bytes for t in tensors.values())} bytes; "
          f"{left} of the checkpoint's are not read and were left out")
    if not copied:
        print("no tokenizer: the model runs on ids alone")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layout", choices=LAYOUTS)
    parser.add_argument("checkpoint", type=pathlib.Path, help="the authors' file, as torch saved it")
    parser.add_argument("folder", type=pathlib.Path, help="where to write; new or empty")
    parser.add_argument("--config", type=pathlib.Path, help="config.json of an MHLA model")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="a folder with tokenizer.json")
    parser.add_argument("--sha256", help="what the checkpoint must be")
    parser.add_argument("--theta", type=float, help="gates below it are not read (HLA)")
    try:
        convert(parser.parse_args())
    except Refused as refused:
        sys.exit(f"convert: {refused}")


if __name__ == "__main__":
    main()
