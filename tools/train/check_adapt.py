"""Checks of qwen.py, its folders and adapt_router.py: other implementations' logits, the demo model, gradients, going on.

    python3 tools/train/check_adapt.py          half a minute on a CPU
"""

import json
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import adapt_router
import checkpoint
import qwen_folder
from model import CHUNK, Gating
from qwen_config import FolderError
from routing_loss import budget_loss, support_loss
from training_data import Conversations

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/models"
DEMO = ROOT / "checkpoints/demo"
TOLERANCE = 1e-4


def padded(ids):
    return torch.cat([ids, ids.new_zeros(-len(ids) % CHUNK)]).long()[None]


def distance(logits, expected):
    """Largest difference, relative to the largest logit where that is above 1."""
    return ((logits - expected).abs().max() / expected.abs().max().clamp(min=1)).item()


@torch.no_grad()
def check_native():
    """Hugging Face's logits (float64), of every mix of layers that is there."""
    for name in ("hybrid_tied", "grouped_untied", "linear_grouped", "linear_tied"):
        golden = load_file(GOLDEN / name / "golden.safetensors")
        model = qwen_folder.load(GOLDEN / name)
        ids = padded(golden["prompt_ids"])
        hidden, _ = model(ids, Gating.everywhere(ids, native=True))
        worst = distance(model.logits(hidden[0, golden["logit_positions"].long()]), golden["logits"])
        assert worst < TOLERANCE, (name, worst)
        print(f"native: {name} within {worst:.1e} of Hugging Face's logits", flush=True)


@torch.no_grad()
def check_routed():
    """The formulas in float64: grouped value heads, a closed layer, recent chunks, a cap that binds."""
    folder = GOLDEN / "routed"
    golden = load_file(folder / "golden_hla.safetensors")
    model = qwen_folder.load(folder)
    qwen_folder.load_router(model, folder / "router.safetensors")
    ids = padded(golden["prompt_ids"])
    gating = Gating.everywhere(ids, theta=model.history.theta, pages_max=model.history.pages_max, record=[])
    hidden, _ = model(ids, gating)
    positions = golden["logit_positions"].long()
    worst = distance(model.logits(hidden[0, positions]), golden["logits_unrounded"])
    assert worst < TOLERANCE, worst
    expected = golden["gates"][:, [0, 2]].clamp(min=0)  # -1: not closed yet
    gates = torch.stack([g[0, :, positions, :expected.shape[-1]].transpose(0, 1) for g in gating.record], 1)
    assert (gates - expected).abs().max() < 1e-3  # those were computed with rounded representatives
    print(f"routed: within {worst:.1e} of the formulas' logits, {(gates > 0).float().mean():.2f} of gates open", flush=True)


@torch.no_grad()
def check_demo():
    """model.Model with the shipped router, every token a row and only some."""
    old = checkpoint.load(DEMO)
    new = qwen_folder.load(DEMO)
    qwen_folder.load_router(new, DEMO / "router.safetensors")
    batch = next(iter(Conversations(DEMO / "tokenizer.json", 2048, 1, "check", filler=0.25)))
    for kind, settings in (("all rows", {}), ("labelled rows", {"rows": batch["rows"]}), ("native", {"native": True})):
        rows = settings.pop("rows", None)
        gatings = [Gating(rows, theta=0.1, record=[]) if rows is not None else Gating.everywhere(batch["ids"], theta=0.1, record=[], **settings) for _ in range(2)]
        ours, (hidden, _) = old.logits(old(batch["ids"], gatings[0])), new(batch["ids"], gatings[1])
        worst = distance(new.logits(hidden), ours)
        assert worst < TOLERANCE, (kind, worst)
        opened = sum((g > 0).sum().item() for g in gatings[1].record)
        assert opened == sum((g > 0).sum().item() for g in gatings[0].record) and (opened > 50 or kind == "native")
        print(f"demo: {kind} within {worst:.1e} of model.py, {opened} gates open", flush=True)


def check_losses():
    """Budget and support written out, row by row."""
    torch.manual_seed(4)
    gates, current = torch.rand(2, 3, 5, 8) ** 0.3, torch.tensor([[0, 2, 3, 4, 8], [1, 5, 6, 7, 7]])
    gates = gates * (torch.arange(8) < current[..., None])[:, None]
    budget, support, rows = 0.0, 0.0, 0
    for b in range(2):
        for head in range(3):
            for r in range(5):
                w = gates[b, head, r, :current[b, r]].tolist()
                budget += max(sum(w) - 3, 0) ** 2 / 9 / 30
                if len(w) > 3:
                    rows += 1
                    support += max(1 / sum((x / sum(w)) ** 2 for x in w) - 3, 0) ** 2
    assert abs(budget_loss(gates).item() - budget) < 1e-5 and abs(support_loss(gates, current).item() - support / rows) < 1e-5
    print("losses: budget and support agree with their definitions")


