"""Time of the EMD MMDs (degree, clustering, spectral) of 128 graphs against 40, statistics included.

`python benchmarks/graph_metrics.py [--json]` compares them, in one run, with the pairwise program in tests/oracles
(one kernel value per ordered pair, networkx for the statistics) on planar graphs of 64 nodes, in process time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # process time adds up the time of waiting threads
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests.oracles is not installed

import numpy as np
from scipy.spatial import Delaunay
from tests.oracles import mmd_pairwise

from isostep.item.graph import Graph
from isostep.metric.graph_statistics import Statistic
from isostep.metric.mmd import GraphMMD

STATISTICS: tuple[Statistic, ...] = ("degree", "clustering", "spectral")


def planar_graph(rng: np.random.Generator, n: int = 64) -> Graph:
    triangles = Delaunay(rng.random((n, 2))).simplices
    return Graph.of(n, np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]))


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """Value and process time in seconds."""
    start = time.process_time()
    value = work()
    return value, time.process_time() - start


def compare(generated: int = 128, reference: int = 40, seed: int = 0) -> dict:
    """Seconds and ratio per statistic and in all, and the largest difference of the values."""
    rng = np.random.default_rng(seed)
    ours = [planar_graph(rng) for _ in range(generated)]
    theirs = [planar_graph(rng) for _ in range(reference)]
    one, other = ([graph.to_networkx() for graph in graphs] for graphs in (ours, theirs))
    weights = np.full(generated, 1 / generated)
    rows = {}
    for name in STATISTICS:
        metric = GraphMMD(name, "emd")
        metric.prepare(ours[:2], theirs[:2])  # lazy imports are not what is timed
        value, seconds = timed(lambda metric=metric: metric.prepare(ours, theirs)(weights))
        expected, oracle_seconds = timed(lambda name=name: mmd_pairwise.mmd(one, other, name, "emd"))
        rows[name] = {"seconds": seconds, "pairwise_seconds": oracle_seconds, "difference": abs(value - expected)}
    totals = {key: sum(row[key] for row in rows.values()) for key in ("seconds", "pairwise_seconds")}
    rows["all"] = totals | {"difference": max(row["difference"] for row in rows.values())}
    for row in rows.values():
        row["ratio"] = row["pairwise_seconds"] / row["seconds"]
    return {"generated": generated, "reference": reference, "statistics": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", type=int, default=128)
    parser.add_argument("--reference", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = compare(arguments.generated, arguments.reference)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{arguments.generated} graphs against {arguments.reference}, EMD kernel, process time")
    print(f"{'statistic':<12}{'seconds':>10}{'pairwise':>10}{'ratio':>8}{'difference':>12}")
    for name, row in result["statistics"].items():
        print(
            f"{name:<12}{row['seconds']:>10.3f}{row['pairwise_seconds']:>10.2f}{row['ratio']:>8.0f}{row['difference']:>12.1e}"
        )


if __name__ == "__main__":
    main()
