"""The demo model as a checkpoint folder: Qwen3.5 tensor names, router.safetensors, and back."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from model import CHUNK, CONV, EPS, Model, ModelConfig
from routing import WINDOW

SHARD_BYTES_MAX = 15_000_000
THETA, PAGES_MAX = 0.1, 16
MIXING_BLOCKS_MAX = 128
PREFIX = "model.language_model."
LAYER_NAMES = {
    "input_norm": "input_layernorm.weight", "mlp_norm": "post_attention_layernorm.weight",
    "gate_proj.weight": "mlp.gate_proj.weight", "up_proj.weight": "mlp.up_proj.weight", "down_proj.weight": "mlp.down_proj.weight",
    "attention.conv": "linear_attn.conv1d.weight", "attention.norm": "linear_attn.norm.weight",
    "attention.A_log": "linear_attn.A_log", "attention.dt_bias": "linear_attn.dt_bias",
    **{f"attention.{p}.weight": f"linear_attn.{p}.weight" for p in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")},
}
FLOAT32 = ("A_log", "linear_attn.norm.weight")
ROUTER_NAMES = {"q": "q.weight", "pool_k": "pool_k.weight", "pool_v": "pool_v.weight", "pool_o": "pool_o.weight", "bias": "bias"}


def _tensor_names(config):
    """Model parameter -> (file stem, tensor name)."""
    names = {"embed": ("model", PREFIX + "embed_tokens.weight"), "norm": ("model", PREFIX + "norm.weight")}
    for layer in range(config.layers):
        for ours, theirs in LAYER_NAMES.items():
            names[f"layers.{layer}.{ours}"] = ("model", f"{PREFIX}layers.{layer}.{theirs}")
        if layer >= config.closed_layers:
            for ours, theirs in ROUTER_NAMES.items():
                names[f"layers.{layer}.attention.router.{ours}"] = ("router", f"layers.{layer}.route.{theirs}")
    return names


def config_json(config, end_of_text):
    text = {
        "model_type": "qwen3_5_text", "vocab_size": config.vocabulary, "hidden_size": config.width,
        "num_hidden_layers": config.layers, "layer_types": ["linear_attention"] * config.layers,
        "intermediate_size": config.mlp, "hidden_act": "silu", "rms_norm_eps": EPS, "tie_word_embeddings": True,
        "linear_num_key_heads": config.heads, "linear_num_value_heads": config.heads,
        "linear_key_head_dim": config.head_width, "linear_value_head_dim": config.head_width, "linear_conv_kernel_dim": CONV,
        "num_attention_heads": config.heads, "num_key_value_heads": config.heads, "head_dim": config.head_width,
        "attention_bias": False, "attn_output_gate": True, "max_position_embeddings": 4194304,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
        "mamba_ssm_dtype": "float32", "dtype": "bfloat16", "eos_token_id": end_of_text,
    }
    return {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": True,
            "dtype": "bfloat16", "mneme_thinking": False, "text_config": text}


def router_metadata(config):
    closed = config.closed_layers
    return {"reader": "hla", "chunk": str(CHUNK), "window": str(WINDOW), "theta": str(THETA), "pages_max": str(PAGES_MAX),
            "closed_layers": ",".join(str(i) for i in range(closed)),
            "recent_chunks": ",".join("1" if i < closed else "0" for i in range(config.layers))}


def save(model, folder):
    """Writes config.json, model*.safetensors and router.safetensors; tokenizer.json must be there already."""
    folder = Path(folder)
    parameters = dict(model.named_parameters())
    tensors, router = {}, {}
    for ours, (stem, theirs) in _tensor_names(model.config).items():
        value = parameters[ours].detach().cpu()
        if stem == "router":
            router[theirs] = value.float() if theirs.endswith("bias") else value.bfloat16()
            continue
        value = value.unsqueeze(1) if theirs.endswith("conv1d.weight") else value
        tensors[theirs] = value.float() if theirs.endswith(FLOAT32) else value.bfloat16()
    shards = [{}]
    for name, value in tensors.items():
        if sum(t.nbytes for t in shards[-1].values()) + value.nbytes > SHARD_BYTES_MAX:
            shards.append({})
        shards[-1][name] = value.contiguous()
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": {}}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, {"format": "pt"})
        index["weight_map"].update({name: file for name in shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    save_file({name: value.contiguous() for name, value in router.items()}, folder / "router.safetensors", router_metadata(model.config))
    end_of_text = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<|endoftext|>")
    (folder / "config.json").write_text(json.dumps(config_json(model.config, end_of_text), indent=1) + "\n")
    save_sums(folder)


def save_sums(folder):
    """Writes SHA256SUMS, as `sha256sum *.json *.safetensors` does in that folder: the server refuses files that are not these."""
    files = sorted(Path(folder).glob("*.json")) + sorted(Path(folder).glob("*.safetensors"))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (Path(folder) / "SHA256SUMS").write_text("".join(lines))


def save_mixing(weights, config, folder):
    """Writes mixing.safetensors: weights [routed layers, distances] as one lower triangular matrix a layer, the current chunk's gate 1."""
    blocks = min(weights.shape[1] + 1, MIXING_BLOCKS_MAX)
    distance = torch.arange(blocks)[:, None] - torch.arange(blocks)[None]
    metadata = router_metadata(config) | {"reader": "mhla"}
    matrices = {}
    for routed, row in enumerate(weights.detach().cpu().float()):
        gates = torch.cat([torch.ones(1), row])[distance.clamp(min=0)]
        matrices[f"layers.{config.closed_layers + routed}.mixing"] = torch.where(distance >= 0, gates, 0.0).contiguous()
    save_file(matrices, Path(folder) / "mixing.safetensors", metadata)
    save_sums(folder)


def tensors(folder):
    """All tensors of a checkpoint folder by name, in the types of the files."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        found.update(load_file(path))
    return found


def router_settings(folder):
    with safe_open(Path(folder) / "router.safetensors", "pt") as file:
        return file.metadata()


def text_config(folder):
    return json.loads((Path(folder) / "config.json").read_text())["text_config"]


def load(folder):
    """The model of a folder that `save` wrote, in float32."""
    text = text_config(folder)
    closed = len(router_settings(folder)["closed_layers"].split(","))
    model = Model(ModelConfig(vocabulary=text["vocab_size"], width=text["hidden_size"], layers=text["num_hidden_layers"], closed_layers=closed,
                              heads=text["linear_num_key_heads"], head_width=text["linear_key_head_dim"], mlp=text["intermediate_size"]))
    found = tensors(folder)
    with torch.no_grad():
        for ours, p in model.named_parameters():
            p.copy_(found[_tensor_names(model.config)[ours][1]].view(p.shape))
    return model
