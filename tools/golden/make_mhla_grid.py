"""Runs MHLA's released image and video layers on random tokens, and checks the language model.

    python3 tools/golden/make_mhla_grid.py MHLA tests/golden/mhla_grid tests/golden/models/mhla_lm

(needs torch, einops and safetensors; MHLA is a clone of DAGroup-PKU/MHLA). The layers are the
authors' own classes, in float64 for images and, as they insist, in float32 for videos. What stands
around the mixing (convolution of the values, norms, the last projection) is taken out of them, so
that their output is the mixing's. tests/golden/mhla_grid/README.md gives the formats.

For the language model nothing is written: its first 2,048 positions are computed with the authors'
chunk form, which works in float32, and compared with the logits that make_mhla.py found.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import types

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
from einops import rearrange
from safetensors.torch import load_file, save_file

EPSILON = 1e-6
IMAGE = "mhla_image_classification/models/modules/attention/mhla.py"
VIDEO = "mhla_videogen/diffusion/model/wan/mhla_utils.py"
CHUNK = "mhla_nlp/fla/ops/mhla/naive.py"


def module_of(clone, path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, clone / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def features(x):
    return torch.relu(x) + EPSILON


def save(path, tensors, facts):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().float().contiguous() for name, value in tensors.items()}, path,
              {name: str(value) for name, value in facts.items()})
    path.chmod(0o644)
    print(path, path.stat().st_size, "bytes")


def make_image(clone, folder):
    """2 x 3 blocks do not exist in this layer: grids and blocks are square."""
    side, block, heads, dim = 6, 2, 2, 12
    layer = module_of(clone, IMAGE).MHLA_Normed_Torch(
        dim, heads=heads, embed_len=side * side, window_size=block * block, transform="cos",
        eps=EPSILON).double()
    layer.norm = layer.to_out = torch.nn.Identity()
    layer.lepe.weight.data.zero_()
    layer.lepe.bias.data.zero_()
    mixing = layer.piece_attn.conv.weight
    mixing.data = (mixing.data + 0.2 * torch.rand_like(mixing)).clamp(0, 1)  # as if it had learned
    blocks = side // block
    tokens = torch.randn(2, side, side, dim)
    x = rearrange(tokens, "b (h p) (w q) c -> b (h w) (p q) c", p=block, q=block)
    out = rearrange(layer(x), "b (h w) (p q) c -> b (h p) (w q) c", h=blocks, p=block)
    q, k, v = (rearrange(t, "b y x (h d) -> b (y x) h d", h=heads)
               for t in layer.to_qkv(tokens).chunk(3, dim=-1))
    q, k = features(q), features(k)
    save(folder / "image.safetensors",
         {"q": q, "k": k, "v": v, "plain_q": q, "plain_k": k, "mixing": mixing[..., 0, 0],
          "out": rearrange(out, "b y x (h d) -> b (y x) h d", h=heads)},
         {"size": [1, side, side], "block": [1, block, block], "start": "cos"})


def make_video(clone, folder):
    class Norm(torch.nn.Identity):  # the layer's norms, taken out
        def __init__(self, *_, **__):
            super().__init__()

    for name in ("diffusion", "diffusion.model", "diffusion.model.wan"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["diffusion.model.wan.model"] = types.SimpleNamespace(WanRMSNorm=Norm)
    module = module_of(clone, VIDEO)
    size, layout, heads, dim = (4, 6, 4), (2, 3, 1), 2, 24
    layer = module.MHLA_Video_Uni(dim, num_heads=heads, block_layout=layout, transform="exp",
                                  eps=EPSILON).float()  # it works in float32
    layer.o = torch.nn.Identity()
    half = dim // heads // 2
    angles = torch.outer(torch.arange(64.0), 10000 ** (-torch.arange(half) / half))
    turns = torch.polar(torch.ones_like(angles), angles)
    x = torch.randn(2, size[0] * size[1] * size[2], dim).float()
    grids = torch.tensor([size] * len(x))
    out = layer(x, None, grids, turns)
    q, k, v = (rearrange(t, "b n (h d) -> b n h d", h=heads)
               for t in (features(layer.q(x)), features(layer.k(x)), layer.v(x)))
    save(folder / "video.safetensors",
         {"q": module.rope_apply(q, grids, turns), "k": module.rope_apply(k, grids, turns), "v": v,
          "plain_q": q, "plain_k": k, "mixing": layer.block_attn.conv.weight[..., 0, 0],
          "out": rearrange(out, "b n (h d) -> b n h d", h=heads)},
         {"size": list(size), "block": [s // b for s, b in zip(size, layout)], "start": "exp"})


def check_language_model(clone, folder):
    config = json.loads((folder / "config.json").read_text())
    weights = {name: value.double() for name, value in
               load_file(folder / "model.safetensors").items()}
    golden = load_file(folder / "golden.safetensors")
    chunk_form = module_of(clone, CHUNK).naive_chunk_simple_mhla_fixed
    heads, count, epsilon = config["num_heads"], 2048, config["norm_eps"]

    def norm(x, weight):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight

    def turn(x):
        half = x.shape[-1] // 2
        angle = torch.outer(torch.arange(count).double(), 10000 ** (-torch.arange(half) / half))
        cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    x = weights["model.embeddings.weight"][golden["prompt_ids"][:count].long()]
    for index in range(config["num_hidden_layers"]):
        w = {name.removeprefix(f"model.layers.{index}."): value for name, value in weights.items()
             if name.startswith(f"model.layers.{index}.")}
        n = norm(x, w["attn_norm.weight"])
        q, k, v, g = ((n @ w[f"attn.{part}_proj.weight"].T).reshape(1, count, heads, -1)
                      for part in "qkvg")
        mixing = torch.clamp(w["attn.mixing_matrix"], 1e-5, 1)[..., 0, 0, 0, 0].tril()
        o = chunk_form(turn(torch.relu(q)), turn(torch.relu(k)), v,
                       mixing[..., None, None, None, None].float())
        o = norm(o, w["attn.g_norm_swish_gate.weight"]) * torch.nn.functional.silu(g)
        x = x + o.reshape(count, -1) @ w["attn.o_proj.weight"].T
        n = norm(x, w["mlp_norm.weight"])
        inner = torch.nn.functional.silu(n @ w["mlp.gate_proj.weight"].T)
        x = x + (inner * (n @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    logits = norm(x, weights["model.norm.weight"]) @ weights["model.embeddings.weight"].T
    known = golden["logit_positions"].long()
    known = known[known < count]
    apart = (logits[known] - golden["logits"][:len(known)].double()).abs().max()
    print(f"{folder}: {len(known)} rows of logits, {float(apart):.1e} from the authors' chunk form")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("language_model", type=pathlib.Path)
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():
        make_image(args.clone, args.folder)
        make_video(args.clone, args.folder)
        check_language_model(args.clone, args.language_model)


if __name__ == "__main__":
    main()
