"""Runs the authors' own code of the linear recurrences on random tokens.

    python3 tools/golden/make_recurrences.py FLA MAMBA tests/golden/recurrences

(needs torch, einops and safetensors; FLA is a clone of fla-org/flash-linear-attention, MAMBA of
state-spaces/mamba). Their functions are taken as they are, from files that need no GPU. They work
in float32 by asking torch for it; here torch answers with float64, so that what they give is their
formulas and no rounding. tests/golden/recurrences/README.md gives the formats.
"""

import argparse
import ast
import pathlib
import subprocess

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from safetensors.torch import save_file

TOKENS, HEADS, K, V = 128, 2, 9, 14


def functions_of(clone, path):
    """The functions of a file, without what it imports."""
    source = (clone / path).read_text()
    parts = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    names = {"torch": torch, "F": F, "rearrange": rearrange, "repeat": repeat}
    exec(compile(ast.Module(parts, []), path, "exec"), names)
    return names


def revision_of(clone):
    return subprocess.check_output(["git", "-C", clone, "rev-parse", "HEAD"], text=True).strip()


def heads_first(x):
    return x.transpose(1, 2)


def run(fla, mamba, x):
    """model -> (outputs [1, T, H, V], last state [1, H, K, V])."""
    q, k, v, beta, g, gk = (x[name] for name in ("q", "k", "v", "beta", "g", "gk"))
    op = lambda name: functions_of(fla, f"fla/ops/{name}/naive.py")
    last = {"output_final_state": True}
    out = {"linear": op("linear_attn")["naive_recurrent_linear_attn"](q, k, v, **last)}
    # Its decay is a function of the head alone; its last state is not given.
    out["retnet"] = heads_first(op("retention")["naive_retention"](*map(heads_first, (q, k, v)))), None
    out["simple_gla"] = op("simple_gla")["naive_recurrent_simple_gla"](q, k, v, g, **last)
    out["gla"] = op("gla")["naive_recurrent_gla"](q, k, v, gk, **last)
    o, s = op("delta_rule")["delta_rule_recurrence"](*map(heads_first, (q, k, v, beta)), **last)
    out["delta_net"] = heads_first(o), s
    out["gdn"] = op("gated_delta_rule")["naive_recurrent_gated_delta_rule"](q, k, v, beta, g, **last)
    out["kda"] = op("kda")["naive_recurrent_kda"](q, k, v, gk, beta, **last)
    out["comba"] = op("comba")["naive_recurrent_comba"](q, k, v, x["p"], beta, g, **last)
    out["gdn2"] = op("gdn2")["naive_recurrent_gdn2"](q, k, v, gk, x["erase"], x["write"], **last)
    # Mamba2's letters: x is v, B is k, C is q and not scaled, dt is beta.
    ssd = functions_of(mamba, "mamba_ssm/modules/ssd_minimal.py")["ssd_minimal_discrete"]
    y, s = ssd(v * beta[..., None], x["mamba_a"] * beta, k, q, 64)
    out["mamba2"] = y, s.transpose(-1, -2)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fla", type=pathlib.Path)
    parser.add_argument("mamba", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.manual_seed(20261130)
    rand = lambda *width: torch.rand(1, TOKENS, HEADS, *width)
    x = {"q": torch.randn(1, TOKENS, HEADS, K), "v": torch.randn(1, TOKENS, HEADS, V),
         "k": F.normalize(torch.randn(1, TOKENS, HEADS, K), dim=-1), "beta": rand(),
         "g": -0.2 * rand(), "gk": -torch.logspace(-3, 0.9, K) * rand(K),
         "erase": rand(K), "write": rand(V), "mamba_a": -torch.tensor([0.5, 4.0])}
    x["p"] = 0.8 * x["k"]
    # From here on a float of torch is a double.
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    out = run(arguments.fla, arguments.mamba, {name: value.double() for name, value in x.items()})
    tensors = dict(x)
    for model, (y, state) in out.items():
        tensors[f"{model}.out"] = y
        if state is not None:
            tensors[f"{model}.state"] = state
        assert y.dtype == torch.float64, model
    path = arguments.folder / "recurrences.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, path,
              {"fla": revision_of(arguments.fla), "mamba": revision_of(arguments.mamba),
               "torch": torch.__version__})
    path.chmod(0o644)
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
