"""Makes tiny random Qwen3.5 checkpoints and what Hugging Face transformers computes with them.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install 'torch' 'transformers>=5' numpy
    /tmp/golden/bin/python tools/golden/make_models.py tests/golden/models

Each folder is a checkpoint as transformers would save it (config.json, safetensors) beside
golden.safetensors: prompt ids, logits, final recurrent states and greedy tokens, computed by its
eager CPU kernels. tests/golden/models/README.md gives the exact formats. Weights are rounded to the
stored type before anything is computed with them.

transformers asks for float32 by name in norms and in the recurrence; both names are made to mean
float64 here (`in_double`), so that what is stored carries no rounding of its own. How far plain
float32 lands from it is stored too.
"""

import argparse
import contextlib
import json
import math
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

GREEDY_TOKENS = 64
GREEDY_LOGITS = 16  # rows kept, of the last tokens
MARGIN_MIN = 1e-3
CONFIG_KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "vocab_size",
    "max_position_embeddings", "rms_norm_eps", "hidden_act", "attention_bias", "tie_word_embeddings",
)

CASES = {
    # Nested config, the long prefix, one file, vision and MTP tensors to skip.
    "hybrid_tied": dict(
        config=dict(hidden_size=48, intermediate_size=56, num_hidden_layers=4,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                    linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16,
                    linear_value_head_dim=16, vocab_size=208, tie_word_embeddings=True),
        dtype=torch.bfloat16, prefix="model.language_model.", nested=True, layer_types=True,
        shards=1, strangers=True, prompt_tokens=571, seed=11),
    # Flat config, the bare prefix, F32, no attention layer at all.
    "linear_tied": dict(
        config=dict(hidden_size=32, intermediate_size=40, num_hidden_layers=3,
                    num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                    linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=32,
                    linear_value_head_dim=32, vocab_size=176, tie_word_embeddings=True,
                    layer_types=["linear_attention"] * 3),
        dtype=torch.float32, prefix="model.", nested=False, layer_types=True, shards=1,
        strangers=False, prompt_tokens=589, seed=23),
    # Three shards, F16, a head of its own, two value heads to a key head, layer types derived.
    "grouped_untied": dict(
        config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=8,
                    num_attention_heads=4, num_key_value_heads=1, head_dim=16,
                    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
                    linear_value_head_dim=16, vocab_size=192, tie_word_embeddings=False),
        dtype=torch.float16, prefix="model.language_model.", nested=True, layer_types=False,
        shards=3, strangers=True, prompt_tokens=600, seed=37),
    # All linear, grouped, untied, BF16 throughout (A_log and the gated norm too), flat config.
    "linear_grouped": dict(
        config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                    num_attention_heads=2, num_key_value_heads=2, head_dim=32,
                    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32,
                    linear_value_head_dim=16, vocab_size=160, tie_word_embeddings=False,
                    layer_types=["linear_attention"] * 3),
        dtype=torch.bfloat16, prefix="model.", nested=False, layer_types=True, shards=1,
        strangers=False, prompt_tokens=563, seed=41, all_stored_alike=True),
}
ROPE = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}


@contextlib.contextmanager
def in_double(model):
    """The same model in float64, wherever its code says float32."""
    float32, to_float = torch.float32, torch.Tensor.float
    model.double()
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = float32, to_float
        model.float()


def randomise(model, generator):
    """Weights that make every part of the model matter, and decays that reach back 2 chunks."""
    def normal(tensor, std, mean=0.0):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * std + mean)

    for name, tensor in model.named_parameters():
        if name.endswith("A_log"):
            tensor.copy_(torch.empty(tensor.shape).uniform_(0.02, 4, generator=generator).log())
        elif name.endswith("dt_bias"):
            low, high = math.log(1e-3), math.log(1e-1)
            dt = torch.empty(tensor.shape).uniform_(low, high, generator=generator).exp()
            tensor.copy_(dt + torch.log(-torch.expm1(-dt)))
        elif name.endswith("linear_attn.norm.weight"):
            normal(tensor, 0.1, 1.0)
        elif "norm" in name:
            normal(tensor, 0.1)
        elif name.endswith("conv1d.weight"):
            normal(tensor, 0.5)
        elif name.endswith("embed_tokens.weight"):
            normal(tensor, 0.15)
        elif name.endswith("lm_head.weight"):
            normal(tensor, 0.12)
        elif name.endswith("in_proj_a.weight"):
            normal(tensor, 0.3 / math.sqrt(tensor.shape[1]))
        else:
            normal(tensor, 0.8 / math.sqrt(tensor.shape[1]))


def stored_type(name, case):
    if not case.get("all_stored_alike") and name.endswith(("A_log", "linear_attn.norm.weight")):
        return torch.float32
    return case["dtype"]


