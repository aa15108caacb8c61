"""Makes a tiny random all-linear model with a router and a mixing matrix, and what the formulas give.

    python3 tools/golden/make_hla.py tests/golden/models/routed       (needs numpy and safetensors)

hla_reference.py computes in float64, token by token. The prompt is built token by token too: a token
whose gates come near the threshold, or near each other at the cap, is replaced by another, so that a
rounding cannot change which chunks are read. Chunk 1 repeats the tokens of chunk 0: their scores in
layer 0 are equal, and the newer one must win where only one fits. tests/golden/models/README.md
gives the exact formats.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

from hla_reference import CHUNK, Model, sigmoid

TOKENS = 1100
MARGIN = 2e-3  # of gates from theta, and between the last read and the first not read
CONFIG = {
    "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 40,
    "num_hidden_layers": 3, "layer_types": ["linear_attention"] * 3, "vocab_size": 144,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "max_position_embeddings": 65536, "tie_word_embeddings": True,
    "attention_bias": False, "eos_token_id": 2,
}
SETTINGS = {"window": 16, "theta": 0.1, "pages_max": 2, "closed_layers": [1],
            "recent_chunks": [0, 1, 1]}
MIXING_BLOCKS = 4


def make_weights(rng):
    D, I, V = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    H, K = CONFIG["linear_num_value_heads"], CONFIG["linear_key_head_dim"]
    CW, VD = 2 * CONFIG["linear_num_key_heads"] * K + H * K, H * K

    def normal(shape, std, mean=0.0):
        return (rng.standard_normal(shape) * std + mean).astype(np.float32)

    w = {"model.embed_tokens.weight": normal((V, D), 0.15), "model.norm.weight": normal(D, 0.1)}
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        dt = np.exp(rng.uniform(np.log(1e-3), np.log(3e-2), H))
        w |= {
            at + "input_layernorm.weight": normal(D, 0.1),
            at + "post_attention_layernorm.weight": normal(D, 0.1),
            at + "mlp.gate_proj.weight": normal((I, D), 0.8 / D ** 0.5),
            at + "mlp.up_proj.weight": normal((I, D), 0.8 / D ** 0.5),
            at + "mlp.down_proj.weight": normal((D, I), 0.8 / I ** 0.5),
            at + "linear_attn.in_proj_qkv.weight": normal((CW, D), 0.8 / D ** 0.5),
            at + "linear_attn.in_proj_z.weight": normal((VD, D), 0.8 / D ** 0.5),
            at + "linear_attn.in_proj_b.weight": normal((H, D), 0.8 / D ** 0.5),
            at + "linear_attn.in_proj_a.weight": normal((H, D), 0.3 / D ** 0.5),
            at + "linear_attn.conv1d.weight": normal((CW, 1, 4), 0.5),
            at + "linear_attn.A_log": np.log(rng.uniform(0.02, 1, H)).astype(np.float32),
            at + "linear_attn.dt_bias": (dt + np.log(-np.expm1(-dt))).astype(np.float32),
            at + "linear_attn.norm.weight": normal(K, 0.1, 1.0),
            at + "linear_attn.out_proj.weight": normal((D, VD), 0.8 / VD ** 0.5),
        }
    return w


def make_router(rng):
    G, K = CONFIG["linear_num_key_heads"], CONFIG["linear_key_head_dim"]
    tensors = {}
    for layer in range(CONFIG["num_hidden_layers"]):
        if layer in SETTINGS["closed_layers"]:
            continue
        for part, std in (("q", 4.0), ("pool_k", 1.2), ("pool_v", 1.2), ("pool_o", 1.2)):
            tensors[f"layers.{layer}.route.{part}.weight"] = (
                rng.standard_normal((G, K, K)) * std / K ** 0.5).astype(np.float32)
        tensors[f"layers.{layer}.route.bias"] = np.array([-1.5, -0.5], np.float32)
    return tensors


def make_mixing(rng):
    tensors = {}
    for layer in range(CONFIG["num_hidden_layers"]):
        if layer in SETTINGS["closed_layers"]:
            continue
        m = np.tril(rng.uniform(0.05, 1, (MIXING_BLOCKS, MIXING_BLOCKS))).astype(np.float32)
        m[-1, 0] = 0  # so that chunks further back than the matrix knows may only be 0
        tensors[f"layers.{layer}.mixing"] = m
    return tensors


def smallest_margin(model, traces):
    """Of one token: how near a gate is to theta, or to the gate that it must be told apart from."""
    margin = np.inf
    for layer, (_, scores) in zip(model.layers, traces):
        if layer.closed:
            continue
        count = scores.shape[1] - min(layer.recent, scores.shape[1])
        room = SETTINGS["pages_max"] - min(layer.recent, scores.shape[1])
        for head in range(layer.G):
            w = sigmoid(scores[head, :count] + layer.route["bias"][head])
            if count:
                margin = min(margin, np.abs(w - SETTINGS["theta"]).min())
            opened = np.sort(w[w >= SETTINGS["theta"]])[::-1]
            if len(opened) > room > 0 and opened[room - 1] - opened[room] > 1e-11:
                margin = min(margin, opened[room - 1] - opened[room])
    return margin


def choose_prompt(model, rng):
    """The ids, or None where chunk 1, which repeats chunk 0, comes near the threshold."""
    ids, memory, margin = [], model.empty(), np.inf
    for position in range(TOKENS):
        for _ in range(64):
            token = int(rng.integers(CONFIG["vocab_size"]))
            if CHUNK <= position < 2 * CHUNK:
                token = ids[position - CHUNK]
            after, _, traces = model.step(memory, token, "hla")
            own = smallest_margin(model, traces)
            if own >= MARGIN:
                break
            if CHUNK <= position < 2 * CHUNK:
                return None, margin
        else:
            return None, margin
        ids.append(token)
        memory, margin = after, min(margin, own)
    return ids, margin


def positions_of():
    border = {b + d for b in range(CHUNK, TOKENS, CHUNK) for d in (-1, 0, 1)}
    return sorted(border | set(range(0, TOKENS, 37)) | set(range(TOKENS - 40, TOKENS)))


def run(model, ids, reader):
    positions, rows, memory = positions_of(), [], model.empty()
    G, M, L = CONFIG["linear_num_key_heads"], SETTINGS["pages_max"], len(model.layers)
    chunks = TOKENS // CHUNK
    gates = np.full((len(positions), L, G, chunks), -1, np.float32)
    scores = np.zeros_like(gates)
    selected = np.full((len(positions), L, G, M), -1, np.int32)
    for position, token in enumerate(ids):
        memory, logits, traces = model.step(memory, token, reader)
        if position not in positions:
            continue
        row = len(rows)
        rows.append(logits)
        for layer, (w, s) in enumerate(traces):
            gates[row, layer, :, :w.shape[1]] = w
            scores[row, layer, :, :w.shape[1]] = s
            for head in range(G):
                if reader == "hla":
                    read = [c for c in reversed(range(w.shape[1])) if w[head, c] > 0]
                    selected[row, layer, head, :len(read)] = read
    golden = {"prompt_ids": np.array(ids, np.int32), "gates": gates,
              "logit_positions": np.array(positions, np.int32),
              "logits": np.stack(rows).astype(np.float32)}
    if reader == "hla":
        golden |= {"scores": scores, "selected": selected}
    return golden


def text(value):
    return json.dumps(value) if isinstance(value, list) else str(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    for seed in range(5, 400):
        rng = np.random.default_rng(seed)
        weights, router, mixing = make_weights(rng), make_router(rng), make_mixing(rng)
        parts = {"tensors": router, "settings": SETTINGS, "round_representatives": True}
        model = Model(weights, CONFIG, parts, {"tensors": mixing})
        ids, margin = choose_prompt(model, rng)
        if not ids:
            continue
        hla, mhla = run(model, ids, "hla"), run(model, ids, "mhla")
        exact = Model(weights, CONFIG, parts | {"round_representatives": False})
        unrounded = run(exact, ids, "hla")
        if (unrounded["selected"] == hla["selected"]).all():
            break
    hla["logits_unrounded"] = unrounded["logits"]

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1, sort_keys=True) + "\n")
    save_file(weights, folder / "model.safetensors", {"format": "np"})
    settings = {"chunk": str(CHUNK)} | {key: text(value) for key, value in SETTINGS.items()}
    save_file(router, folder / "router.safetensors", {"reader": "hla"} | settings)
    lists = {key: settings[key] for key in ("chunk", "closed_layers", "recent_chunks")}
    save_file(mixing, folder / "mixing.safetensors", {"reader": "mhla"} | lists)
    closed = {"reader": "hla", "seed": str(seed), "gate_margin": repr(float(margin))}
    save_file(hla, folder / "golden_hla.safetensors", closed)
    save_file(mhla, folder / "golden_mhla.safetensors", {"reader": "mhla", "seed": str(seed)})

    for file in folder.iterdir():
        file.chmod(0o644)
    routed = hla["gates"][:, [0, 2]]
    late = hla["gates"][-1:]
    rounding = np.abs(hla["logits"] - unrounded["logits"]).max()
    apart = np.abs(hla["logits"] - mhla["logits"])[-40:].max()
    print(f"seed {seed}, margin {margin:.1e}, gates read {np.mean(routed[routed >= 0] > 0):.2f}, "
          f"of them below 0.9 {np.mean(routed[routed > 0] < 0.9):.2f}, "
          f"rounded representatives move logits by {rounding:.1e} of +-"
          f"{np.abs(hla['logits']).max():.1f}, mhla is {apart:.2f} away; last gates:\n{late}")
    print(sum(f.stat().st_size for f in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
