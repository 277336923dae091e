"""Graph MMD^2 as it is written down: networkx for the statistics, one kernel value per ordered pair of graphs."""

from __future__ import annotations

from itertools import combinations
from math import exp, sqrt

import networkx
import numpy as np

SIGMA = {"degree": 1.0, "clustering": 0.1, "orbit": 30.0, "spectral": 1.0}
WIDTH = {"degree": 1.0, "clustering": 0.01, "spectral": 1.0}

Vector = list[float]


def mmd(a: list[networkx.Graph], b: list[networkx.Graph], statistic: str, kernel: str) -> float:
    """mean k(a, a') + mean k(b, b') - 2 mean k(a, b), all pairs."""
    x, y = ([describe(graph, statistic) for graph in graphs] for graphs in (a, b))
    return _mean(x, x, statistic, kernel) + _mean(y, y, statistic, kernel) - 2 * _mean(x, y, statistic, kernel)


def _mean(xs: list[Vector], ys: list[Vector], statistic: str, kernel: str) -> float:
    total = 0.0
    for x in xs:
        for y in ys:
            total += exp(-(distance(x, y, statistic, kernel) ** 2) / (2 * SIGMA[statistic] ** 2))
    return total / (len(xs) * len(ys))


def distance(x: Vector, y: Vector, statistic: str, kernel: str) -> float:
    width = max(len(x), len(y))
    x, y = (v + [0.0] * (width - len(v)) for v in (x, y))
    if kernel == "tv":
        return sum(abs(p - q) for p, q in zip(x, y, strict=True)) / 2
    if statistic == "orbit":
        return sqrt(sum((p - q) ** 2 for p, q in zip(x, y, strict=True)))
    return earth_movers(x, y) * WIDTH[statistic]


def earth_movers(x: Vector, y: Vector) -> float:
    """Carry the mass of x to y, always from the leftmost pile to the leftmost hole, which is optimal on a line."""
    piles, holes = ([[place, mass] for place, mass in enumerate(v) if mass > 0] for v in (x, y))
    cost, i, j = 0.0, 0, 0
    while i < len(piles) and j < len(holes):
        moved = min(piles[i][1], holes[j][1])
        cost += moved * abs(piles[i][0] - holes[j][0])
        piles[i][1] -= moved
        holes[j][1] -= moved
        i += piles[i][1] <= 1e-15
        j += holes[j][1] <= 1e-15
    return cost


def describe(graph: networkx.Graph, statistic: str) -> Vector:
    if statistic == "orbit":
        return np.mean(orbits(graph), axis=0).tolist()
    if statistic == "degree":
        counts = networkx.degree_histogram(graph)
    elif statistic == "clustering":
        counts = np.histogram(list(networkx.clustering(graph).values()), bins=100, range=(0, 1))[0]
    else:
        spectrum = networkx.normalized_laplacian_spectrum(graph).clip(0, 2)  # it lies there, but for rounding
        counts = np.histogram(spectrum, bins=200, range=(-1e-5, 2))[0]
    return [count / sum(counts) for count in counts]


# The orbit of a node in a connected graph of 2 to 4 nodes, by the sorted degrees of the graph and the node's degree.
ORBIT = {
    ((1, 1), 1): 0,
    ((1, 1, 2), 1): 1,
    ((1, 1, 2), 2): 2,
    ((2, 2, 2), 2): 3,
    ((1, 1, 2, 2), 1): 4,
    ((1, 1, 2, 2), 2): 5,
    ((1, 1, 1, 3), 1): 6,
    ((1, 1, 1, 3), 3): 7,
    ((2, 2, 2, 2), 2): 8,
    ((1, 2, 2, 3), 1): 9,
    ((1, 2, 2, 3), 2): 10,
    ((1, 2, 2, 3), 3): 11,
    ((2, 2, 3, 3), 2): 12,
    ((2, 2, 3, 3), 3): 13,
    ((3, 3, 3, 3), 3): 14,
}


def orbits(graph: networkx.Graph) -> list[list[int]]:
    """Look at every set of 2 to 4 nodes."""
    counts = {node: [0] * 15 for node in graph}
    for size in (2, 3, 4):
        for nodes in combinations(graph, size):
            part = graph.subgraph(nodes)
            if networkx.is_connected(part):
                degrees = dict(part.degree)
                shape = tuple(sorted(degrees.values()))
                for node, degree in degrees.items():
                    counts[node][ORBIT[shape, degree]] += 1
    return [counts[node] for node in graph]
