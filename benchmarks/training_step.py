"""A training step of GruM: the fused layers, in float32 and with products in bfloat16, against the plain program; and
how far their gradients are apart.

    python benchmarks/training_step.py [--json]

Processor seconds of forward, loss and backward, least of a few, one thread, the same batch for both.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.networks import CASES, Case
from benchmarks.output import show

from isostep.network.grum.fused import FusedGrum

SIZES = {"grum-qm9": 64, "grum-planar": 2}  # graphs of a batch


def step(network: nn.Module, weights: list[nn.Parameter], batch: tuple[Tensor, ...]) -> tuple[float, list[Tensor]]:
    began = time.process_time()
    out = network(*batch)
    found = torch.autograd.grad(out[0].square().mean() + out[1].square().mean(), weights, allow_unused=True)
    seconds = time.process_time() - began
    return seconds, [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


def measure(case: Case, graphs: int, repeats: int = 4) -> dict:
    plain: Any = case.network()  # in evaluation: without dropout, so that both have the same gradients
    x, adj, mask, t = case.batch(graphs)
    weights, batch = list(plain.parameters()), (x, adj, mask.float(), t)
    runs = {name: [step(net, weights, batch) for _ in range(repeats)] for name, net in
            (("plain", plain), ("fused", FusedGrum(plain)), ("half", FusedGrum(plain, half=True)))}  # fmt: skip
    best = {name: min(seconds for seconds, _ in each) for name, each in runs.items()}
    gradients = {name: each[-1][1] for name, each in runs.items()}
    size = max(float(gradient.norm()) for gradient in gradients["plain"])

    def apart(name: str) -> float:
        return max(float((a - b).norm()) for a, b in zip(gradients["plain"], gradients[name], strict=True)) / size

    return {
        "case": case.name,
        "graphs": graphs,
        "plain_seconds": best["plain"],
        "fused_seconds": best["fused"],
        "ratio": best["plain"] / best["fused"],
        "gradients_apart": apart("fused"),
        "bfloat16_seconds": best["half"],
        "bfloat16_ratio": best["plain"] / best["half"],
        "bfloat16_gradients_apart": apart("half"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(case, SIZES[case.name]) for case in CASES if case.name in SIZES]
    show(found, options.json)


if __name__ == "__main__":
    main()
