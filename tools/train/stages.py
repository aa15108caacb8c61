"""The stages of the recipe. Each goes on from the weights and the optimiser of the one before."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    seconds: float       # of one GPU; several share them
    tokens: int          # length of a sample
    batch: int           # samples a step and GPU
    rate: tuple          # share of the full learning rate at start and end
    oracle: tuple        # share of answers read through given gates, at start and end
    pages_max: int = 8   # cap on the router's gates
    theta: float = 0.0   # threshold on the router's gates
    all_rows: bool = False  # whether every token reads through its own gates, or only the labelled rows
    filler: float = 1.0     # of the usual pasted text
    binary_share: float = 0.05  # of the binary loss beside the softmax of routing


STAGES = {
    "short": Stage(seconds=400, tokens=1024, batch=64, rate=(1.0, 1.0), oracle=(1.0, 0.3), filler=0.25),
    "middle": Stage(seconds=1130, tokens=4096, batch=16, rate=(1.0, 0.5), oracle=(0.3, 0.0), pages_max=6, filler=0.25, binary_share=0.1),
    "long": Stage(seconds=880, tokens=8192, batch=8, rate=(0.5, 0.0), oracle=(0.0, 0.0), pages_max=16, theta=0.1, all_rows=True, filler=0.6, binary_share=0.3),
    "again": Stage(seconds=640, tokens=4096, batch=16, rate=(0.5, 0.3), oracle=(0.0, 0.0), pages_max=8, filler=0.25, binary_share=0.1),
    "last": Stage(seconds=490, tokens=8192, batch=8, rate=(0.3, 0.0), oracle=(0.0, 0.0), pages_max=16, theta=0.1, all_rows=True, filler=0.6, binary_share=0.3),
}
