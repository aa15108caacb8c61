"""Makes a tiny random MHLA language model in its authors' layout, and what the formulas give for it.

    python3 tools/golden/make_mhla.py tests/golden/models/mhla_lm      (needs numpy and safetensors)

mhla_reference.py computes in float64, token by token. The prompt is longer than the 32 blocks that
the mixing matrix knows, and the matrices hold numbers outside their range and above the diagonal,
which must not count. tests/golden/models/README.md gives the exact formats.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

from mhla_reference import BLOCK, Model

TOKENS = 34 * BLOCK + 21
GREEDY = 64
MARGIN = 1e-3  # between the best two logits of a greedy choice
CONFIG = {
    "model_type": "gla", "attn_mode": "chunk", "attn_extends": "mhla", "hidden_size": 32,
    "num_hidden_layers": 2, "num_heads": 2, "num_kv_heads": None, "expand_k": 0.5, "expand_v": 1,
    "feature_map": "relu", "hidden_act": "swish", "hidden_ratio": 4, "intermediate_size": 40,
    "norm_eps": 1e-6, "vocab_size": 96, "tie_word_embeddings": True, "bos_token_id": 1,
    "eos_token_id": 2, "max_position_embeddings": 2048, "use_short_conv": False,
    "use_output_gate": True, "clamp_min": None, "fuse_norm": True, "use_gk": True, "use_gv": False,
}
MATRIX = 32


def make_weights(rng):
    D, V, H, I = (CONFIG[name] for name in
                  ("hidden_size", "vocab_size", "num_heads", "intermediate_size"))
    keys, values = int(D * CONFIG["expand_k"]), int(D * CONFIG["expand_v"])

    def normal(shape, std, mean=0.0):
        return (rng.standard_normal(shape) * std + mean).astype(np.float32)

    weights = {"model.embeddings.weight": normal((V, D), 0.3), "model.norm.weight": normal(D, 0.1, 1)}
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        mixing = rng.uniform(-0.2, 1.2, (MATRIX, MATRIX)).astype(np.float32)
        weights |= {
            at + "attn_norm.weight": normal(D, 0.1, 1),
            at + "mlp_norm.weight": normal(D, 0.1, 1),
            at + "attn.q_proj.weight": normal((keys, D), 1 / D ** 0.5),
            at + "attn.k_proj.weight": normal((keys, D), 1 / D ** 0.5),
            at + "attn.v_proj.weight": normal((values, D), 1 / D ** 0.5),
            at + "attn.g_proj.weight": normal((values, D), 1.5 / D ** 0.5),
            at + "attn.o_proj.weight": normal((D, values), 1 / values ** 0.5),
            at + "attn.g_norm_swish_gate.weight": normal(values // H, 0.1, 1),
            at + "attn.mixing_matrix": mixing.reshape(MATRIX, MATRIX, 1, 1, 1, 1),
            at + "mlp.gate_proj.weight": normal((I, D), 0.8 / D ** 0.5),
            at + "mlp.up_proj.weight": normal((I, D), 0.8 / D ** 0.5),
            at + "mlp.down_proj.weight": normal((D, I), 0.8 / I ** 0.5),
        }
    return weights


def positions_of():
    """Around every fourth border, around the end of the matrix, here and there, and the last 40."""
    borders = set(range(BLOCK, TOKENS, 4 * BLOCK)) | set(range(30 * BLOCK, TOKENS, BLOCK))
    near = {border + d for border in borders for d in (-1, 0, 1)}
    return sorted(near | set(range(0, TOKENS, 101)) | set(range(TOKENS - 40, TOKENS)))


def run(weights, ids):
    """Logits at the positions; then the greedy ids, and the least distance of their best two."""
    model = Model(weights, CONFIG)
    past, rows, wanted = model.empty(), [], set(positions_of())
    for position, token in enumerate(ids):
        logits = model.step(past, token)
        if position in wanted:
            rows.append(logits)
    greedy, margin = [], np.inf
    while len(greedy) < GREEDY:
        best = np.sort(logits)[-2:]
        margin = min(margin, best[1] - best[0])
        greedy.append(int(np.argmax(logits)))
        logits = model.step(past, greedy[-1])
    return np.stack(rows), greedy, margin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    for seed in range(1, 100):
        rng = np.random.default_rng(seed)
        weights = make_weights(rng)
        ids = rng.integers(3, CONFIG["vocab_size"], TOKENS).astype(np.int32)
        logits, greedy, margin = run(weights, ids)
        if margin >= MARGIN and CONFIG["eos_token_id"] not in greedy and len(set(greedy)) > 4:
            break
    else:
        raise SystemExit("no seed holds the margin")

    other = np.concatenate([rng.integers(3, CONFIG["vocab_size"], 4 * BLOCK), ids[4 * BLOCK:]])
    effect = np.abs(run(weights, other)[0][-1] - logits[-1]).max()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1, sort_keys=True) + "\n")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    golden = {"prompt_ids": ids, "logit_positions": np.array(positions_of(), np.int32),
              "logits": logits.astype(np.float32), "greedy_ids": np.array(greedy, np.int32)}
    facts = {"seed": seed, "greedy_margin": float(margin), "history_effect": float(effect)}
    save_file(golden, folder / "golden.safetensors", {name: repr(v) for name, v in facts.items()})
    for file in folder.iterdir():
        file.chmod(0o644)
    print(facts, f"logits +-{np.abs(logits).max():.1f}", f"{len(set(greedy))} different greedy ids",
          sum(file.stat().st_size for file in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
