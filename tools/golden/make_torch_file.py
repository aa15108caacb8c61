"""Makes tests/golden/convert: a small file as torch itself saves it, and what it holds.

    pip install torch
    python3 tools/golden/make_torch_file.py
"""

import collections
import hashlib
import json
import pathlib

import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "convert"
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


def main():
    torch.manual_seed(5)
    module = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3))
    state = collections.OrderedDict(("module." + k, v) for k, v in module.state_dict().items())
    whole = torch.randn(4, 6, dtype=torch.bfloat16)
    state["module.whole"] = whole
    state["module.rows"] = whole[1:3]  # a view into the same storage
    state["module.tied"] = whole
    state["module.half"] = torch.randn(2, 3, 1, 1).half()
    state["module.empty"] = torch.zeros(0, 4)
    state["module.count"] = torch.tensor(7)
    state["module.parameter"] = torch.nn.Parameter(torch.randn(3))
    OUT.mkdir(parents=True, exist_ok=True)
    torch.save({"model": state, "step": 47684, "note": ["weights", 1.5, None]}, OUT / "torch.pth")
    torch.save({"model": {"t": whole.t()}}, OUT / "transposed.pth")
    expected = {}
    for name, tensor in state.items():
        numbers = tensor.detach().contiguous().flatten().view(torch.uint8) if tensor.dim() else \
            tensor.reshape(1).view(torch.uint8)
        expected[name.removeprefix("module.")] = {
            "dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
            "sha256": hashlib.sha256(bytes(numbers.tolist())).hexdigest()}
    (OUT / "torch.json").write_text(json.dumps(expected, indent=1) + "\n")
    print("torch", torch.__version__, {f.name: f.stat().st_size for f in OUT.iterdir()})


if __name__ == "__main__":
    main()
