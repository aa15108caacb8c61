"""The sizes of a dense Qwen3.5 model, read from config.json and checked."""

import json
from dataclasses import dataclass
from pathlib import Path

from model import CONV

LINEAR, ATTENTION = "linear_attention", "full_attention"


class FolderError(Exception):
    """A folder or file that cannot be used; the message names file, place, what was expected and what was found."""


@dataclass
class QwenConfig:
    width: int
    mlp: int
    vocabulary: int
    layers: list       # LINEAR or ATTENTION
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    query_heads: int   # of full-attention layers; 0 where there are none, like the next four
    kv_heads: int
    head_width: int
    rotary: int        # first dims of a head that turn with the position
    rope_theta: float
    eps: float
    tied: bool         # the head is the embedding; None: whether lm_head.weight is there decides

    @classmethod
    def read(cls, folder):
        return _ConfigFile(Path(folder) / "config.json").config()

    @property
    def linear_layers(self):
        return [i for i, kind in enumerate(self.layers) if kind == LINEAR]


class _ConfigFile:
    """Fields of config.json; those of text_config win."""

    def __init__(self, path):
        self.path = path
        try:
            self.top = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise FolderError(f"{path}: expected the configuration of a model, found {error}") from error
        self.text = self.top.get("text_config", {})

    def refuse(self, field, expected, found):
        raise FolderError(f"{self.path}: {field}: expected {expected}, found {json.dumps(found)}")

    def field(self, name, default=None):
        value = self.text.get(name)
        value = self.top.get(name) if value is None else value
        return default if value is None else value

    def size(self, name, default=None):
        value = self.field(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(name, "an integer from 1", value)
        return value

    def only(self, name, expected):
        if self.field(name, expected) != expected:
            self.refuse(name, json.dumps(expected), self.field(name))

    def divided(self, name, divisor):
        if self.size(name) % self.size(divisor) != 0:
            self.refuse(name, f"a multiple of {divisor} ({self.size(divisor)})", self.size(name))

    def config(self):
        for object in (self.top, self.text):
            if object.get("model_type", "qwen3_5") not in ("qwen3_5", "qwen3_5_text"):
                self.refuse("model_type", "qwen3_5 or qwen3_5_text", object["model_type"])
        for name in ("num_experts", "num_local_experts", "moe_intermediate_size", "quantization_config", "quantization"):
            if self.field(name) is not None:
                self.refuse(name, "no such field: mixtures of experts and quantised weights are not supported", self.field(name))
        for name, value in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False), ("attn_output_gate", True), ("linear_conv_kernel_dim", CONV)):
            self.only(name, value)
        layers = self.layers()
        self.divided("linear_num_value_heads", "linear_num_key_heads")
        ties = [t for t in (self.top.get("tie_word_embeddings"), self.text.get("tie_word_embeddings")) if t is not None]
        return QwenConfig(
            width=self.size("hidden_size"), mlp=self.size("intermediate_size"), vocabulary=self.size("vocab_size"), layers=layers,
            key_heads=self.size("linear_num_key_heads"), value_heads=self.size("linear_num_value_heads"),
            key_width=self.size("linear_key_head_dim"), value_width=self.size("linear_value_head_dim"),
            eps=float(self.field("rms_norm_eps", 1e-6)), tied=None if len(set(ties)) > 1 else bool(ties and ties[0]), **self.attention(layers))

    def layers(self):
        count = self.size("num_hidden_layers")
        interval = self.size("full_attention_interval", 4)
        layers = self.field("layer_types") or [ATTENTION if (i + 1) % interval == 0 else LINEAR for i in range(count)]
        if len(layers) != count or any(kind not in (LINEAR, ATTENTION) for kind in layers):
            self.refuse("layer_types", f"{count} of {LINEAR} and {ATTENTION}", layers)
        if LINEAR not in layers:
            self.refuse("layer_types", f"at least one {LINEAR}: a router belongs to such layers", layers)
        return layers

    def attention(self, layers):
        if ATTENTION not in layers:
            return dict(query_heads=0, kv_heads=0, head_width=0, rotary=0, rope_theta=0.0)
        self.divided("num_attention_heads", "num_key_value_heads")
        rope = self.field("rope_parameters") or self.field("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            self.refuse("rope_parameters.rope_type", '"default": rope scaling is not supported', kind)
        width = self.size("head_dim", 256)
        factor, theta = (rope.get(name, self.field(name, default)) for name, default in (("partial_rotary_factor", 0.25), ("rope_theta", None)))
        rotary = int(width * factor)
        if rotary < 2 or rotary % 2:
            self.refuse("partial_rotary_factor", f"an even number of at least 2 dims of head_dim {width}", rotary)
        if not isinstance(theta, (int, float)):
            self.refuse("rope_theta", "a number", theta)
        return dict(query_heads=self.size("num_attention_heads"), kv_heads=self.size("num_key_value_heads"), head_width=width, rotary=rotary, rope_theta=float(theta))
