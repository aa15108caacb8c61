"""Trains static mixing for a finished checkpoint: one gate for each routed layer and distance in chunks; the backbone is frozen.

    python3 tools/train/train_mixing.py --model checkpoints/demo [--seconds 240] [--tokens 16384]

Writes mixing.safetensors into the folder (reader mhla). The loss is that of the answers in training conversations.
"""

import argparse
import time

import torch
import torch.nn.functional as F

import checkpoint
import corpus
from model import Gating
from training_data import Conversations

LOG_STEPS = 10
DISTANCES = checkpoint.MIXING_BLOCKS_MAX - 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--tokens", type=int, default=16384, help="length of a sample")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model = checkpoint.load(arguments.model).to(device).requires_grad_(False)
    routed = model.config.layers - model.config.closed_layers
    logits = torch.full((routed, DISTANCES), 1.0, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([logits], arguments.rate)
    data = Conversations(f"{arguments.model}/tokenizer.json", arguments.tokens, arguments.batch, f"mixing/{arguments.seed}")
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=arguments.workers)
    started = time.time()
    for step, batch in enumerate(b for b in loader if (b["row_question"] >= 0).any()):
        batch = {name: values.to(device) for name, values in batch.items()}
        hidden = model(batch["ids"], Gating(batch["rows"], mixing=logits.sigmoid()), torch.bfloat16 if device.type == "cuda" else torch.float32)
        rows = batch["rows"][..., None].expand(-1, -1, hidden.shape[-1])
        answers = batch["row_question"] >= 0
        predicted = model.logits(hidden.gather(1, rows)[answers]).float()
        target = batch["target"].gather(1, batch["rows"])[answers]
        loss = F.cross_entropy(predicted, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % LOG_STEPS == 0:
            right = (predicted.argmax(-1) == target).float().mean().item()
            near, far = logits.detach().sigmoid()[:, 0].tolist(), logits.detach().sigmoid()[:, arguments.tokens // 256 - 2].tolist()
            print(f"step={step} seconds={time.time() - started:.0f} loss={loss.item():.4f} tokens_right={right:.3f} "
                  f"nearest={'/'.join(f'{x:.2f}' for x in near)} farthest={'/'.join(f'{x:.2f}' for x in far)}", flush=True)
        if time.time() - started > arguments.seconds:
            break
    weights = logits.detach().sigmoid()
    longest = arguments.tokens // 256 - 1
    weights[:, longest:] = weights[:, longest - 1:longest]  # distances that no sample had
    checkpoint.save_mixing(weights, model.config, arguments.model)


if __name__ == "__main__":
    corpus.begin_training()
    main()
