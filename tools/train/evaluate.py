"""Recall of a checkpoint by length of history, reader and corpus half; one JSON line per setting.

    python3 tools/train/evaluate.py --model checkpoints/demo --tokens 4096,32768 [--reader hla|none|native] [--corpus train|development|held_out]

Every question is asked in a fork of its own. The answer is read with its own tokens in place (teacher forcing) and
counts as right when each of them, <|im_end|> included, is the most probable: then greedy decoding gives just that text.
"""

import argparse
import json
import time
from collections import Counter

import torch

import checkpoint
from corpus import Corpus
from histories import HistoryWriter
from model import CHUNK, Gating
from turns import TurnWriter


def padded(ids, device):
    """[1, T] with T the next multiple of 256; what follows the last token cannot change what stands before it."""
    length = -(-len(ids) // CHUNK) * CHUNK
    return torch.tensor(ids + [0] * (length - len(ids)), device=device)[None]


class Recall:
    def __init__(self, model, reader, theta, pages_max):
        self.model, self.reader, self.theta, self.pages_max = model, reader, theta, pages_max
        self.device = model.embed.device
        self.open_gates = []  # mean number of gates open per token and head, over history and at answers

    def gating(self, ids):
        if self.reader == "none":
            return None
        return Gating.everywhere(ids, theta=self.theta, pages_max=self.pages_max, native=self.reader == "native")

    @torch.no_grad()
    def answers(self, history_ids, question):
        """Whether the greedy answer to the question after the history is the expected one."""
        ids = history_ids + question.turn + question.answer
        first = len(history_ids) + len(question.turn) - 1
        batch = padded(ids, self.device)
        gating = self.gating(batch)
        if gating:
            gating.record = []
        hidden = self.model(batch, gating)
        if gating and gating.record:
            counts = torch.stack([(gates[0] > 0).sum(-1).float().mean(0) for gates in gating.record]).mean(0)
            self.open_gates.append((counts[:first].mean().item(), counts[first:len(ids) - 2].mean().item()))
        predicted = self.model.logits(hidden[0, first:len(ids) - 1]).argmax(-1).tolist()
        return predicted == question.answer, predicted


def evaluate(recall, writer, corpus, arguments, tokens):
    """Counts of questions asked and answered right by kind, and what went wrong."""
    histories = HistoryWriter(corpus, writer, arguments.seed)
    asked, right, wrong = Counter(), Counter(), []
    started = time.time()
    for _ in range(arguments.histories):
        history = histories.write(tokens, arguments.facts, arguments.corrected, arguments.untold, (0.0, arguments.depth))
        for question in history.questions:
            good, predicted = recall.answers(history.ids, question)
            asked[question.kind] += 1
            right[question.kind] += good
            if not good:
                wrong.append({"kind": question.kind, "depth": round(question.depth, 3), "question": writer.text(question.turn[3:-10]),
                              "expected": writer.text(question.answer[:-1]), "read": writer.text(predicted)})
    gates = [round(sum(x) / len(x), 3) for x in zip(*recall.open_gates)]
    recall.open_gates.clear()
    return {"asked": dict(asked), "right": dict(right), "gates_open_history_answers": gates, "seconds": round(time.time() - started, 1)}, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", default="4096")
    parser.add_argument("--reader", choices=["hla", "none", "native"], default="hla")
    parser.add_argument("--corpus", choices=["train", "development", "held_out"], default="train")
    parser.add_argument("--histories", type=int, default=10)
    parser.add_argument("--facts", type=int, default=10)
    parser.add_argument("--corrected", type=int, default=0, help="how many of the facts are told a second time with another value")
    parser.add_argument("--untold", type=int, default=0, help="questions about things never told")
    parser.add_argument("--depth", type=float, default=0.95, help="facts stand in this share of the history's beginning")
    parser.add_argument("--theta", type=float)
    parser.add_argument("--pages-max", type=int)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--show-wrong", type=int, default=5)
    arguments = parser.parse_args()
    settings = checkpoint.router_settings(arguments.model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    recall = Recall(checkpoint.load(arguments.model).to(device), arguments.reader,
                    arguments.theta or float(settings["theta"]), arguments.pages_max or int(settings["pages_max"]))
    writer = TurnWriter(f"{arguments.model}/tokenizer.json")
    corpus = getattr(Corpus, arguments.corpus)()
    for tokens in map(int, arguments.tokens.split(",")):
        figures, wrong = evaluate(recall, writer, corpus, arguments, tokens)
        print(json.dumps({"tokens": tokens, "reader": arguments.reader, "corpus": arguments.corpus, **figures}), flush=True)
        for item in wrong[:arguments.show_wrong]:
            print("  wrong:", json.dumps(item), flush=True)


if __name__ == "__main__":
    main()