def language_loss(model, ids):
    gating = Gating.everywhere(ids[:, :-CHUNK], pages_max=CHUNK)
    hidden, routed = model(ids[:, :-CHUNK], gating)
    loss = torch.nn.functional.cross_entropy(model.logits(hidden).flatten(0, 1), ids[:, 1:1 - CHUNK].flatten())
    for left in routed.values():
        loss = loss + adapt_router.BUDGET_WEIGHT * budget_loss(left.gates) + adapt_router.SUPPORT_WEIGHT * support_loss(left.gates, gating.rows // CHUNK)
    return loss


def check_gradient():
    """Through both kinds of layers and recomputation: the slope along a random direction; nothing reaches the backbone."""
    for name in ("hybrid_tied", "grouped_untied"):
        model = qwen_folder.load(GOLDEN / name)
        layers = len(model.config.layers)
        recent = [0] * layers
        recent[2] = 1
        torch.manual_seed(6)
        model.add_routers(qwen_folder.History([1], recent), bias=0.5)
        ids = torch.randint(0, model.config.vocabulary, (2, 7 * CHUNK))
        language_loss(model, ids).backward()
        for parameter_name, p in model.named_parameters():
            router = parameter_name.startswith("routers.")
            assert p.requires_grad == router and (p.grad is not None) == router, parameter_name
            assert not router or p.grad.abs().max() > 0, parameter_name
        routers = list(model.routers.parameters())
        direction = [p.grad / p.grad.norm() + torch.randn_like(p) / p.numel() ** 0.5 for p in routers]
        slope = sum((p.grad * d).sum().item() for p, d in zip(routers, direction))

        @torch.no_grad()
        def at(step):
            torch._foreach_add_(routers, direction, alpha=step)
            value = language_loss(model, ids).double().item()
            torch._foreach_add_(routers, direction, alpha=-step)
            return value

        measured = (at(0.05) - at(-0.05)) / 0.1
        assert abs(measured / slope - 1) < 0.02, (name, measured, slope)
        print(f"gradient: {name}, {len(routers)} tensors of routers and no other; slope {slope:.4f}, by differences {measured:.4f}", flush=True)


def adapt(out, steps, *options):
    words = ["--model", str(DEMO), "--out", str(out), "--tokens", str(steps * 512), "--sample-tokens", "512", "--device", "cpu",
             "--closed-layers", "0,1,2", "--recent-chunks", "1,1,1,0,0,0", "--lr", "1e-3", "--log-steps", "1000", *options]
    adapter = adapt_router.Adapter(adapt_router.parse_arguments(words))
    adapter.run()
    return adapter


def check_going_on(folder):
    """A run in two parts gives the router of a run in one; the file says what the run was told; the model is untouched."""
    text = folder / "text.txt"
    text.write_text("\n".join(f"{i} pears and {i * i} plums went to house {i % 7}." for i in range(900)))
    for name, options in (("text", ["--text", str(text)]), ("supervised", ["--supervised"]), ("labels", ["--supervised", "--language", "0", "--updates", "2"])):
        before = {name: value.clone() for name, value in qwen_folder.load(DEMO).state_dict().items()}
        whole = adapt(folder / f"{name}_whole", 4, *options)
        adapt(folder / f"{name}_parts", 2, *options)
        parts = adapt(folder / f"{name}_parts", 4, *options)
        for (tensor, expected), found in zip(whole.model.routers.state_dict().items(), parts.model.routers.state_dict().values()):
            assert torch.equal(expected, found), tensor
        assert whole.step == parts.step == 4 and whole.updates == parts.updates
        assert all(torch.equal(value, whole.model.state_dict()[name]) for name, value in before.items())
        fresh = qwen_folder.load(DEMO)
        fresh.add_routers(whole.model.history, 2.2)
        assert not torch.equal(fresh.routers["4"].q, whole.model.routers["4"].q)
        written = folder / f"{name}_whole" / "router.safetensors"
        with safe_open(written, "pt") as file, safe_open(DEMO / "router.safetensors", "pt") as shipped:
            assert file.metadata() == shipped.metadata()
            assert {n: (file.get_slice(n).get_shape(), file.get_slice(n).get_dtype()) for n in file.keys()} == \
                {n: (shipped.get_slice(n).get_shape(), shipped.get_slice(n).get_dtype()) for n in shipped.keys()}
        print(f"going on: {name}, two runs of 2 steps and one of 4 end with the same router")


def check_hybrid_run(folder):
    """The command on a hybrid with grouped value heads, an untied head and three shards; what it writes is read back."""
    model, out = folder / "hybrid", folder / "hybrid_out"
    model.mkdir()
    for file in (GOLDEN / "grouped_untied").glob("*"):
        if not file.name.startswith("golden"):
            (model / file.name).write_bytes(file.read_bytes())
    tokenizer = Tokenizer(WordLevel({str(i): i for i in range(200)}, unk_token="0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(model / "tokenizer.json"))
    (folder / "numbers.txt").write_text(" ".join(str(i * i % 97) for i in range(9000)))
    adapt_router.main(["--model", str(model), "--out", str(out), "--text", str(folder / "numbers.txt"), "--tokens", str(3 * 2 * 2048), "--batch", "2",
                       "--sample-tokens", "2048", "--recent-chunks", "1", "--closed-layers", "4", "--pages-max", "5", "--device", "cpu", "--lr", "1e-3"])
    written = qwen_folder.load(out)
    qwen_folder.load_router(written, out / "router.safetensors")
    assert written.history == qwen_folder.History([4], [1, 1, 1, 0, 1, 1, 1, 0], pages_max=5) and list(written.routers) == ["0", "1", "2", "5", "6"]
    state = torch.load(out / "state.pt", weights_only=True)["routers"]
    for name, value in written.routers.state_dict().items():
        assert torch.equal(value, state[name] if name.endswith("bias") else state[name].bfloat16().float()), name
    print("hybrid: trained for three steps, written and read back")


def refused(action, *words):
    try:
        action()
    except FolderError as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"not refused: {words}")


def check_errors(folder):
    """What is refused names file, tensor, expected and found."""
    small = folder / "small"
    small.mkdir()
    source = GOLDEN / "linear_grouped"
    config = json.loads((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")

    def write(change_config={}, change={}):
        (small / "config.json").write_text(json.dumps({**config, **change_config}))
        save_file({n: v for n, v in {**tensors, **change}.items() if v is not None}, small / "model.safetensors")

    name = next(n for n in tensors if n.endswith("layers.1.linear_attn.in_proj_z.weight"))
    write(change={name: torch.zeros(3, 5)})
    refused(lambda: qwen_folder.load(small), "model.safetensors", name, "[64, 32]", "[3, 5]")
    write(change={name: None})
    refused(lambda: qwen_folder.load(small), str(small), name, "no such tensor")
    write(change={name + "_scale": torch.zeros(3)})
    refused(lambda: qwen_folder.load(small), "model.safetensors", name + "_scale")
    write({"num_experts": 8})
    refused(lambda: qwen_folder.load(small), "config.json", "num_experts", "8")
    write({"linear_num_value_heads": 3})
    refused(lambda: qwen_folder.load(small), "linear_num_value_heads", "3")
    write()
    (small / "model.safetensors").write_bytes(b"nonsense")
    refused(lambda: qwen_folder.load(small), "model.safetensors", "safetensors file")
    refused(lambda: qwen_folder.load(folder / "nowhere"), "nowhere/config.json")
    write()
    model = qwen_folder.load(small)
    refused(lambda: qwen_folder.load_router(model, DEMO / "router.safetensors"), "router.safetensors", "closed_layers", "[0, 1, 2]")
    refused(lambda: qwen_folder.History([7], [0, 0, 0]).checked(model.config, "options"), "closed_layers", "[7]")
    short = folder / "short.txt"
    short.write_text("too short")
    refused(lambda: adapt(folder / "refused", 1, "--text", str(short)), "short.txt", "512")
    refused(lambda: adapt(folder / "refused", 1, "--text", str(short), "--supervised"), "--supervised", "--text")
    begin = ["--begin-with", str(DEMO / "router.safetensors")]
    refused(lambda: adapt(folder / "refused", 1, *begin), "--begin-with", "--closed-layers", "0,1,2")
    refused(lambda: adapt(folder / "refused", 1, "--language", "0"), "--language", "--supervised")
    refused(lambda: adapt(folder / "labels_whole", 8, "--supervised", "--language", "0", "--updates", "3"), "state.pt", "--updates 3", "found 2")
    print("errors: refused by name")


def main():
    check_native()
    check_routed()
    check_demo()
    check_losses()
    check_gradient()
    with tempfile.TemporaryDirectory() as folder:
        check_going_on(Path(folder))
        check_hybrid_run(Path(folder))
        check_errors(Path(folder))


if __name__ == "__main__":
    main()
