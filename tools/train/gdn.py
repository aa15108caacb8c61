"""Gated delta rule over whole chunks, in matrix form.

A chunk maps the state before it to the state after it: S_end = A S_start + B. Each chunk starts here from nothing, so
all chunks of all sequences are computed at once, and what a token reads splits in two: o = local + read @ S_start.
Shapes: M chunks, H heads, C tokens, K = width of keys, V of values (the demo model's are equal); everything float32.
"""

import torch
import torch.nn.functional as F

PIECE = 64  # tokens solved at once inside a chunk


class UnitLowerInverse(torch.autograd.Function):
    """(I + L)^-1 for strictly lower triangular L [..., P, P]."""

    @staticmethod
    def forward(ctx, lower):
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
        inverse = torch.linalg.solve_triangular(lower + eye, eye.expand_as(lower), upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        transposed = inverse.mT
        return -(transposed @ grad @ transposed).tril(-1)


def chunk_transitions(q, k, v, beta, g):
    """q, k [M,H,C,K] (q scaled), v [M,H,C,V], beta and log decay g [M,H,C] -> local [M,H,C,V], read [M,H,C,K], carry [M,H,K,V+K].

    carry is [B | A]: what the chunk adds, and what it leaves of the state before it.
    """
    M, H, C, K = q.shape
    V = v.shape[-1]
    pieces = (M, H, C // PIECE, PIECE)
    q, k, v = (x.view(*pieces, x.shape[-1]) for x in (q, k, v))
    beta, decay = beta.view(pieces), g.view(pieces).cumsum(-1)
    causal = torch.ones(PIECE, PIECE, dtype=torch.bool, device=q.device).tril()
    pair_decay = (decay[..., :, None] - decay[..., None, :]).masked_fill(~causal, float("-inf")).exp()

    lower = ((k @ k.mT) * pair_decay * beta[..., None]).tril(-1)
    inverse = UnitLowerInverse.apply(lower)
    added = inverse @ (beta[..., None] * v)
    erased = inverse @ ((beta * decay.exp())[..., None] * k)
    scores = (q @ k.mT) * pair_decay
    q_decayed = q * decay.exp()[..., None]
    k_kept = (k * (decay[..., -1:] - decay).exp()[..., None]).mT
    piece_decay = decay[..., -1].exp()[..., None, None]

    eye = torch.eye(K, dtype=q.dtype, device=q.device)
    carry = torch.cat([eye.new_zeros(K, V), eye], -1).expand(M, H, K, V + K)
    outputs = []
    for added_p, erased_p, q_p, scores_p, decay_p, k_p in zip(*(x.unbind(2) for x in (added, erased, q_decayed, scores, piece_decay, k_kept))):
        fresh = F.pad(added_p, (0, K)) - erased_p @ carry
        outputs.append(q_p @ carry + scores_p @ fresh)
        carry = decay_p * carry + k_p @ fresh
    local, read = torch.cat(outputs, 2).split([V, K], -1)
    return local, read, carry
