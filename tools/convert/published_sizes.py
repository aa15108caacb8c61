#!/usr/bin/env python3
"""Folders of the published models' sizes with true headers and no numbers (holes in the file), for
`mneme model inspect`: what a model needs before it is downloaded. The table of docs/models.md.

    python3 tools/convert/published_sizes.py DIR
    for folder in DIR/*; do mneme model inspect $folder; done

Qwen3.5 folders come native, with a router (-hla) and with a mixing matrix (-mhla) in every linear
layer, in the types that tools/train writes. Sizes: Qwen3.5's model cards, layouts.py.
"""

import json
import math
import pathlib
import struct
import sys

from layouts import HLA_RELEASED, HLA_ROUTER, HLA_SWITCHES, MHLA_RELEASED

# hidden, layers, value heads (of 16 key heads), query heads, KV heads, MLP, tied
QWEN = {"0.8B": (1024, 24, 16, 8, 2, 3584, True), "2B": (2048, 24, 16, 8, 2, 6144, True),
        "4B": (2560, 32, 32, 16, 4, 9216, True), "9B": (4096, 32, 32, 16, 4, 12288, False)}
KEY_HEADS, HEAD, ATTENTION_HEAD, VOCAB = 16, 128, 256, 248320


def write_tensors(path, tensors, metadata=None):
    """tensors: name -> (type, *shape)."""
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, *shape) in tensors.items():
        size = math.prod(shape) * {"BF16": 2, "F32": 4}[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def write_model(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def qwen_tensors(hidden, layers, value_heads, query_heads, kv_heads, mlp, tied):
    key, value = KEY_HEADS * HEAD, value_heads * HEAD
    query, kv = query_heads * ATTENTION_HEAD, kv_heads * ATTENTION_HEAD
    tensors = {"embed_tokens.weight": ("BF16", VOCAB, hidden), "norm.weight": ("BF16", hidden)}
    for layer in range(layers):
        own = {"input_layernorm.weight": ("BF16", hidden),
               "post_attention_layernorm.weight": ("BF16", hidden),
               "mlp.gate_proj.weight": ("BF16", mlp, hidden),
               "mlp.up_proj.weight": ("BF16", mlp, hidden),
               "mlp.down_proj.weight": ("BF16", hidden, mlp)}
        if layer % 4 == 3:
            own |= {"self_attn.q_proj.weight": ("BF16", 2 * query, hidden),
                    "self_attn.k_proj.weight": ("BF16", kv, hidden),
                    "self_attn.v_proj.weight": ("BF16", kv, hidden),
                    "self_attn.o_proj.weight": ("BF16", hidden, query),
                    "self_attn.q_norm.weight": ("BF16", ATTENTION_HEAD),
                    "self_attn.k_norm.weight": ("BF16", ATTENTION_HEAD)}
        else:
            own |= {"linear_attn.in_proj_qkv.weight": ("BF16", 2 * key + value, hidden),
                    "linear_attn.in_proj_z.weight": ("BF16", value, hidden),
                    "linear_attn.in_proj_a.weight": ("BF16", value_heads, hidden),
                    "linear_attn.in_proj_b.weight": ("BF16", value_heads, hidden),
                    "linear_attn.conv1d.weight": ("BF16", 2 * key + value, 1, 4),
                    "linear_attn.dt_bias": ("BF16", value_heads),
                    "linear_attn.A_log": ("F32", value_heads),
                    "linear_attn.norm.weight": ("F32", HEAD),
                    "linear_attn.out_proj.weight": ("BF16", hidden, value)}
        tensors |= {f"layers.{layer}.{name}": each for name, each in own.items()}
    tensors = {"model.language_model." + name: each for name, each in tensors.items()}
    return tensors if tied else tensors | {"lm_head.weight": ("BF16", VOCAB, hidden)}


def qwen(folder, sizes):
    hidden, layers, value_heads, query_heads, kv_heads, mlp, tied = sizes
    text = {"model_type": "qwen3_5_text", "hidden_size": hidden, "intermediate_size": mlp,
            "vocab_size": VOCAB, "num_hidden_layers": layers, "linear_num_key_heads": KEY_HEADS,
            "linear_num_value_heads": value_heads, "linear_key_head_dim": HEAD,
            "linear_value_head_dim": HEAD, "linear_conv_kernel_dim": 4,
            "num_attention_heads": query_heads, "num_key_value_heads": kv_heads,
            "head_dim": ATTENTION_HEAD, "rms_norm_eps": 1e-6, "max_position_embeddings": 262144,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                                "partial_rotary_factor": 0.25},
            "full_attention_interval": 4, "eos_token_id": 248044, "tie_word_embeddings": tied}
    config = {"model_type": "qwen3_5", "tie_word_embeddings": tied, "text_config": text}
    linear = [layer for layer in range(layers) if layer % 4 != 3]
    router = {f"layers.{layer}.route.{part}.weight": ("BF16", KEY_HEADS, HEAD, HEAD)
              for layer in linear for part in ("q", "pool_k", "pool_v", "pool_o")}
    router |= {f"layers.{layer}.route.bias": ("F32", KEY_HEADS) for layer in linear}
    mixing = {f"layers.{layer}.mixing": ("F32", 128, 128) for layer in linear}
    for suffix in ("", "-hla", "-mhla"):
        write_model(pathlib.Path(f"{folder}{suffix}"), qwen_tensors(*sizes), config)
    write_tensors(pathlib.Path(f"{folder}-hla", "router.safetensors"), router,
                  {"reader": "hla", "chunk": "256", "window": "16", "theta": "0.1",
                   "pages_max": "16"})
    write_tensors(pathlib.Path(f"{folder}-mhla", "mixing.safetensors"), mixing,
                  {"reader": "mhla", "chunk": "256"})


def hla(folder, routed):
    sizes = HLA_RELEASED
    D, F, H = sizes["n_embd"], sizes["intermediate_size"], sizes["gated_delta_num_heads"]
    K = sizes["gated_delta_head_dim"]
    shapes = {"transformer.wte.weight": (sizes["padded_vocab_size"], D),
              "transformer.ln_f.weight": (D,)}
    for layer in range(sizes["n_layer"]):
        own = {"norm_1.weight": (D,), "norm_2.weight": (D,), "mlp.gate_proj.weight": (2 * F, D),
               "mlp.down_proj.weight": (D, F), "attn.o_proj.weight": (D, H * K),
               "attn.A_log": (H,), "attn.dt_bias": (H,), "attn.o_norm.weight": (K,)}
        own |= {f"attn.{part}_proj.weight": (H * K, D) for part in "qkvg"}
        own |= {f"attn.{part}_proj.weight": (H, D) for part in "ab"}
        if routed:
            own |= {f"attn.route_{part}_proj.weight": (H, K, K)
                    for part in ("q", "pool_attn_k", "pool_attn_v", "pool_attn_o")}
        shapes |= {f"transformer.h.{layer}.{name}": shape for name, shape in own.items()}
    config = {"model_type": "hla", "gated_delta_variant": "gla_gdn" if routed else "gdn"}
    config |= sizes | HLA_SWITCHES | (HLA_ROUTER if routed else {})
    write_model(folder, {name: ("BF16", *shape) for name, shape in shapes.items()}, config)


def mhla(folder):
    D, H, mlp = MHLA_RELEASED["hidden_size"], MHLA_RELEASED["num_heads"], 2816
    key, vocab = D // 2, MHLA_RELEASED["vocab_size"]
    shapes = {"model.embeddings.weight": (vocab, D), "model.norm.weight": (D,)}
    for layer in range(MHLA_RELEASED["num_hidden_layers"]):
        own = {"attn_norm.weight": (D,), "mlp_norm.weight": (D,), "attn.q_proj.weight": (key, D),
               "attn.k_proj.weight": (key, D), "attn.v_proj.weight": (D, D),
               "attn.g_proj.weight": (D, D), "attn.o_proj.weight": (D, D),
               "attn.g_norm_swish_gate.weight": (D // H,),
               "attn.mixing_matrix": (32, 32, 1, 1, 1, 1), "mlp.gate_proj.weight": (mlp, D),
               "mlp.up_proj.weight": (mlp, D), "mlp.down_proj.weight": (D, mlp)}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    config = {"model_type": "gla", "attn_extends": "mhla", "feature_map": "relu",
              "use_short_conv": False, "use_output_gate": True, "max_position_embeddings": 2048,
              "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True} | MHLA_RELEASED
    write_model(folder, {name: ("BF16", *shape) for name, shape in shapes.items()}, config)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    for name, sizes in QWEN.items():
        qwen(root / f"Qwen3.5-{name}", sizes)
    hla(root / "HLA-1.3B", routed=True)
    hla(root / "GDN-1.3B", routed=False)
    mhla(root / "MHLA-340M")


if __name__ == "__main__":
    main()
