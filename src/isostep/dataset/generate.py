"""Seeded benchmark graphs, so that everything runs without files.

Planar: Delaunay triangulation of uniform points in the unit square. SBM: k communities, each pair of nodes joined with
p_in inside and p_out across. Community: two equal halves, G(n, p_in) each, joined by pairs with p_out, at least by one.
Graph number g of a seed depends on (seed, g) alone, so a longer set begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isostep.base.errors import InputError
from isostep.base.progress import progress
from isostep.item.graph import Graph

Range = int | tuple[int, int]


def generate_planar(count: int, nodes: Range = 64, seed: int = 0) -> list[Graph]:
    """Delaunay graphs of `nodes` points: one number, or the least and the most."""
    from scipy.spatial import Delaunay

    least, most = _range(nodes, "nodes", least=3)

    def one(rng: np.random.Generator) -> Graph:
        n = int(rng.integers(least, most + 1))
        triangles = Delaunay(rng.random((n, 2))).simplices
        return Graph.of(n, triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2))

    return _repeat(one, count, seed)


def generate_sbm(
    count: int,
    seed: int = 0,
    communities: Range = (2, 5),
    sizes: Range = (20, 40),
    p_in: float = 0.3,
    p_out: float = 0.005,
) -> list[Graph]:
    """Stochastic block model; nodes of one community are numbered one after another."""
    fewest, most = _range(communities, "communities", least=1)
    smallest, largest = _range(sizes, "sizes", least=1)
    _probability(p_in, "p_in")
    _probability(p_out, "p_out")

    def one(rng: np.random.Generator) -> Graph:
        lengths = rng.integers(smallest, largest + 1, size=rng.integers(fewest, most + 1))
        block = np.repeat(np.arange(len(lengths)), lengths)
        i, j = np.triu_indices(len(block), 1)
        joined = rng.random(len(i)) < np.where(block[i] == block[j], p_in, p_out)
        return Graph.of(len(block), np.stack([i[joined], j[joined]], 1))

    return _repeat(one, count, seed)


def generate_community(
    count: int,
    seed: int = 0,
    halves: Range = (6, 10),
    p_in: float = 0.7,
    p_out: float = 0.01,
    fixed_blocks: bool = False,
) -> list[Graph]:
    """Two communities of equal size. `fixed_blocks`: all graphs of one size share their halves.

    The published community-small graphs are of that kind (halves = G(n, .7) of networkx with seeds 0 and 1).
    """
    import networkx

    smallest, largest = _range(halves, "halves", least=1)
    _probability(p_in, "p_in")
    _probability(p_out, "p_out")

    def half(size: int, number: int, rng: np.random.Generator) -> np.ndarray:
        while True:
            seed = number if fixed_blocks else int(rng.integers(2**31))
            graph = networkx.gnp_random_graph(size, p_in, seed=seed)
            if fixed_blocks or networkx.is_connected(graph):
                return np.array(graph.edges, np.int64).reshape(-1, 2)

    def one(rng: np.random.Generator) -> Graph:
        size = int(rng.integers(smallest, largest + 1))
        across = np.argwhere(rng.random((size, size)) < p_out)
        if not len(across):
            across = np.zeros((1, 2), np.int64)
        across[:, 1] += size
        return Graph.of(2 * size, np.concatenate([half(size, 0, rng), half(size, 1, rng) + size, across]))

    return _repeat(one, count, seed)


def _repeat(one: Callable[[np.random.Generator], Graph], count: int, seed: int) -> list[Graph]:
    if count < 0 or seed < 0:
        raise InputError(f"count and seed must not be negative, got count {count} and seed {seed}")
    made = []
    with progress("generating", count, "graphs") as task:
        for g in range(count):
            made.append(one(np.random.default_rng([seed, g])))
            task()
    return made


def _range(value: Range, name: str, least: int) -> tuple[int, int]:
    low, high = (value, value) if isinstance(value, int) else value
    if not least <= low <= high:
        raise InputError(f"{name} must be a number or (low, high) with {least} <= low <= high, got {value!r}")
    return low, high


def _probability(value: float, name: str) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} must be a probability from 0 to 1, got {value!r}")
