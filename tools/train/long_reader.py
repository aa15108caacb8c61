"""Reads histories longer than one forward pass holds: chunk by chunk, each question in a fork of what was read.

    build/release/cli/mneme eval histories --model checkpoints/demo --tokens 524288 --facts 40 --histories 5 | gzip > histories.jsonl.gz
    python3 tools/train/long_reader.py --model checkpoints/demo --histories histories.jsonl.gz

Prints a JSON line per history and one of them all. The reader is the HLA reader of model.py (float32 pages, no TF32), with the chunks that
were read kept as a table. An answer is right when each of its tokens, in its place, is the most probable, as in evaluate.py.
"""

import argparse
import gzip
import json
import time
from collections import Counter

import torch
import torch.nn.functional as F

import checkpoint
from model import CHUNK, CONV, causal_conv, swiglu, zero_centred_norm
from routing import WINDOW, cap_gates, pass_chunk

BLOCK = 4096  # tokens read at once
GATHERED = 4096  # pages gathered at once, 128 KiB each


class LayerMemory:
    """What one layer keeps of the tokens read: its chunks, their representatives, and the newest inputs of the convolution.

    carry [capacity,H,K,V+K] and representatives [1,H,capacity,P,K], of which the first `closed` are those of closed chunks.
    Forks write theirs behind these and do not count them, so the next fork finds the memory as it was.
    """

    def __init__(self, attention, capacity, device):
        H, K = attention.heads, attention.head_width
        self.closed = 0
        self.carry = torch.zeros(capacity, H, K, 2 * K, device=device)
        self.representatives = torch.zeros(1, H, capacity, CHUNK // WINDOW, K, device=device)
        self.tail = torch.zeros(1, CONV - 1, 3 * H * K, device=device)


class LongReader:
    def __init__(self, model, theta, pages_max):
        self.model, self.theta, self.pages_max = model, theta, pages_max
        self.device = model.embed.device

    @torch.no_grad()
    def read(self, ids, forks=1):
        """Closes the whole chunks of ids; room for the chunks of `forks` forks is left. Gates open while reading are counted from 0."""
        chunks = len(ids) // CHUNK
        self.memories = [LayerMemory(layer.attention, chunks + 8 * forks, self.device) for layer in self.model.layers]
        self.open_gates = Counter()
        for first in range(0, chunks * CHUNK, BLOCK):
            block = torch.tensor(ids[first:min(first + BLOCK, chunks * CHUNK)], device=self.device)[None]
            self._forward(block, keep=True)
        return ids[chunks * CHUNK:]

    @torch.no_grad()
    def fork(self, ids):
        """Hidden states [B,T,D] of B continuations ids [B,T] of what was read, T a multiple of 256; the memory stays as it was."""
        return self._forward(ids, keep=False)

    def _forward(self, ids, keep):
        x = F.embedding(ids, self.model.embed)
        for index, (layer, memory) in enumerate(zip(self.model.layers, self.memories)):
            x = x + self._attend(index, layer.attention, memory, zero_centred_norm(x, layer.input_norm), keep)
            h = zero_centred_norm(x, layer.mlp_norm)
            x = x + layer.down_proj(swiglu(layer.gate_proj(h), layer.up_proj(h)))
        return zero_centred_norm(x, self.model.norm)

    def _attend(self, index, attention, memory, h, keep):
        B, T, _ = h.shape
        H, K, N = attention.heads, attention.head_width, T // CHUNK
        raw = attention.in_proj_qkv(h)
        convolved = causal_conv(torch.cat([memory.tail.expand(B, -1, -1), raw], 1), attention.conv)[:, CONV - 1:]
        local, read, carry = attention.transitions(h, convolved)
        memory.carry[memory.closed:memory.closed + B * N] = carry
        if attention.router is None:
            newest = memory.carry[memory.closed - 1] if memory.closed else torch.zeros_like(carry[0])
            before = torch.cat([newest.expand(B, 1, H, K, 2 * K), carry.view(B, N, H, K, 2 * K)[:, :-1]], 1)
            o = local + read @ before.flatten(0, 1)[..., :K]
            o = o.transpose(1, 2).reshape(B, T, H, K)
        else:
            def tokens(y):
                return y.view(B, N, H, CHUNK, K).transpose(1, 2).reshape(B, H, T, K)
            gates, own = self._gates(attention.router, memory, raw, H, K)
            if keep:
                self.open_gates[index] += (gates > 0).sum().item()
                memory.representatives[:, :, memory.closed:memory.closed + N] = own
            o = (tokens(local) + self._routed(memory, tokens(read), gates, N)).transpose(1, 2)
        if keep:
            memory.closed += N
            memory.tail = raw[:, 1 - CONV:]
        return attention.output(h, o.contiguous())

    def _gates(self, router, memory, raw, H, K):
        """Gates [B,H,T,closed+N] of every token, those of its own continuation's chunks behind, and these chunks' representatives."""
        B, T, _ = raw.shape
        q, k, _ = raw.view(B, T, 3, H, K).unbind(2)
        own = router.representatives(k)
        scores = torch.cat([router.scores(q, memory.representatives[:, :, :memory.closed]), router.scores(q, own)], -1)
        chunks = torch.arange(memory.closed + T // CHUNK, device=raw.device)
        closed = chunks < memory.closed + torch.arange(T, device=raw.device)[:, None] // CHUNK
        gates = scores.sigmoid() * closed
        gates = gates * (gates >= self.theta)
        crowded = (gates > 0).sum(-1) > self.pages_max
        gates[crowded] = cap_gates(gates[crowded], self.pages_max)
        return gates, own

    def _routed(self, memory, read, gates, N):
        """The backward read of read [B,H,T,K], newest chunk first, touching only pages whose gate is open -> [B,H,T,K]."""
        total = torch.zeros_like(read)
        b, head, t = (gates > 0).any(-1).nonzero(as_tuple=True)
        if not len(b):
            return total
        opened = gates[b, head, t]
        order = torch.where(opened > 0, torch.arange(opened.shape[-1], device=opened.device), -1)
        order = order.topk(int((opened > 0).sum(-1).max()), -1).values
        rows, added = read[b, head, t], total[b, head, t]
        for chunk in order.unbind(-1):
            for part in (chunk >= 0).nonzero()[:, 0].split(GATHERED):
                at = chunk[part]
                page = torch.where(at < memory.closed, at, at + b[part] * N)
                through = (rows[part, None] @ memory.carry[page, head[part]])[:, 0]
                added[part], rows[part] = pass_chunk(added[part], rows[part], through, opened[part, at][:, None])
        total[b, head, t] = added
        return total


def ask(reader, history, batch):
    """[question, most probable tokens in the places of its answer] for every question of a history, asked `batch` at a time."""
    rest = reader.read(history["ids"], forks=batch)
    found = []
    for first in range(0, len(history["questions"]), batch):
        questions = history["questions"][first:first + batch]
        rows = [rest + q["ids"] + q["answer_ids"] for q in questions]
        length = -(-max(map(len, rows)) // CHUNK) * CHUNK
        hidden = reader.fork(torch.tensor([row + [0] * (length - len(row)) for row in rows], device=reader.device))
        for row, question, states in zip(rows, questions, hidden):
            answer = len(question["answer_ids"])
            found.append((question, reader.model.logits(states[len(row) - answer - 1:len(row) - 1]).argmax(-1).tolist()))
    return found


def measure(reader, history, batch):
    started = time.time()
    found = ask(reader, history, batch)
    asked, right = Counter(), Counter()
    for question, predicted in found:
        asked[question["kind"]] += 1
        right[question["kind"]] += predicted == question["answer_ids"]
    routed = [memory for layer, memory in zip(reader.model.layers, reader.memories) if layer.attention.router]
    heads = routed[0].closed * CHUNK * reader.model.config.heads
    return {"corpus": history["corpus"], "history": history["history"], "seed": history["seed"], "tokens": history["tokens"],
            "asked": asked, "right": right, "gates_open_while_read": {layer: round(n / heads, 6) for layer, n in sorted(reader.open_gates.items())},
            "seconds": round(time.time() - started, 1), "wrong": [question["ask"] for question, predicted in found if predicted != question["answer_ids"]]}


def total(measured):
    """What `mneme eval retrieval --json` would print of these histories, as far as it was measured here."""
    def half(corpus):
        asked, right = (sum((Counter(m[what]) for m in measured if m["corpus"] == corpus), Counter()) for what in ("asked", "right"))
        return {"asked": asked.total(), "right": right.total(), **{f"{kind}_{what}": count[kind] for kind in ("corrected", "untold")
                                                                   for what, count in (("asked", asked), ("right", right))}}
    first = measured[0]
    facts = sum(first["asked"].values()) - first["asked"].get("untold", 0)
    return {"tokens": first["tokens"], "facts": facts, "histories": max(m["history"] for m in measured) + 1, "seed": first["seed"], "reader": "hla",
            "gates_closed": False, "in_distribution": half("in_distribution"), "held_out": half("held_out"),
            "seconds": round(sum(m["seconds"] for m in measured), 1), "by": "tools/train/long_reader.py"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--histories", required=True, help="what `mneme eval histories` wrote, plain or gzip")
    parser.add_argument("--batch", type=int, default=40, help="questions asked at once")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    settings = checkpoint.router_settings(arguments.model)
    torch.set_float32_matmul_precision("highest")
    reader = LongReader(checkpoint.load(arguments.model).to(arguments.device), float(settings["theta"]), int(settings["pages_max"]))
    opened = gzip.open if arguments.histories.endswith(".gz") else open
    measured = []
    with opened(arguments.histories, "rt") as lines:
        for line in lines:
            measured.append(measure(reader, json.loads(line), arguments.batch))
            print(json.dumps(measured[-1]), flush=True)
    print(json.dumps(total(measured)))


if __name__ == "__main__":
    main()
