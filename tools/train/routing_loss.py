"""Supervision of the gates: the generator knows which chunk holds each answer.

Every chunk of every sequence of the batch competes. A row (a token that may read history) has at most one right chunk;
chunks that mention the row's own key otherwise (older versions, earlier questions) are neither right nor wrong.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from training_data import NONE

NONE_WEIGHT = 0.25  # of rows outside answers
FIRST_WEIGHT = 3.0  # of the rows that choose an answer's first token
THETA_LOGIT = -2.1972  # of a gate of 0.1
BUDGET, SUPPORT = 3.0, 3.0  # closed chunks a token may read freely, by the sum of its gates and by how many they are in effect
GATE_MIN = 1e-8


@dataclass
class RouteTargets:
    """Labels of all rows of a batch against all its chunks; Q = B*R rows, C = B*N chunks."""
    right: torch.Tensor   # [Q] index of the right chunk, 0 where there is none
    told: torch.Tensor    # [Q] whether there is a right chunk
    wrong: torch.Tensor   # [Q, C]
    weight: torch.Tensor  # [Q]

    @classmethod
    def of(cls, batch):
        B, R = batch["rows"].shape
        N = batch["chunk_keys"].shape[1]
        device = batch["rows"].device
        sequence_of_row = torch.arange(B, device=device).repeat_interleave(R)[:, None]
        sequence_of_chunk = torch.arange(B, device=device).repeat_interleave(N)
        index_of_chunk = torch.arange(N, device=device).repeat(B)
        current = (batch["rows"] // 256).flatten()[:, None]
        visible = (sequence_of_row != sequence_of_chunk) | (index_of_chunk < current)
        key = batch["row_key"].flatten()[:, None]
        same_key = torch.zeros_like(visible)
        for slot in batch["chunk_keys"].flatten(0, 1).unbind(-1):
            same_key |= key == slot
        chunk = batch["row_chunk"].flatten()
        told = chunk >= 0
        question = batch["row_question"]
        first = (question >= 0) & (question != F.pad(question[:, :-1], (1, 0), value=-1))
        weight = torch.where(batch["row_kind"] == NONE, NONE_WEIGHT, torch.where(first, FIRST_WEIGHT, 1.0)).flatten()
        return cls((sequence_of_row[:, 0] * N + chunk) * told, told, visible & ~(same_key & (key != 0)), weight)


def routing_loss(trace, targets, binary_share):
    """Mean over routed layers and heads of softmax (with a logit 0 for "no chunk") plus a share of binary cross-entropy.

    trace: (router, raw queries of rows [B,R,H,K], representatives [B,H,N,P,K]) of each routed layer.
    Returns the loss and {"found", "first", "false"}: shares of right chunks above theta = 0.1 and of right chunks that
    stand first, and the mean number of wrong chunks above theta, per row.
    """
    losses, found, first, false = [], [], [], []
    for router, queries, representatives in trace:
        logits = router.scores(queries.flatten(0, 1), representatives.transpose(0, 1).flatten(1, 2))
        right = logits.gather(-1, targets.right[None, :, None].expand(len(logits), -1, 1))[..., 0]
        wrong = logits.masked_fill(~targets.wrong, float("-inf"))
        others = F.softplus(wrong.logsumexp(-1))  # log(1 + sum of exp)
        softmax = torch.where(targets.told, F.softplus(others - right), others)
        binary = F.softplus(wrong).sum(-1) + F.softplus(-right) * targets.told
        losses.append(((softmax + binary_share * binary) * targets.weight).sum(-1) / targets.weight.sum())
        with torch.no_grad():
            told = targets.told.sum().clamp(min=1)
            found.append(((right > THETA_LOGIT) & targets.told).sum(-1) / told)
            first.append(((right > wrong.amax(-1)) & targets.told).sum(-1) / told)
            false.append((wrong > THETA_LOGIT).sum(-1).float().mean(-1))
    metrics = {"found": found, "first": first, "false": false}
    return torch.stack(losses).mean(), {name: torch.stack(values) for name, values in metrics.items()}


def budget_loss(gates):
    """Mean of (relu(sum of a row's gates - 3) / 3)^2; gates [..,R,N], 0 for chunks that are not closed."""
    return ((gates.sum(-1) - BUDGET).relu() / BUDGET).square().mean()


def support_loss(gates, current):
    """Mean of relu(k - 3)^2 over rows with more than 3 closed chunks, k = (sum of gates)^2 / sum of their squares.

    gates [B,G,R,N], current [B,R] the chunk of each row. Without such rows 0.
    """
    closed = torch.arange(gates.shape[-1], device=gates.device) < current[..., None]
    gates = gates.clamp(min=GATE_MIN) * closed[:, None]  # a row whose gates are all shut reads all alike little
    support = gates.sum(-1).square() / gates.square().sum(-1).clamp(min=GATE_MIN ** 2)
    chosen = (current > SUPPORT)[:, None].expand_as(support)
    return torch.where(chosen, (support - SUPPORT).relu(), 0.0).square().sum() / chosen.sum().clamp(min=1)
