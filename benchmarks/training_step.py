"""A training step of GruM: the fused layers, in float32 and with products in bfloat16, against the plain program; and
how far their gradients are apart.

    python benchmarks/training_step.py [--json]
    python benchmarks/training_step.py --preset grum-qm9 [--json]

Processor seconds of forward, loss and backward, least of a few, one thread, the same batch for both;
`products_seconds`: what its matrix products alone would take at the rate of a large one in float32. With a preset:
whole steps of it (examples, gradients, optimizer, averaged weights) by both optimizers and precisions in turn, each
beside the preset's own.
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

from benchmarks.networks import CASES, Case, gflop, roofline
from benchmarks.output import show

from isostep.network.grum.fused import FusedGrum
from isostep.training.config import check_config, load_config
from isostep.training.presets import find
from isostep.training.trainer import Trainer

SIZES = {"grum-qm9": 64, "grum-planar": 2}  # graphs of a batch
PRECISIONS = ("float32", "bfloat16")


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
        "products_seconds": gflop(lambda: step(plain, weights, batch)) / roofline(),
        "gradients_apart": apart("fused"),
        "bfloat16_seconds": best["half"],
        "bfloat16_ratio": best["plain"] / best["half"],
        "bfloat16_gradients_apart": apart("half"),
    }


def measure_preset(name: str, repeats: int = 6) -> list[dict]:
    config = load_config(find(name))
    data = config.training.load(config.data)

    def trainer(kind: str, precision: str) -> Trainer:
        plain = config.model_dump()
        plain["optimizer"]["kind"], plain["run"]["precision"] = kind, precision
        return Trainer(check_config(plain, name), data)

    arms = {(kind, precision): trainer(kind, precision) for kind in ("adamw", "muon") for precision in PRECISIONS}
    seconds: dict[tuple[str, str], list[float]] = {arm: [] for arm in arms}
    for _ in range(repeats):  # in turn, so that other programs slow all of them
        for arm, each in arms.items():
            began = time.process_time()
            each.step()
            seconds[arm].append(time.process_time() - began)
    own = min(seconds[config.optimizer.kind, config.run.precision])
    return [
        {"optimizer": kind, "precision": precision, "seconds": min(found), "to_preset": min(found) / own}
        for (kind, precision), found in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.preset:
        found = measure_preset(options.preset)
    else:
        found = [measure(case, SIZES[case.name]) for case in CASES if case.name in SIZES]
    show(found, options.json)


if __name__ == "__main__":
    main()
