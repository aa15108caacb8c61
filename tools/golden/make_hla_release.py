"""Makes a tiny random checkpoint in the layout of the released HLA-1.3B, and what its formulas give.

    python3 tools/golden/make_hla_release.py tests/golden/models/hla      (needs numpy, safetensors)

hla_release_reference.py computes in float64, token by token. Tokens whose gates come near the
threshold are replaced by others, so that a rounding cannot change which chunks are read.
tests/golden/models/README.md gives the exact formats.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

from hla_release_reference import CHUNK, Model

TOKENS = 1100
THETA = 0.1
MARGIN = 2e-3         # of gates from the threshold
GREEDY_MARGIN = 1e-3  # between the best two logits of the greedy continuation
CONFIG = {
    "model_type": "hla", "name": "GatedDeltaNet_GLA_GDN_Release_1.3B", "block_size": 4096,
    "n_embd": 32, "n_layer": 3, "n_head": 2, "intermediate_size": 44, "vocab_size": 90,
    "padded_vocab_size": 96, "norm_eps": 1e-6, "_norm_class": "SimpleRMSNorm",
    "_mlp_class": "LLaMAMLP", "mamba_init": True, "nope": True, "bias": False,
    "gated_delta_per_layer": 1, "gated_delta_variant": "gla_gdn", "gated_delta_num_heads": 2,
    "gated_delta_head_dim": 16, "gated_delta_expand_v": 1.5, "gated_delta_use_short_conv": False,
    "gated_delta_use_gate": True, "gated_delta_use_residual": False, "mix_chunk_size": CHUNK,
    "mix_pool_size": 16, "gla_router_sigmoid_bias": 2.2, "eos_token_id": 2,
}


def make_weights(rng):
    D, F, L = CONFIG["n_embd"], CONFIG["intermediate_size"], CONFIG["n_layer"]
    H, K = CONFIG["gated_delta_num_heads"], CONFIG["gated_delta_head_dim"]
    V = round(K * CONFIG["gated_delta_expand_v"])

    def matrix(*shape, std):
        return (rng.standard_normal(shape) * std).astype(np.float16)

    def vector(size, std, mean=0.0):
        return (rng.standard_normal(size) * std + mean).astype(np.float32)

    # What all tokens share gives the scores of a head a common sign, so that some gates close.
    shared = rng.standard_normal(D) * 0.15
    tokens = rng.standard_normal((CONFIG["padded_vocab_size"], D)) * 0.15 + shared
    w = {"transformer.wte.weight": tokens.astype(np.float16),
         "transformer.ln_f.weight": vector(D, 0.2, 1.0)}
    for layer in range(L):
        at = f"transformer.h.{layer}."
        dt = np.exp(rng.uniform(np.log(1e-3), np.log(3e-2), H))
        w |= {
            at + "norm_1.weight": vector(D, 0.2, 1.0), at + "norm_2.weight": vector(D, 0.2, 1.0),
            at + "mlp.gate_proj.weight": matrix(2 * F, D, std=0.8 / D ** 0.5),
            at + "mlp.down_proj.weight": matrix(D, F, std=0.8 / F ** 0.5),
            at + "attn.q_proj.weight": matrix(H * K, D, std=1 / D ** 0.5),
            at + "attn.k_proj.weight": matrix(H * K, D, std=1 / D ** 0.5),
            at + "attn.v_proj.weight": matrix(H * V, D, std=1 / D ** 0.5),
            at + "attn.g_proj.weight": matrix(H * V, D, std=0.8 / D ** 0.5),
            at + "attn.b_proj.weight": matrix(H, D, std=0.8 / D ** 0.5),
            at + "attn.a_proj.weight": matrix(H, D, std=0.3 / D ** 0.5),
            at + "attn.o_proj.weight": matrix(D, H * V, std=0.8 / (H * V) ** 0.5),
            at + "attn.A_log": np.log(rng.uniform(0.02, 1, H)).astype(np.float32),
            at + "attn.dt_bias": (dt + np.log(-np.expm1(-dt))).astype(np.float32),
            at + "attn.D": np.ones(H, np.float32),
            at + "attn.o_norm.weight": vector(V, 0.1, 1.0),
        }
        for part, std in (("q", 6.0), ("pool_attn_k", 1.2), ("pool_attn_v", 1.5),
                          ("pool_attn_o", 1.5)):
            w[at + f"attn.route_{part}_proj.weight"] = matrix(H, K, K, std=std / K ** 0.5)
    return w


def choose_prompt(model, rng):
    """Ids of which no gate comes within MARGIN of the threshold, or None."""
    ids, memory = [], model.empty()
    for _ in range(TOKENS):
        for _ in range(64):
            token = int(rng.integers(CONFIG["vocab_size"]))
            after, _, traces = model.step(memory, token, True)
            if min(near(layer, m, q) for layer, m, (_, q) in zip(model.layers, memory, traces)) \
                    >= MARGIN:
                break
        else:
            return None
        ids.append(token)
        memory = after
    return ids


def near(layer, m, q_raw):
    """How near to the threshold a gate of this query is."""
    theta, layer.theta = layer.theta, 0.0
    gates = layer.gates(m, q_raw)
    layer.theta = theta
    return np.abs(gates - THETA).min() if gates.size else np.inf


def positions_of():
    border = {b + d for b in range(CHUNK, TOKENS, CHUNK) for d in (-1, 0, 1)}
    return sorted(border | set(range(0, TOKENS, 37)) | set(range(TOKENS - 40, TOKENS)))


def run(model, ids, routed):
    positions, rows, memory = positions_of(), [], model.empty()
    H, L, chunks = CONFIG["gated_delta_num_heads"], CONFIG["n_layer"], TOKENS // CHUNK
    gates = np.full((len(positions), L, H, chunks), -1, np.float32)
    for position, token in enumerate(ids):
        memory, logits, traces = model.step(memory, token, routed)
        if position in positions:
            for layer, (w, _) in enumerate(traces):
                gates[len(rows), layer, :, :w.shape[1]] = w
            rows.append(logits)
    return memory, traces, {"prompt_ids": np.array(ids, np.int32), "gates": gates,
                            "logit_positions": np.array(positions, np.int32),
                            "logits": np.stack(rows).astype(np.float32)}


def native(model, ids):
    memory, _, golden = run(model, ids, False)
    for index, (layer, m) in enumerate(zip(model.layers, memory)):
        golden[f"states.{index}"] = layer.state(m).astype(np.float32)
    logits, greedy, margin = None, [], np.inf
    _, logits, _ = replay_last(model, ids)
    for _ in range(64):
        best = np.sort(logits)[-2:]
        margin = min(margin, best[1] - best[0])
        greedy.append(int(np.argmax(logits)))
        memory, logits, _ = model.step(memory, greedy[-1], False)
    del golden["gates"]
    return golden | {"greedy_ids": np.array(greedy, np.int32)}, margin


def replay_last(model, ids):
    memory = model.empty()
    for token in ids:
        memory, logits, traces = model.step(memory, token, False)
    return memory, logits, traces


def routed(model, ids):
    memory, traces, golden = run(model, ids, True)
    for index, m in enumerate(memory):
        golden[f"a.{index}"] = np.stack([A for A, _ in m.pages]).astype(np.float32)
        golden[f"b.{index}"] = np.stack([B for _, B in m.pages]).astype(np.float32)
        golden[f"representatives.{index}"] = np.stack(m.representatives).astype(np.float32)
        golden[f"q_raw.{index}"] = traces[index][1].astype(np.float32)
    return golden


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    for seed in range(9, 400):
        rng = np.random.default_rng(seed)
        weights = make_weights(rng)
        ids = choose_prompt(Model(weights, CONFIG, THETA), rng)
        if not ids:
            continue
        plain, margin = native(Model(weights, CONFIG), ids)
        released, cut = (routed(Model(weights, CONFIG, theta), ids) for theta in (0.0, THETA))
        gates = released["gates"][released["gates"] >= 0]
        closed, half = np.mean(gates < THETA), np.mean((gates > THETA) & (gates < 0.8))
        if margin >= GREEDY_MARGIN and len(set(plain["greedy_ids"].tolist())) >= 12 and \
                0.1 < closed < 0.6 and half > 0.1:
            break
    else:
        raise SystemExit("no seed will do")
    exact = routed(Model(weights, CONFIG, 0.0, round_representatives=False), ids)

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file(weights, folder / "model.safetensors", {"format": "np"})
    note = {"seed": str(seed), "greedy_margin": repr(float(margin))}
    save_file(plain, folder / "golden.safetensors", note)
    save_file(released, folder / "golden_released.safetensors", note | {"theta": "0"})
    save_file(cut, folder / "golden_threshold.safetensors", note | {"theta": str(THETA)})
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"seed {seed}, greedy margin {margin:.1e}, {len(set(plain['greedy_ids'].tolist()))} "
          f"different tokens; gates {np.percentile(gates, [0, 10, 50, 90, 100]).round(3)}, below "
          f"theta {np.mean(gates < THETA):.2f}")
    apart = lambda one, other: np.abs(one["logits"] - other["logits"]).max()
    print(f"logits +-{np.abs(plain['logits']).max():.1f}; released to native "
          f"{apart(released, plain):.2f}, to the threshold {apart(released, cut):.3f}, to unrounded "
          f"representatives {apart(released, exact):.1e}")
    print(sum(f.stat().st_size for f in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
