"""Four statistics of a graph, each a vector that the MMDs compare.

degree      counts of the degrees 0..max
clustering  counts of the local clustering 2 t_i / (d_i (d_i - 1)) in 100 bins on [0, 1]; 0 where d_i < 2
orbit       mean over the nodes of the 15 orbit counts (orbits.py), not a histogram
spectral    counts of the eigenvalues of I - D^-1/2 A D^-1/2 (an isolated node: 0) in 200 bins on [-1e-5, 2]
spectral_clipped  the same with the eigenvalue 2 always inside

Every vector is defined for every graph with at least one node, connected or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
from scipy.linalg import eigvalsh

from isostep.graph import Graph
from isostep.metric.orbits import orbit_counts, triangles

Statistic = Literal["degree", "clustering", "orbit", "spectral", "spectral_clipped"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)

CLUSTERING_BINS = 100
SPECTRAL_BINS = 200
SPECTRAL_RANGE = (-1e-5, 2.0)


def degree(graph: Graph) -> np.ndarray:
    return np.bincount(_degrees(graph))


def clustering(graph: Graph) -> np.ndarray:
    d = _degrees(graph)
    pairs = np.maximum(d * (d - 1), 1)  # no triangle where d < 2, so the quotient is 0 there
    return np.histogram(2 * triangles(graph.adjacency()) / pairs, CLUSTERING_BINS, (0, 1))[0]


def orbit(graph: Graph) -> np.ndarray:
    return orbit_counts(graph.adjacency()).mean(0)


def spectral(graph: Graph) -> np.ndarray:
    """Rounding puts some eigenvalues 2 (of bipartite parts) just outside the range, where no bin counts them. The
    peers' numbers have this in them, so the rounding is theirs too: the same products, the same LAPACK driver."""
    return np.histogram(_spectrum(graph), SPECTRAL_BINS, SPECTRAL_RANGE)[0]


def spectral_clipped(graph: Graph) -> np.ndarray:
    """The spectral statistic with every eigenvalue 2 in the last bin: no dependence on node order or LAPACK."""
    return np.histogram(np.clip(_spectrum(graph), *SPECTRAL_RANGE), SPECTRAL_BINS, SPECTRAL_RANGE)[0]


def _spectrum(graph: Graph) -> np.ndarray:
    a = graph.adjacency()
    d = a.sum(1)
    root = np.divide(1, np.sqrt(d), out=np.zeros_like(d), where=d > 0)
    return eigvalsh(root[:, None] * ((np.diag(d) - a) * root), check_finite=False)


def _degrees(graph: Graph) -> np.ndarray:
    return np.bincount(graph.edges.ravel(), minlength=graph.n)


_FUNCTIONS: dict[Statistic, Callable[[Graph], np.ndarray]] = {
    "degree": degree,
    "clustering": clustering,
    "orbit": orbit,
    "spectral": spectral,
    "spectral_clipped": spectral_clipped,
}


def describe(graphs: Sequence[Graph], statistic: Statistic) -> np.ndarray:
    """One row per graph (all with at least one node), padded with zeros to a common width."""
    rows = [_FUNCTIONS[statistic](graph) for graph in graphs]
    table = np.zeros((len(rows), max(map(len, rows), default=0)), rows[0].dtype if rows else float)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table
