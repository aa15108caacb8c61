"""Trains only a router for a dense Qwen3.5 folder; the model itself stays as it is.

    python3 tools/train/adapt_router.py --model FOLDER --out DIR --text FILES... --seconds 3600
    python3 tools/train/adapt_router.py --model checkpoints/demo --out DIR --supervised --language 0 --seconds 1500

Without --text the texts are training conversations, which only the demo's tokenizer can write. The loss is that of the
next token, read through the router's own gates, and what keeps gates few: budget and support. --supervised adds what
the generator knows, which chunk holds each answer; with --language 0 nothing else is learned from, and no gradient
passes through the model.

DIR becomes a folder that runs: router.safetensors beside links to the model's own files; and train.log, and state.pt,
from which the same command goes on where it was stopped. --seconds and --tokens are budgets of all its runs together.
"""

import argparse
import hashlib
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch.utils.checkpoint import checkpoint as recomputed

import corpus
import qwen_folder
from checkpoint import PAGES_MAX, THETA
from model import CHUNK, Gating
from oracle import forced_rows, given_gates
from qwen_config import LINEAR, FolderError
from qwen_folder import History
from routing_loss import RouteTargets, budget_loss, routing_loss, support_loss
from training_data import Conversation
from turns import TurnWriter

DEMO_TOKENIZER = Path(__file__).resolve().parents[2] / "checkpoints/demo/tokenizer.json"
BUDGET_WEIGHT, SUPPORT_WEIGHT, ROUTING_WEIGHT = 0.005, 0.001, 0.5
BIAS = 2.2
BINARY_SHARE = 0.1   # of the binary loss beside the softmax of routing
GIVEN_SHARE = 0.5    # of answers that are read through the generator's gates, so that layers above a poor router see what they will see
FILLER = 0.25        # of the usual pasted text: more questions a token
HEAD_ROWS = 1024     # tokens whose logits exist at a time
STEPS_MAX = 1 << 40
ENCODED_CHARACTERS = 1 << 18  # of a text at a time
TEXT_BYTES_MAX = 4 << 30  # of all files of --text
FREE_SETTINGS = ("seconds", "tokens", "workers", "save_seconds", "log_steps", "out", "device")  # may differ when a run goes on


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="folder with config.json, tokenizer.json and weights")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; another than the model's")
    parser.add_argument("--text", type=Path, nargs="+", help="UTF-8 text files to train on; without: generated conversations")
    parser.add_argument("--supervised", action="store_true", help="learn from the generator which chunk holds each answer")
    parser.add_argument("--language", type=float, default=1.0, help="weight of the language loss and of what keeps gates few; 0 needs --supervised")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="budget of all runs together")
    parser.add_argument("--tokens", type=float, default=float("inf"), help="the same in tokens")
    parser.add_argument("--sample-tokens", type=int, default=4096, help="length of a sample, a multiple of 256")
    parser.add_argument("--batch", type=int, default=1, help="samples a step")
    parser.add_argument("--updates", type=int, default=1, help="updates from each batch; more than 1 needs --language 0")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--warm-up", type=int, default=20, help="updates until the rate is full")
    parser.add_argument("--begin-with", type=Path, help="a router.safetensors to begin with, whose settings stay")
    parser.add_argument("--bias", type=float, help="of a fresh router: gates begin near 0.9 with 2.2 (the default), near 0 with -5")
    parser.add_argument("--closed-layers", help="linear layers without a router: 0,1,2")
    parser.add_argument("--recent-chunks", help="newest closed chunks always read: one number for all linear layers, or one for each layer of the model")
    parser.add_argument("--theta", type=float, help=f"gates below it are 0 when the router is used; {THETA}")
    parser.add_argument("--pages-max", type=int, help=f"chunks a key head may read when the router is used; {PAGES_MAX}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="processes that make samples; 0: this one")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save-seconds", type=float, default=120)
    parser.add_argument("--log-steps", type=int, default=10)
    return parser.parse_args(words)


