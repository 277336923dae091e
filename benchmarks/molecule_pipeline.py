"""Decoding 10,000 QM9-sized molecules: seconds by number of molecules (nothing quadratic).

    python benchmarks/molecule_pipeline.py [--json] [--molecules 10000]

Tensors are random chains with rings, double bonds and some atoms over their valence, so that the correction runs too.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from isostep.item.decoding import decode
from isostep.item.encoding import MoleculeSpec

SPEC = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9)


def molecules(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    nodes = SPEC.max_nodes
    kind = torch.multinomial(torch.tensor([0.75, 0.1, 0.13, 0.02]), count * nodes, True, generator=generator)
    x = torch.nn.functional.one_hot(kind.view(count, nodes), 4).float()
    chance = torch.rand(count, nodes, nodes, generator=generator)
    order = torch.where(torch.rand(count, nodes, nodes, generator=generator) < 0.15, 2.0, 1.0)
    linked = (chance < 0.08) | torch.eye(nodes).roll(1, 0).bool()
    lower = (linked * order).tril(-1) / SPEC.scale
    return x, lower + lower.mT, torch.ones(count, nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--molecules", type=int, default=10_000)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    x, a, mask = molecules(options.molecules)
    alone = []
    for count in (options.molecules // 4, options.molecules):
        start = time.process_time()
        alone = decode(x[:count], a[:count], mask[:count], SPEC)
        seconds = time.process_time() - start
        rows.append({"molecules": count, "cpu_seconds": seconds, "us_each": seconds / count * 1e6})
    valid = sum(m.valid for m in alone) / len(alone)
    if options.json:
        print(json.dumps({"rows": rows, "valid": valid}))
        return
    for row in rows:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    print(f"valid before correction: {valid:.3f}")


if __name__ == "__main__":
    main()
