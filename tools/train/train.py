"""Trains the demo model, stage by stage.

    python3 tools/train/train.py --out DIR [--stages short,middle,long] [--scale 1.0]
    torchrun --nproc-per-node 2 tools/train/train.py ...        on two GPUs, each with its own batch

Writes a checkpoint folder after every stage and every two minutes, train.log, and state.pt, from which the same
command goes on where it was stopped. A stage lasts for a time, not for a number of steps: its GPU seconds are shared by
the GPUs, and --scale stretches it. --reader native trains the control: every layer reads all history, no routing.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

import checkpoint
import corpus
from model import Gating, Model, ModelConfig, compile_functions
from oracle import forced_rows, given_gates
from optimizer import optimizers
from routing_loss import RouteTargets, routing_loss
from stages import STAGES
from training_data import TOLD, UNTOLD, Conversations

LOG_STEPS = 50
CLOCK_STEPS = 10
SAVE_SECONDS = 120
WARM_UP_STEPS = 100
WORKERS = 12
ROUTING_WEIGHT = 0.5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, default=Path(__file__).resolve().parents[2] / "checkpoints/demo/tokenizer.json")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--scale", type=float, default=1.0, help="factor on every stage's seconds")
    parser.add_argument("--reader", choices=["hla", "native"], default="hla")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin-with", type=Path, help="checkpoint folder whose weights to begin with")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="save and end after this many seconds; the same command goes on")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    return parser.parse_args()


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
            torch.set_float32_matmul_precision("high")
            if not arguments.eager:
                compile_functions()
        if self.world > 1:
            dist.init_process_group("nccl" if cuda else "gloo")
        self.device = torch.device("cuda" if cuda else "cpu")
        self.dtype = torch.bfloat16 if cuda else torch.float32
        torch.manual_seed(arguments.seed)
        self.model = (checkpoint.load(arguments.begin_with) if arguments.begin_with else Model(ModelConfig())).to(self.device)
        self.optimizers = optimizers(self.model, arguments.muon_lr, arguments.adam_lr)
        self.parameters = list(self.model.parameters())
        self.flat = torch.zeros(sum(p.numel() for p in self.parameters) + 2, device=self.device)  # the last two: seconds of stage and command
        offset = 0
        for p in self.parameters:  # gradients live in one buffer: one all-reduce a step
            p.grad = self.flat[offset:offset + p.numel()].view_as(p)
            offset += p.numel()
        self.generator = torch.Generator(self.device).manual_seed(arguments.seed * 1000 + self.rank)
        self.step, self.done, self.stage_seconds, self.started, self.saved = 0, [], 0.0, time.time(), time.time()
        if self.rank == 0:
            arguments.out.mkdir(parents=True, exist_ok=True)
            if arguments.tokenizer.parent.resolve() != arguments.out.resolve():
                shutil.copy(arguments.tokenizer, arguments.out / "tokenizer.json")
        self.resume()

    def log(self, **fields):
        if self.rank == 0:
            line = " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in fields.items())
            print(line, flush=True)
            with open(self.arguments.out / "train.log", "a") as file:
                file.write(line + "\n")

    def save(self):
        if self.rank == 0:
            checkpoint.save(self.model, self.arguments.out)
            state = {"model": self.model.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
                     "step": self.step, "done": self.done, "stage_seconds": self.stage_seconds}
            torch.save(state, self.arguments.out / "state.part")
            os.replace(self.arguments.out / "state.part", self.arguments.out / "state.pt")
        self.saved = time.time()

    def resume(self):
        path = self.arguments.out / "state.pt"
        if path.exists():
            state = torch.load(path, map_location=self.device, weights_only=False)
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"]):
                optimizer.load_state_dict(saved)
            self.step, self.done, self.stage_seconds = state["step"], state["done"], state["stage_seconds"]
            self.log(resumed_at_step=self.step)

    def run(self):
        settings = {name: value for name, value in vars(self.arguments).items() if not isinstance(value, Path)}
        self.log(parameters=sum(p.numel() for p in self.parameters), world=self.world, **settings)
        for name in self.arguments.stages.split(","):
            if name not in self.done:
                finished = self.run_stage(name, STAGES[name])
                if not finished:
                    self.save()
                    break
                self.done.append(name)
                self.stage_seconds = 0.0
                self.save()
        if self.world > 1:
            dist.destroy_process_group()

    def run_stage(self, name, stage):
        seconds = stage.seconds * self.arguments.scale / self.world
        data = Conversations(self.arguments.tokenizer, stage.tokens, stage.batch, f"{self.arguments.seed}/{name}/{self.step}/{self.rank}", stage.filler)
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=WORKERS, pin_memory=self.device.type == "cuda", prefetch_factor=4)
        started, first_step, progress = time.time() - self.stage_seconds, self.step, self.stage_seconds / seconds
        logged = time.time()
        for batch in loader:
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
            logging = self.step % LOG_STEPS == 0
            figures = self.train_step(stage, progress, batch, time.time() - started, logging)
            self.step += 1
            if logging:
                rate = stage.tokens * stage.batch * LOG_STEPS * self.world / (time.time() - logged)
                logged = time.time()
                self.log(stage=name, step=self.step, progress=progress, tokens_per_second=rate, **figures)
            if self.step % CLOCK_STEPS == 0:
                self.stage_seconds, command_seconds = self.flat[-2:].tolist()
                progress = self.stage_seconds / seconds
                if progress >= 1 or command_seconds > self.arguments.stop_after:
                    break
                if time.time() - self.saved > SAVE_SECONDS:
                    self.save()
        self.log(stage=name, steps=self.step - first_step, progress=progress)
        return progress >= 1

    def train_step(self, stage, progress, batch, elapsed, logging):
        def between(ends):
            return ends[0] + (ends[1] - ends[0]) * min(progress, 1.0)

        rate = between(stage.rate) * min(1.0, (self.step + 1) / WARM_UP_STEPS)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
        trace = []
        hidden = self.model(batch["ids"], self.gating(stage, between(stage.oracle), batch), self.dtype, trace)
        logits = self.model.logits(hidden)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), batch["target"].flatten(), reduction="none").view_as(batch["weight"])
        language = (losses * batch["weight"]).sum() / batch["weight"].sum()
        if stage.all_rows and trace:
            trace = [(router, queries.gather(1, batch["rows"][..., None, None].expand(-1, -1, *queries.shape[2:])), representatives)
                     for router, queries, representatives in trace]
        routing, metrics = routing_loss(trace, RouteTargets.of(batch), stage.binary_share) if trace else (torch.zeros((), device=self.device), {})
        self.flat.zero_()
        (language + ROUTING_WEIGHT * routing).backward()
        self.flat[-2], self.flat[-1] = elapsed, time.time() - self.started
        if self.world > 1:
            dist.all_reduce(self.flat, op=dist.ReduceOp.AVG)
        norm = self.flat[:-2].norm()
        self.flat[:-2].mul_((1.0 / norm).clamp(max=1.0))
        for optimizer in self.optimizers:
            optimizer.step()
        if not logging:
            return {}
        return {"loss": language.item(), "routing": routing.item(), "norm": norm.item(), **answer_figures(logits, batch),
                **{k: "/".join(f"{x:.2f}" for x in v.flatten().tolist()) for k, v in metrics.items()}}

    def gating(self, stage, oracle_share, batch):
        chunks = batch["chunk_keys"].shape[1]
        if self.arguments.reader == "native":
            return Gating(batch["rows"], native=True)
        if stage.all_rows:
            return Gating.everywhere(batch["ids"], pages_max=stage.pages_max, theta=stage.theta)
        return Gating(batch["rows"], given_gates(batch, chunks, self.generator), forced_rows(batch, oracle_share, self.generator),
                      stage.pages_max, stage.theta)


@torch.no_grad()
def answer_figures(logits, batch):
    """Shares of answers with every token right: told in a closed chunk, corrected among them, told in the open chunk, never told."""
    rows = batch["rows"]
    predicted = logits.gather(1, rows[..., None].expand(-1, -1, logits.shape[-1])).argmax(-1)
    wrong = (predicted != batch["target"].gather(1, rows)).float()
    question = batch["row_question"].clamp(min=0)
    answering = batch["row_question"] >= 0

    def per_question(values):
        return torch.zeros_like(wrong).scatter_reduce(1, question, torch.where(answering, values, 0.0), "amax")

    failed = per_question(wrong) > 0
    closed = per_question((batch["row_chunk"] >= 0).float()) > 0
    told = per_question((batch["row_kind"] == TOLD).float()) > 0
    corrected = per_question((batch["row_older"] >= 0).any(-1).float()) > 0
    untold = per_question((batch["row_kind"] == UNTOLD).float()) > 0

    def share(chosen):
        return (~failed & chosen).sum().item() / max(chosen.sum().item(), 1)

    return {"told": share(told & closed), "corrected": share(told & closed & corrected), "near": share(told & ~closed), "untold": share(untold)}


if __name__ == "__main__":
    corpus.begin_training()
    Trainer(parse_arguments()).run()