class Texts(torch.utils.data.Dataset):
    """Step -> `batch` pieces of the files, at places drawn from the seed and the step."""

    def __init__(self, files, tokenizer_path, arguments):
        try:
            tokenizer = Tokenizer.from_file(str(tokenizer_path))
        except Exception as error:  # the library raises nothing more special
            raise FolderError(f"{tokenizer_path}: expected a tokenizer, found {error}") from error
        total, ids = 0, []
        for file in files:
            try:
                total += file.stat().st_size
                if total > TEXT_BYTES_MAX:
                    raise FolderError(f"{file}: expected at most {TEXT_BYTES_MAX} bytes in all files of --text, found {total} up to here")
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise FolderError(f"{file}: expected a UTF-8 text file, found {error}") from error
            pieces = [text[at:at + ENCODED_CHARACTERS] for at in range(0, len(text), ENCODED_CHARACTERS)]
            ids += [np.array(piece.ids, np.int32) for piece in tokenizer.encode_batch(pieces, add_special_tokens=False)]
        self.ids = np.concatenate(ids) if ids else np.zeros(0, np.int32)
        self.arguments = arguments
        if len(self.ids) <= arguments.sample_tokens:
            raise FolderError(f"{', '.join(map(str, files))}: expected more than {arguments.sample_tokens} tokens (--sample-tokens), found {len(self.ids)}")

    def __getitem__(self, step):
        rng, length = random.Random(f"text/{self.arguments.seed}/{step}"), self.arguments.sample_tokens
        starts = [rng.randrange(len(self.ids) - length) for _ in range(self.arguments.batch)]
        pieces = torch.from_numpy(np.stack([self.ids[start:start + length + 1] for start in starts]).astype(np.int64))
        return {"ids": pieces[:, :-1], "target": pieces[:, 1:], "weight": torch.ones(pieces[:, 1:].shape)}


class GeneratedConversations(torch.utils.data.Dataset):
    """Step -> `batch` training conversations, drawn from the seed and the step."""

    def __init__(self, tokenizer_path, arguments):
        try:
            own = tokenizer_path.read_bytes()
        except OSError as error:
            raise FolderError(f"{tokenizer_path}: expected a tokenizer, found {error}") from error
        if own != DEMO_TOKENIZER.read_bytes():
            raise FolderError(f"{tokenizer_path}: expected the bytes of {DEMO_TOKENIZER}, found others: conversations are made for that tokenizer; give --text")
        self.tokenizer_path, self.arguments = tokenizer_path, arguments
        self.corpus = self.writer = None

    def __getitem__(self, step):
        if self.corpus is None:  # in the process that uses it
            self.corpus, self.writer = corpus.Corpus.training(), TurnWriter(self.tokenizer_path)
        samples = []
        for number in range(self.arguments.batch):
            rng = random.Random(f"conversations/{self.arguments.seed}/{step}/{number}")
            conversation = Conversation(self.corpus, self.writer, rng, self.arguments.sample_tokens, FILLER)
            conversation.write()
            samples.append(conversation.arrays())
        return {name: torch.from_numpy(np.stack([s[name] for s in samples])) for name in samples[0]}


