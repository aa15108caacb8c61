"""Writes a safetensors file, tensor by tensor, and never leaves half of one under its name."""

import hashlib
import json
import os


def write(path, tensors, read, metadata):
    """`tensors` by name have dtype, shape and bytes; `read(name)` gives the bytes. Returns the
    file's SHA-256."""
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                        "data_offsets": [at, at + tensor.bytes]}
        at += tensor.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest, partial = hashlib.sha256(), path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            for part in (len(text).to_bytes(8, "little"), text):
                digest.update(part)
                file.write(part)
            for name in tensors:
                part = read(name)
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return digest.hexdigest()
