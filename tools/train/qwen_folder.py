"""Folders of dense Qwen3.5 models: their weights, and router.safetensors beside them (model/router_weights.h)."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from checkpoint import PAGES_MAX, ROUTER_NAMES, THETA
from model import CHUNK
from qwen import Qwen
from qwen_config import FolderError, QwenConfig
from routing import WINDOW

PREFIXES = ("model.language_model.", "model.")
HEAD = "lm_head.weight"
SKIPPED = ("mtp.", "model.mtp.", "model.visual.", "visual.", HEAD)  # tensors that reading text does not need
PAGES_MAX_MAX = 256  # what the server takes


@dataclass
class History:
    """How layers keep history: the metadata of router.safetensors."""
    closed: list          # layers without a router
    recent: list          # of each layer: newest closed chunks that are always read
    theta: float = THETA
    pages_max: int = PAGES_MAX

    def checked(self, config, name):
        """Itself, where the layers of a model admit it; `name` is the file or option it comes from."""
        def refuse(field, expected, found):
            raise FolderError(f"{name}: {field}: expected {expected}, found {found}")

        linear, count = config.linear_layers, len(config.layers)
        if len(set(self.closed)) != len(self.closed) or not set(self.closed) <= set(linear):
            refuse("closed_layers", f"some of the linear layers {linear}, each once", self.closed)
        if set(self.closed) == set(linear):
            refuse("closed_layers", "at least one linear layer to be left out", self.closed)
        if len(self.recent) != count or any(not 0 <= n <= (self.pages_max if i in linear else 0) for i, n in enumerate(self.recent)):
            refuse("recent_chunks", f"one number for each of {count} layers, from 0 to pages_max ({self.pages_max}) in linear layers and 0 in others", self.recent)
        if not 0 <= self.theta < 1:
            refuse("theta", "a number from 0 to below 1", self.theta)
        if not 1 <= self.pages_max <= PAGES_MAX_MAX:
            refuse("pages_max", f"an integer from 1 to {PAGES_MAX_MAX}", self.pages_max)
        return self

    def metadata(self):
        return {"reader": "hla", "chunk": str(CHUNK), "window": str(WINDOW), "theta": str(self.theta), "pages_max": str(self.pages_max),
                "closed_layers": ",".join(map(str, self.closed)), "recent_chunks": ",".join(map(str, self.recent))}


class _Tensors:
    """The tensors of a folder by name, read one at a time."""

    def __init__(self, folder):
        self.folder, self.files = folder, {}
        for path in self._paths():
            opened = _opened(path)
            self.files.update({name: opened for name in opened[1].keys()})
        self.taken = set()

    def _paths(self):
        index = self.folder / "model.safetensors.index.json"
        if not index.exists():
            return [self.folder / "model.safetensors"]
        try:
            return [self.folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FolderError(f"{index}: expected a weight_map from tensors to files, found {error!r}") from error

    def take(self, name, shape):
        if name not in self.files:
            raise FolderError(f"{self.folder}: tensor {name}: expected it with shape {list(shape)}, found no such tensor")
        path, file = self.files[name]
        found = file.get_slice(name).get_shape()
        if list(found) != list(shape):
            raise FolderError(f"{path}: tensor {name}: expected shape {list(shape)}, found {list(found)}")
        value = file.get_tensor(name)
        if not value.is_floating_point():
            raise FolderError(f"{path}: tensor {name}: expected F32, BF16 or F16, found {value.dtype}")
        self.taken.add(name)
        return value

    def check_all_taken(self, layers):
        for name in sorted(set(self.files) - self.taken):
            if not name.startswith(SKIPPED) and not name.endswith(".rotary_emb.inv_freq"):
                raise FolderError(f"{self.files[name][0]}: tensor {name}: expected those of a dense Qwen3.5 model with {layers} layers, found this one")


def _opened(path):
    try:
        return path, safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        raise FolderError(f"{path}: expected a safetensors file, found {error}") from error


def load(folder, device="cpu", dtype=torch.float32):
    """The frozen model of a folder, without routers; matrices in `dtype`, all else in float32."""
    folder = Path(folder)
    config, tensors = QwenConfig.read(folder), _Tensors(folder)
    if config.tied is None:
        config.tied = HEAD not in tensors.files
    prefix = next((p for p in PREFIXES if f"{p}embed_tokens.weight" in tensors.files), None)
    if prefix is None:
        raise FolderError(f"{folder}: tensor {PREFIXES[0]}embed_tokens.weight: expected it or {PREFIXES[1]}embed_tokens.weight, found neither")
    with torch.device("meta"):
        model = Qwen(config)
    model.dtype = dtype
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{path}.{name}"
            value = tensors.take(full if full == HEAD else prefix + full, parameter.shape)
            value = value.to(device, dtype if value.dim() == 2 else torch.float32)
            setattr(module, name, nn.Parameter(value, requires_grad=False))
    tensors.check_all_taken(len(config.layers))
    return model


def read_router(path, config):
    """History and {"layer": state of its Router} of a router.safetensors."""
    path, file = _opened(Path(path))
    metadata = file.metadata() or {}

    def value(key, kind, default=None):
        try:
            return kind(metadata.get(key, default))
        except (TypeError, ValueError):
            raise FolderError(f"{path}: metadata {key}: expected a value as model/router_weights.h has it, found {metadata.get(key)}") from None

    def integers(text):
        return [int(x) for x in text.strip("[] ").split(",") if x.strip()]

    for key, expected in (("reader", "hla"), ("chunk", str(CHUNK)), ("window", str(WINDOW))):
        if metadata.get(key) != expected:
            raise FolderError(f"{path}: metadata {key}: expected {expected}, found {metadata.get(key)}")
    recent = value("recent_chunks", integers, "") or [0] * len(config.layers)
    history = History(value("closed_layers", integers, ""), recent, value("theta", float), value("pages_max", int)).checked(config, f"{path}: metadata")
    routers, found = {}, set(file.keys())
    G, K = config.key_heads, config.key_width
    for layer in config.linear_layers:
        if layer in history.closed:
            continue
        for ours, theirs in ROUTER_NAMES.items():
            name, shape = f"layers.{layer}.route.{theirs}", [G] if ours == "bias" else [G, K, K]
            shown = list(file.get_slice(name).get_shape()) if name in found else "no such tensor"
            if shown != shape:
                raise FolderError(f"{path}: tensor {name}: expected shape {shape}, found {shown}")
            routers.setdefault(str(layer), {})[ours] = file.get_tensor(name).float()
            found.discard(name)
    if found:
        raise FolderError(f"{path}: tensor {min(found)}: expected only those of linear layers that are not closed, found this one")
    return history, routers


def load_router(model, path):
    """Adds the routers of a router.safetensors, with its settings."""
    history, routers = read_router(path, model.config)
    model.add_routers(history, bias=0.0)
    for layer, state in routers.items():
        model.routers[layer].load_state_dict(state)


def save_router(model, path):
    """Writes router.safetensors as checkpoint.save does: matrices in bfloat16, biases in float32."""
    tensors = {}
    for layer, router in model.routers.items():
        for ours, theirs in ROUTER_NAMES.items():
            value = getattr(router, ours).detach().cpu()
            tensors[f"layers.{layer}.route.{theirs}"] = (value.float() if ours == "bias" else value.bfloat16()).contiguous()
    part = Path(path).with_suffix(".part")
    save_file(tensors, part, model.history.metadata())
    part.chmod(0o644)  # the library leaves it to its owner, and the server may be somebody else
    os.replace(part, path)
