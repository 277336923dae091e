"""Four statistics of a graph, each a vector that the MMDs compare.

degree      counts of the degrees 0..max
clustering  counts of the local clustering 2 t_i / (d_i (d_i - 1)) in 100 bins on [0, 1]; 0 where d_i < 2
orbit       mean over the nodes of the 15 orbit counts (orbits.py), not a histogram
spectral    counts of the eigenvalues of I - D^-1/2 A D^-1/2 (an isolated node: 0) in 200 bins on [-1e-5, 2]
spectral_clipped  the same with the eigenvalue 2 always inside

Rounding puts some eigenvalues 2 (of bipartite parts) just outside the range, where no bin counts them. The peers'
numbers have this in them; so `spectral` has it too, with the peers' products and LAPACK driver, for the same rounding.
`spectral_clipped` depends neither on the order of the nodes nor on LAPACK.

Every vector is defined for every graph with at least one node, connected or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from scipy.linalg import eigvalsh

from isostep.item.graph import Graph
from isostep.metric.orbits import orbit_counts, triangles

Statistic = Literal["degree", "clustering", "orbit", "spectral", "spectral_clipped"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)

CLUSTERING_BINS = 100
SPECTRAL_BINS = 200
SPECTRAL_RANGE = (-1e-5, 2.0)
ENTRIES_AT_ONCE = 1 << 22  # of stacked adjacency matrices


def describe(graphs: Sequence[Graph], statistic: Statistic) -> np.ndarray:
    """One row per graph (all with at least one node), padded with zeros to a common width."""
    return _TABLES[statistic](graphs)


def _degree(graphs: Sequence[Graph]) -> np.ndarray:
    counts = [np.bincount(np.bincount(graph.edges.ravel(), minlength=graph.n)) for graph in graphs]
    table = np.zeros((len(graphs), max(map(len, counts), default=0)), np.int64)
    for row, count in zip(table, counts, strict=True):
        row[: len(count)] = count
    return table


def _clustering(graphs: Sequence[Graph]) -> np.ndarray:
    table = np.zeros((len(graphs), CLUSTERING_BINS), np.int64)
    for places, a in _stacks(graphs):
        d = a.sum(-1)
        pairs = np.maximum(d * (d - 1), 1)  # no triangle where d < 2, so the quotient is 0 there
        table[places] = _histograms(2 * triangles(a) / pairs, CLUSTERING_BINS, (0.0, 1.0))
    return table


def _orbit(graphs: Sequence[Graph]) -> np.ndarray:
    return np.array([orbit_counts(graph.adjacency()).mean(0) for graph in graphs]).reshape(-1, 15)


def _spectral(graphs: Sequence[Graph], clip: bool = False) -> np.ndarray:
    table = np.zeros((len(graphs), SPECTRAL_BINS), np.int64)
    for places, a in _stacks(graphs):
        d = a.sum(-1)
        root = np.divide(1, np.sqrt(d), out=np.zeros_like(d), where=d > 0)
        nodes = np.arange(a.shape[1])
        a *= -root[:, None, :]
        a *= root[:, :, None]
        a[:, nodes, nodes] = d * root * root  # a is the Laplacian now
        eigenvalues = np.stack([eigvalsh(laplacian, overwrite_a=True, check_finite=False) for laplacian in a])
        if clip:
            eigenvalues = eigenvalues.clip(*SPECTRAL_RANGE)
        table[places] = _histograms(eigenvalues, SPECTRAL_BINS, SPECTRAL_RANGE)
    return table


_TABLES: dict[Statistic, Callable[[Sequence[Graph]], np.ndarray]] = {
    "degree": _degree,
    "clustering": _clustering,
    "orbit": _orbit,
    "spectral": _spectral,
    "spectral_clipped": lambda graphs: _spectral(graphs, clip=True),
}


def _stacks(graphs: Sequence[Graph]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Adjacency matrices of graphs of one size at a time, with their places among `graphs`."""
    sizes = np.array([graph.n for graph in graphs], int)
    for n in np.unique(sizes):
        places = np.flatnonzero(sizes == n)
        for chunk in np.array_split(places, -(-len(places) * n * n // ENTRIES_AT_ONCE)):
            edges = [graphs[place].edges for place in chunk]
            which = np.repeat(np.arange(len(chunk)), [len(part) for part in edges])
            i, j = np.concatenate(edges).T
            a = np.zeros((len(chunk), n, n))
            a[which, i, j] = a[which, j, i] = 1
            yield chunk, a


def _histograms(values: np.ndarray, bins: int, bounds: tuple[float, float]) -> np.ndarray:
    """`numpy.histogram` of every row: half-open bins, the last one closed, values outside left out."""
    edges = np.linspace(*bounds, bins + 1)
    place = np.searchsorted(edges, values, side="right") - 1
    place[values == edges[-1]] = bins - 1
    row, _ = np.nonzero(inside := (place >= 0) & (place < bins))
    return np.bincount(row * bins + place[inside], minlength=len(values) * bins).reshape(-1, bins)
