"""Checks: chunk form against the plain reader, gradients, text against tokens, labels.

    python3 tools/train/check.py [--model checkpoints/demo]
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint
from gdn import UnitLowerInverse
from long_reader import LongReader
from model import Gating, Model, ModelConfig, mixed_states, states_before
from reference import Reader
from training_data import Conversations
from turns import TurnWriter

TOKENIZER = Path(__file__).resolve().parents[2] / "checkpoints/demo/tokenizer.json"


def small_checkpoint(folder):
    """Writes a small random model whose gates lie on both sides of theta."""
    torch.manual_seed(3)
    model = Model(ModelConfig(width=64, layers=4, closed_layers=2, head_width=32, mlp=96, router_bias=-2.0, half_lives=(64.0, 512.0)))
    with torch.no_grad():
        for layer in model.layers[2:]:
            layer.attention.router.q.mul_(3)
    shutil.copy(TOKENIZER, Path(folder) / "tokenizer.json")
    checkpoint.save(model, folder)


def check_readers(folder, ids, reader_name):
    """The chunk form against the plain reader on ids [T], T a multiple of 256, with unrounded pages; and what rounding changes."""
    model = checkpoint.load(folder)
    batch = torch.tensor(ids)[None]
    gating = Gating.everywhere(batch, theta=0.1, native=reader_name == "native")
    with torch.no_grad():
        logits = model.logits(model(batch, gating))[0].numpy()
    exact, rounded = Reader(folder, reader_name, rounded=False), Reader(folder, reader_name)
    worst, worst_rounded, opened = 0.0, 0.0, 0
    for t, token in enumerate(ids):
        expected = exact.step(token)
        size = np.abs(expected).max()
        worst = max(worst, np.abs(logits[t] - expected).max() / size)
        worst_rounded = max(worst_rounded, np.abs(rounded.step(token) - expected).max() / size)
        opened += (exact.layers[-1].gates > 0).sum()
    print(f"{reader_name}: {len(ids)} tokens, chunk form against plain reader {worst:.1e}, float16 pages {worst_rounded:.1e}, "
          f"{opened / len(ids):.3f} gates open a token in the last layer", flush=True)
    assert worst < 1e-3


def check_long_reader(folder):
    """Reading in blocks and asking in forks against one forward pass, over gates that open, close and exceed the cap."""
    model = checkpoint.load(folder)
    random = torch.Generator().manual_seed(6)
    history = torch.randint(0, 4096, (40 * 256 + 100,), generator=random).tolist()
    tails = torch.randint(0, 4096, (3, 668), generator=random)  # to the end of the second chunk after the last whole one
    for pages_max in (2, 16):
        reader = LongReader(model, theta=0.1, pages_max=pages_max)
        rest = reader.read(history, forks=3)
        for again in range(2):  # forks leave the memory as it was
            hidden = reader.fork(torch.stack([torch.cat([torch.tensor(rest), tail]) for tail in tails]))
        worst = 0.0
        for tail, states in zip(tails, hidden):
            batch = torch.cat([torch.tensor(history), tail])[None]
            gating = Gating.everywhere(batch, theta=0.1, pages_max=pages_max, record=[])
            with torch.no_grad():
                expected = model(batch, gating)[0, len(history) - len(rest):]
            worst = max(worst, ((states - expected).norm() / expected.norm()).item())
        opened = (gating.record[0][..., :len(history) - len(rest), :] > 0).sum().item()
        print(f"long reader: {len(history)} tokens and forks of {len(tails[0])}, cap {pages_max}, against one pass {worst:.1e}, {opened} gates open", flush=True)
        assert worst < 1e-4 and opened == reader.open_gates[2]


def check_inverse_gradient():
    lower = torch.randn(2, 8, 8, dtype=torch.float64).tril(-1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: UnitLowerInverse.apply(x.tril(-1)), lower)
    print("inverse: gradient agrees with differences")


def check_mixing():
    """Static mixing against its definition chunk by chunk; weights of 1 give the native states."""
    carry = torch.randn(2, 5, 2, 8, 16, dtype=torch.float64) * 0.3
    weights = torch.rand(4, dtype=torch.float64)
    expected = torch.zeros(2, 5, 2, 8, 8, dtype=torch.float64)
    for i in range(5):
        for j in range(i):
            through = carry[:, j, ..., 8:] @ expected[:, i] + carry[:, j, ..., :8]
            expected[:, i] = (1 - weights[i - j - 1]) * expected[:, i] + weights[i - j - 1] * through
    assert torch.allclose(mixed_states(carry, weights), expected, atol=1e-12)
    assert torch.allclose(mixed_states(carry, torch.ones_like(weights)), states_before(carry), atol=1e-12)
    print("mixing: agrees with its definition, and with the native state where every weight is 1")


def check_samples():
    writer = TurnWriter(TOKENIZER)
    batch = next(iter(Conversations(TOKENIZER, 2048, 8, "check")))
    for i in range(8):
        ids = batch["ids"][i].tolist()
        assert writer.line(writer.text(ids))[:-8] == ids[:len(writer.line(writer.text(ids))) - 8]
        for row, chunk in zip(batch["rows"][i].tolist(), batch["row_chunk"][i].tolist()):
            answer, held = writer.text([batch["target"][i, row].item()]).strip(), ids[chunk * 256:(chunk + 1) * 256]
            assert chunk < 0 or answer in (".", ",", "and") or answer in {writer.text([t]).strip() for t in held}
    print("samples: the tokens are those of the whole text, and the right chunks hold the answers")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a checkpoint folder to check as well, on a conversation")
    parser.add_argument("--tokens", type=int, default=1024)
    arguments = parser.parse_args()
    check_inverse_gradient()
    check_mixing()
    check_samples()
    if arguments.model:
        folder, ids = arguments.model, next(iter(Conversations(TOKENIZER, arguments.tokens, 1, "check")))["ids"][0].tolist()
        check_readers(folder, ids, "hla")
        check_readers(folder, ids, "native")
        return
    with tempfile.TemporaryDirectory() as folder:
        small_checkpoint(folder)
        ids = torch.randint(0, 4096, (arguments.tokens,), generator=torch.Generator().manual_seed(5)).tolist()
        check_readers(folder, ids, "hla")
        check_readers(folder, ids, "native")
        check_long_reader(folder)


if __name__ == "__main__":
    main()