class Adapter:
    def __init__(self, arguments):
        self.arguments = arguments
        self.check_arguments()
        self.device = torch.device(arguments.device)
        torch.set_float32_matmul_precision("high")
        tokenizer = arguments.model / "tokenizer.json"
        self.data = Texts(arguments.text, tokenizer, arguments) if arguments.text else GeneratedConversations(tokenizer, arguments)
        self.model = qwen_folder.load(arguments.model, self.device, torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        torch.manual_seed(arguments.seed)
        if arguments.begin_with:
            qwen_folder.load_router(self.model, arguments.begin_with)
        else:
            self.model.add_routers(self.history(), BIAS if arguments.bias is None else arguments.bias)
        self.parameters = list(self.model.routers.parameters())
        self.last = max(int(layer) for layer in self.model.routers)
        self.optimizer = torch.optim.AdamW(self.parameters, arguments.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=self.device.type == "cuda")
        self.step, self.seconds = 0, 0.0
        arguments.out.mkdir(parents=True, exist_ok=True)
        self.resume()
        self.updates = self.step * arguments.updates
        self.started = time.time() - self.seconds

    def check_arguments(self):
        a = self.arguments

        def refuse(option, expected, found):
            raise FolderError(f"{option}: expected {expected}, found {found}")

        if a.sample_tokens < 2 * CHUNK or a.sample_tokens % CHUNK:
            refuse("--sample-tokens", f"a multiple of {CHUNK} from {2 * CHUNK}", a.sample_tokens)
        for option, value in (("--batch", a.batch), ("--updates", a.updates)):
            if value < 1:
                refuse(option, "an integer from 1", value)
        if a.supervised and a.text:
            refuse("--supervised", "no --text, since only generated conversations have labels", "--text")
        if a.language < 0 or (a.language == 0 and not a.supervised):
            refuse("--language", "a weight above 0, or 0 with --supervised", a.language)
        if a.updates > 1 and a.language > 0:
            refuse("--updates", "1, as every update changes what layers above read; or --language 0", a.updates)
        if a.seconds == float("inf") and a.tokens == float("inf"):
            refuse("--seconds, --tokens", "at least one of them", "neither")
        for option in ("bias", "closed_layers", "recent_chunks", "theta", "pages_max") if a.begin_with else ():
            if getattr(a, option) is not None:
                refuse("--begin-with", f"no --{option.replace('_', '-')}, which {a.begin_with} sets", getattr(a, option))
        if a.out.resolve() == a.model.resolve():
            refuse("--out", "another folder than --model, whose own router would be lost", a.out)

    def history(self):
        config = self.model.config

        def integers(option, text):
            try:
                return [int(word) for word in text.split(",") if word]
            except ValueError:
                raise FolderError(f"{option}: expected integers and commas, found {text}") from None

        a = self.arguments
        recent = integers("--recent-chunks", a.recent_chunks or "0")
        if len(recent) == 1:
            recent = [recent[0] if kind == LINEAR else 0 for kind in config.layers]
        closed = integers("--closed-layers", a.closed_layers or "")
        theta, pages_max = (THETA if a.theta is None else a.theta), (PAGES_MAX if a.pages_max is None else a.pages_max)
        return History(closed, recent, theta, pages_max).checked(config, "options")

    def settings(self):
        """What a run that goes on must have been begun with."""
        return {name: " ".join(map(str, value)) if isinstance(value, list) else str(value)
                for name, value in vars(self.arguments).items() if name not in FREE_SETTINGS}

    def log(self, **fields):
        line = " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in fields.items())
        print(line, flush=True)
        with open(self.arguments.out / "train.log", "a") as file:
            file.write(line + "\n")

    def resume(self):
        path = self.arguments.out / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        for name, value in self.settings().items():
            if state["settings"].get(name) != value:
                raise FolderError(f"{path}: expected a run with --{name.replace('_', '-')} {value}, found {state['settings'].get(name)}: give that, or another --out")
        self.model.routers.load_state_dict(state["routers"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.log(resumed_at_step=self.step)

    def save(self):
        out = self.arguments.out
        for file in sorted(self.arguments.model.iterdir()):
            link = out / file.name
            if file.suffix in (".json", ".jinja", ".safetensors") and file.name not in ("router.safetensors", "mixing.safetensors") and not link.exists():
                link.symlink_to(file.resolve())
        qwen_folder.save_router(self.model, out / "router.safetensors")
        sums = self.arguments.model / "SHA256SUMS"
        if sums.exists():  # the server refuses files that are not these
            lines = [line for line in sums.read_text().splitlines() if line.split()[-1:] and line.split()[-1] not in ("router.safetensors", "mixing.safetensors")]
            lines.append(f"{hashlib.sha256((out / 'router.safetensors').read_bytes()).hexdigest()}  router.safetensors")
            (out / "SHA256SUMS").write_text("\n".join(lines) + "\n")
        state = {"routers": self.model.routers.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                 "seconds": time.time() - self.started, "settings": self.settings()}
        torch.save(state, out / "state.part")
        os.replace(out / "state.part", out / "state.pt")
        self.saved = time.time()

    def tokens(self):
        return self.step * self.arguments.batch * self.arguments.sample_tokens

    def run(self):
        a = self.arguments
        self.log(routers=",".join(self.model.routers), parameters=sum(p.numel() for p in self.parameters),
                 frozen=sum(p.numel() for p in self.model.parameters() if not p.requires_grad), **{**self.settings(), "device": a.device})
        loader = torch.utils.data.DataLoader(self.data, batch_size=None, sampler=range(self.step, STEPS_MAX), num_workers=a.workers)
        self.saved = logged = time.time()
        first = True
        for batch in loader:
            if time.time() - self.started >= a.seconds or self.tokens() >= a.tokens:
                break
            batch = {name: values.to(self.device, non_blocking=True) for name, values in batch.items()}
            figures = self.train_step(batch)
            self.step += 1
            if first or self.step % a.log_steps == 0:
                rate = a.sample_tokens * a.batch * (1 if first else a.log_steps) / (time.time() - logged)
                logged, first = time.time(), False
                self.log(step=self.step, seconds=time.time() - self.started, tokens=self.tokens(), tokens_per_second=rate, **{n: _shown(v) for n, v in figures.items()})
            if time.time() - self.saved > a.save_seconds:
                self.save()
        self.save()
        self.log(steps=self.step, tokens=self.tokens(), seconds=time.time() - self.started)

    def train_step(self, batch):
        """One batch -> figures of its first update, which has not learned from it yet."""
        if self.arguments.language > 0:
            return self.update(*self.losses(batch))
        with torch.no_grad():
            generator = torch.Generator(self.device).manual_seed(self.arguments.seed * 1_000_003 + self.step)
            gating = Gating(batch["rows"], given_gates(batch, batch["chunk_keys"].shape[1], generator), forced_rows(batch, GIVEN_SHARE, generator),
                            self.model.history.pages_max, self.model.history.theta)
            _, routed = self.model(batch["ids"], gating, last=self.last)
        first = None
        for _ in range(self.arguments.updates):
            routing, figures = self.routing(batch, routed)
            figures = self.update(routing, {"routing": routing.detach(), **figures})
            first = first or figures
        return first

    def losses(self, batch):
        """The loss of a batch whose every token reads through the router's own gates, and figures."""
        gating = Gating.everywhere(batch["ids"], pages_max=max(batch["ids"].shape[1] // CHUNK, self.model.history.pages_max))
        hidden, routed = self.model(batch["ids"], gating)
        language = self.language(hidden, batch)
        gates = [left.gates for left in routed.values()]
        budget = torch.stack([budget_loss(g) for g in gates]).mean()
        support = torch.stack([support_loss(g, gating.rows // CHUNK) for g in gates]).mean()
        loss = self.arguments.language * (language + BUDGET_WEIGHT * budget + SUPPORT_WEIGHT * support)
        figures = {"loss": language.detach(), "budget": budget.detach(), "support": support.detach(),
                   "open": torch.stack([(g.detach() >= self.model.history.theta).float().sum(-1).mean() for g in gates])}
        if self.arguments.supervised:
            at = batch["rows"][..., None, None]
            labelled = {layer: left._replace(queries=left.queries.detach().gather(1, at.expand(-1, -1, *left.queries.shape[2:])), keys=left.keys.detach())
                        for layer, left in routed.items()}
            routing, more = self.routing(batch, labelled)
            loss, figures = loss + ROUTING_WEIGHT * routing, {**figures, "routing": routing.detach(), **more}
        return loss, figures

    def language(self, hidden, batch):
        """Weighted mean of the next token's loss; logits exist for some tokens at a time."""
        def summed(hidden, target, weight):
            return (F.cross_entropy(self.model.logits(hidden).float(), target, reduction="none") * weight).sum()

        flat = [x.flatten(0, 1).split(HEAD_ROWS) for x in (hidden, batch["target"], batch["weight"])]
        return sum(recomputed(summed, *part, use_reentrant=False) for part in zip(*flat)) / batch["weight"].sum()

    def routing(self, batch, routed):
        """Supervision of the routers by the labelled rows: routed {layer: Routed of those rows}, without a gradient of its own."""
        trace = [(router, routed[int(layer)].queries, router.representatives(routed[int(layer)].keys)) for layer, router in self.model.routers.items()]
        return routing_loss(trace, RouteTargets.of(batch), BINARY_SHARE)

    def update(self, loss, figures):
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        if not norm.isfinite():
            raise FolderError(f"step {self.step}: expected a finite gradient, found {norm.item()}: the last state is kept; begin again with a lower --lr")
        self.updates += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.arguments.lr * min(1.0, self.updates / max(self.arguments.warm_up, 1))
        self.optimizer.step()
        return {**figures, "norm": norm}


def _shown(value):
    """One number, or the mean over heads of each layer."""
    if value.dim() < 1:
        return value.item()
    return "/".join(f"{x:.2f}" for x in (value.mean(-1) if value.dim() > 1 else value).tolist())


def main(words=None):
    corpus.begin_training()
    try:
        Adapter(parse_arguments(words)).run()
    except FolderError as error:
        sys.exit(f"adapt_router: {error}")


if __name__ == "__main__":
    main()
