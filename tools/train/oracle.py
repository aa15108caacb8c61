"""Gates given by the generator instead of the router, for the time before the router is any good."""

import torch

from training_data import TOLD


def given_gates(batch, chunks, generator):
    """[B,R,N]: 1 for the right chunk, often also for older versions of the fact, and 0 to 3 other chunks half open.

    The disturbing chunks are the same for all tokens of one answer, as false matches of a real router would be.
    """
    B, R = batch["rows"].shape
    device = batch["rows"].device
    seat = torch.where(batch["row_question"] >= 0, batch["row_question"], torch.arange(R, device=device))
    current = batch["rows"][..., None] // 256
    closed = torch.arange(chunks, device=device) < current

    def per_seat(shape):
        return torch.rand(shape, device=device, generator=generator).gather(1, seat[..., None].expand(-1, -1, shape[-1]))

    disturbing = per_seat((B, R, chunks)) < 3 * per_seat((B, R, 1)) ** 2 / current.clamp(min=1)
    gates = torch.where(disturbing, per_seat((B, R, chunks)), 0.0)
    older = batch["row_older"]
    opened = torch.where(older >= 0, (per_seat((B, R, older.shape[-1])) < 0.7).float(), 0.0)
    gates = gates.scatter_reduce(-1, older.clamp(min=0), opened, "amax")
    right = (batch["row_chunk"] >= 0) & (batch["row_kind"] == TOLD)
    gates = gates.scatter_reduce(-1, batch["row_chunk"].clamp(min=0)[..., None], right.float()[..., None], "amax")
    return gates * closed


def forced_rows(batch, share, generator):
    """[B,R]: rows that use the given gates; all rows of one answer together, each with probability `share`."""
    draws = torch.rand(batch["rows"].shape, device=batch["rows"].device, generator=generator)
    return torch.where(batch["row_question"] >= 0, draws.gather(1, batch["row_question"].clamp(min=0)), draws) < share
