"""Metrics of geometry on real molecules, and on real molecules with noise: near perfect, then worse step by step.

python benchmarks/geometry.py [--count 1000]      needs the dataset qm9-3d (isostep[data])
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from isostep.dataset import load
from isostep.dataset.conformers import conformers
from isostep.item import Conformer
from isostep.metric.conformers import CONFORMER_METRICS
from isostep.metric.suite import load_reference


def shaken(items: list[Conformer], std: float) -> list[Conformer]:
    rng, out = np.random.default_rng(0), []
    for item in items:
        points = np.array(item.positions) + std * rng.standard_normal((len(item.atoms), 3))
        out.append(replace(item, positions=tuple((x, y, z) for x, y, z in points.tolist())))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="test molecules")
    count = parser.parse_args().count
    reference, items = load_reference("qm9-3d"), conformers(load("qm9-3d"), "test", count)
    weights = np.full(len(items), 1 / len(items))
    print("| noise, Å | " + " | ".join(metric.name for metric in CONFORMER_METRICS) + " |")
    print("|---|" + "---:|" * len(CONFORMER_METRICS))
    for std in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        noisy = shaken(items, std)
        values = (metric.prepare(noisy, reference)(weights) for metric in CONFORMER_METRICS)
        print(f"| {std} | " + " | ".join(f"{value:.4g}" for value in values) + " |", flush=True)


if __name__ == "__main__":
    main()
