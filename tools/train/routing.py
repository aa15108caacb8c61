"""Query-routed history: representatives of chunks, gates of tokens over chunks, and the backward read.

Shapes: B sequences, N chunks, P = 16 representatives a chunk, H heads, R rows (tokens that may read history), K width, V of values.
"""

import math

import torch
from torch import nn

WINDOW = 16  # tokens pooled into one representative


class Router(nn.Module):
    """Scores tokens against chunks; per head y = W x, queries and keys are the raw projections before the convolution."""

    def __init__(self, heads, width, bias):
        super().__init__()
        eye = torch.eye(width).repeat(heads, 1, 1)
        self.q = nn.Parameter(eye.clone())
        self.pool_k = nn.Parameter(torch.randn(heads, width, width) * 0.5 * width ** -0.5)
        self.pool_v = nn.Parameter(eye.clone())
        self.pool_o = nn.Parameter(eye.clone())
        self.bias = nn.Parameter(torch.full((heads,), float(bias)))

    def representatives(self, k_raw):
        """k_raw [B, N*256, H, K] -> [B, H, N, P, K]: one per window, a mean of self-attention inside the window."""
        B, T, H, K = k_raw.shape
        windows = k_raw.view(B, T // WINDOW, WINDOW, H, K).permute(0, 3, 1, 2, 4)
        representatives = pool(windows, self.pool_k) @ (self.pool_o @ self.pool_v).mT
        return representatives.view(B, H, T // 256, 256 // WINDOW, K)

    def scores(self, q_raw, representatives):
        """Logits of the gates: q_raw [.., R, H, K] and representatives [.., H, N, P, K] -> [.., H, R, N]."""
        K = q_raw.shape[-1]
        queries = q_raw.transpose(-2, -3) @ self.q.mT
        pairs = queries @ (representatives.flatten(-3, -2) * K ** -0.5).mT
        pairs = pairs.unflatten(-1, representatives.shape[-3:-1])
        score = pairs.logsumexp(-1) - math.log(pairs.shape[-1])
        return score + self.bias[:, None, None]


def pool(windows, projection):
    """windows [B,H,P,16,K] -> [B,H,P,K]: mean over the tokens of self-attention whose queries and keys are one projection."""
    keys = windows @ projection.mT[:, None]
    weights = (keys @ keys.mT * keys.shape[-1] ** -0.5).softmax(-1)
    return (weights.mean(-2, keepdim=True) @ windows).squeeze(-2)


def cap_gates(gates, pages_max):
    """Keeps the pages_max largest gates of each row [..., N]; among equals the newer chunk, the last, wins."""
    if gates.shape[-1] <= pages_max:
        return gates
    order = gates.detach().flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :pages_max]
    kept = torch.zeros_like(gates).scatter_(-1, gates.shape[-1] - 1 - order, 1.0)
    return gates * kept


def routed_read(read, carry, gates):
    """Reads history newest to oldest with row vectors: read [B,H,R,K], carry [B,N,H,K,V+K], gates [B,H,R,N] -> [B,H,R,V].

    A chunk with gate w gives S' = [(1-w) I + w A] S + w B; a gate of 0 leaves the row as it was.
    """
    if not torch.is_grad_enabled():  # only rows with a gate open, which are few once theta holds
        opened = (gates > 0).any(-1).flatten(0, 1).any(0).nonzero()[:, 0]
        total = _nothing_read(read, carry)
        total[:, :, opened] = _read_rows(read[:, :, opened], carry, gates[:, :, opened])
        return total
    return _read_rows(read, carry, gates)


def _nothing_read(read, carry):
    return read.new_zeros(*read.shape[:-1], carry.shape[-1] - read.shape[-1])


def _read_rows(read, carry, gates):
    total = _nothing_read(read, carry)
    for chunk, gate in zip(reversed(carry.unbind(1)), reversed(gates.unbind(-1))):
        total, read = pass_chunk(total, read, read @ chunk, gate[..., None])
    return total


def pass_chunk(total, read, through, gate):
    """through = [what the chunk adds | what it leaves of the row], weighted by its gate."""
    added, left = through.split([total.shape[-1], read.shape[-1]], -1)
    return total + gate * added, read + gate * (left - read)