def build(case, seed):
    config = Qwen3_5TextConfig(
        linear_conv_kernel_dim=4, max_position_embeddings=4096, rms_norm_eps=1e-6,
        hidden_act="silu", attention_bias=False, rope_parameters=dict(ROPE),
        attn_implementation="eager", **case["config"])
    model = Qwen3_5ForCausalLM(config).to(torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        randomise(model, generator)
        for name, tensor in model.named_parameters():
            tensor.copy_(tensor.to(stored_type(name, case)).to(torch.float32))
    ids = torch.randint(0, config.vocab_size, (1, case["prompt_tokens"]), generator=generator)
    return config, model, ids


def greedy(model, ids):
    """Greedy continuation by whole passes, and the smallest distance between the best two."""
    margin = math.inf
    tokens = []
    for _ in range(GREEDY_TOKENS):
        logits = model(ids, use_cache=False).logits[0, -1]
        best = torch.topk(logits, 2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        ids = torch.cat([ids, best.indices[:1].view(1, 1)], dim=1)
    return tokens, margin


def run(model, ids, start=0, cache=None):
    """One pass with a cache. transformers cannot ask an all-linear cache for its length, so the
    positions are given, and such a model needs no mask."""
    mask = None
    if "full_attention" not in model.config.layer_types:
        mask = {"full_attention": None, "linear_attention": None}
    positions = torch.arange(start, start + ids.shape[1]).view(1, -1)
    return model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
                 use_cache=True)


def cached_logits(model, ids, tokens):
    """Logits of the same continuation, one cached token at a time."""
    out = run(model, ids)
    rows = [out.logits[0, -1]]
    for count, token in enumerate(tokens[:-1]):
        out = run(model, torch.tensor([[token]]), ids.shape[1] + count, out.past_key_values)
        rows.append(out.logits[0, -1])
    return torch.stack(rows)


def history_effect(model, ids):
    """How far the last logits move when only the first 200 tokens are others."""
    other = ids.clone()
    other[0, :200] = (other[0, :200] + 7) % model.config.vocab_size
    return (model(ids, use_cache=False).logits - model(other, use_cache=False).logits)[0, -1].abs().max().item()


def positions_of(length):
    return sorted(set(range(0, length, 37)) | set(range(length - 40, length)))


def write_config(folder, config, case):
    text = {key: getattr(config, key) for key in CONFIG_KEYS}
    text["model_type"] = "qwen3_5_text"
    text["attn_output_gate"] = True
    text["full_attention_interval"] = 4
    text["eos_token_id"] = 2
    text["rope_parameters"] = dict(ROPE, mrope_interleaved=True, mrope_section=[2, 1, 1])
    if case["layer_types"]:
        text["layer_types"] = list(config.layer_types)
    whole = text
    if case["nested"]:
        whole = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
                 "text_config": text, "tie_word_embeddings": text["tie_word_embeddings"]}
    (folder / "config.json").write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")


def write_weights(folder, model, case, generator):
    tensors = {}
    for name, tensor in model.named_parameters():
        stored = name
        if name.startswith("model."):
            stored = case["prefix"] + name.removeprefix("model.")
        tensors[stored] = tensor.detach().to(stored_type(name, case)).contiguous()
    if case["strangers"]:
        tensors["mtp.fc.weight"] = torch.randn(4, 8, generator=generator).to(torch.bfloat16)
        tensors["mtp.layers.0.mlp.gate_proj.weight"] = torch.randn(3, 5, generator=generator)
        tensors["model.visual.patch_embed.proj.weight"] = torch.randn(2, 3, 2, 2, 2,
                                                                      generator=generator)
    if case["shards"] == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map, total = {}, 0
    for shard in range(case["shards"]):
        file = f"model-{shard + 1:05d}-of-{case['shards']:05d}.safetensors"
        own = names[shard::case["shards"]]
        save_file({n: tensors[n] for n in own}, folder / file, metadata={"format": "pt"})
        weight_map.update({n: file for n in own})
        total += sum(tensors[n].numel() * tensors[n].element_size() for n in own)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def make(folder, name, case):
    for seed in range(case["seed"], case["seed"] + 100):
        config, model, ids = build(case, seed)
        tokens, margin = greedy(model, ids)
        if margin >= MARGIN_MIN and len(set(tokens)) >= 16:
            break
    else:
        raise SystemExit(f"{name}: no seed gives a margin of {MARGIN_MIN} and 16 different tokens")

    single = run(model, ids).logits
    assert torch.allclose(single, model(ids, use_cache=False).logits, atol=1e-4)
    with in_double(model):
        out = run(model, ids)
        rows = cached_logits(model, ids, tokens)
    assert out.logits.dtype == torch.float64
    assert rows.argmax(dim=1).tolist() == tokens, "cached decode differs"
    distance = (single - out.logits).abs().max().item()
    positions = positions_of(ids.shape[1])
    golden = {
        "prompt_ids": ids[0].to(torch.int32),
        "logit_positions": torch.tensor(positions, dtype=torch.int32),
        "logits": out.logits[0, positions].to(torch.float32),
        "greedy_ids": torch.tensor(tokens, dtype=torch.int32),
    }
    for layer, kind in enumerate(config.layer_types):
        if kind == "linear_attention":
            state = out.past_key_values.layers[layer].recurrent_states
            state = state[0] if isinstance(state, (list, tuple, dict)) else state
            golden[f"states.{layer}"] = state[0].to(torch.float32).contiguous()
    golden["greedy_logits"] = rows[-GREEDY_LOGITS:].to(torch.float32).contiguous()

    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config, case)
    write_weights(folder, model, case, torch.Generator().manual_seed(seed + 1000))
    effect = history_effect(model, ids)
    save_file(golden, folder / "golden.safetensors", metadata={
        "seed": str(seed), "greedy_margin": repr(margin), "history_effect": repr(effect),
        "float32_distance": repr(distance),
        "torch": torch.__version__, "transformers": transformers.__version__})
    for file in folder.iterdir():
        file.chmod(0o644)
    total = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, margin {margin:.2e}, different tokens {len(set(tokens))}, "
          f"history moves the last logits by {effect:.3f} of +-{out.logits.abs().max():.1f}, "
          f"float32 is {distance:.1e} away, {total} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", choices=sorted(CASES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        for name, case in CASES.items():
            if args.only in (None, name):
                make(args.folder, name, case)


if __name__ == "__main__":
    sys.exit(main())
