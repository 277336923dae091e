"""GruM's cost against the number of nodes, beside the plain program and two bounds, as a table and a plot.

    python benchmarks/large_graphs.py [--largest 400] [--json] [--plot docs/images/cost-nodes.svg]

One graph a call, Planar's shape (8 layers, pair width 64), one thread, CPU seconds, least of three runs:

    plain      the definition followed layer by layer
    whole      the fast program with all pairs of a graph at a time
    blocked    the fast program as it is: pairs in blocks that stay in cache
    products   GFLOP of its matrix products / rate of a 1024 x 1024 product
    traffic    the pair state read and written once per layer / rate of copying 256 MB
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import networks
from isostep.network.fast import FastSettings
from output import show

SIZES = (16, 32, 64, 128, 200, 300, 400)
CASE = next(case for case in networks.CASES if case.name == "grum-planar")


def copying() -> float:
    """Bytes a CPU second, read and written, of a copy that no cache holds."""
    source = torch.zeros(2**26)
    target = torch.empty_like(source)
    return 2 * source.nbytes / networks.cpu_seconds(lambda: target.copy_(source), 5)


def programs() -> dict[str, Any]:
    network, backend = CASE.network(), FastSettings(networks.backends()[-1])
    whole, blocked = (CASE.family.fast_network(network, backend) for _ in range(2))
    folded: Any = whole.program(CASE.batch(1, 16)[0])
    ops = type("Whole", (type(folded.ops),), {"block": 2**62})()
    object.__setattr__(folded, "ops", ops)
    return {"plain": CASE.plain(network), "whole": whole, "blocked": blocked}


def measure(largest: int) -> list[dict[str, float]]:
    found, peak, rate = programs(), networks.roofline(), copying()
    return [at(n, found, peak, rate) for n in SIZES if n <= largest]


def at(n: int, found: dict[str, Any], peak: float, rate: float) -> dict[str, float]:
    """All columns for one graph of n nodes."""
    batch, row = CASE.batch(1, n), {"nodes": float(n)}
    for name, program in found.items():
        program(*batch)
        row[name] = networks.cpu_seconds(lambda program=program: program(*batch), 3, 6.0)
    row["products"] = networks.gflop(lambda: found["blocked"](*batch)) / peak
    row["traffic"] = 2 * 4 * CASE.params["hidden_dims"]["de"] * n * n * CASE.params["n_layers"] / rate
    return row


def draw(path: Path, rows: list[dict[str, float]]) -> None:
    names = [name for name in rows[0] if name != "nodes"]
    curves = {name: [1000 * row[name] for row in rows] for name in names}
    networks.draw(path, tuple(int(row["nodes"]) for row in rows), curves, "nodes (GruM, Planar network, one graph)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, help="an .svg file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rows = measure(options.largest)
    if options.plot:
        draw(options.plot, rows)
    show(rows, options.json)


if __name__ == "__main__":
    main()
