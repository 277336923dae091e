"""Orbit counts of the graphlets with 2 to 4 nodes, per node, in closed form.

From the adjacency matrix A follow the degrees d = A1, the common neighbours c = A A, the triangles
t_i = 1/2 sum_j A_ij c_ij and, per edge, the number of 4-cliques. Each sum below counts the places N of node i in
subgraphs that need not be induced; since a subgraph with more edges contains the ones with fewer, a triangular
inversion from the clique downwards gives the induced counts o.

Orbits are numbered as by Przulj (2007): 0 edge; 1, 2 end and middle of the 3-path; 3 triangle; 4, 5 end and inner of
the 4-path; 6, 7 leaf and centre of the star; 8 4-cycle; 9, 10, 11 leaf, far and near triangle node of the paw;
12, 13 nodes of degree 2 and 3 of the diamond; 14 4-clique.
"""

from __future__ import annotations

import numpy as np

EDGES_AT_ONCE = 4096  # bounds the memory of the clique count at this many rows of n numbers


def _choose2(x: np.ndarray) -> np.ndarray:
    return x * (x - 1) / 2


def triangles(adjacency: np.ndarray) -> np.ndarray:
    """Triangles through each node: 0/1 matrices (..., n, n) -> (..., n)."""
    return (adjacency * (adjacency @ adjacency)).sum(-1) / 2


def cliques4(adjacency: np.ndarray) -> np.ndarray:
    """4-cliques through each node: for an edge (i, j), the edges among the common neighbours of i and j."""
    found = np.zeros(len(adjacency))
    first, second = np.nonzero(np.triu(adjacency))
    for start in range(0, len(first), EDGES_AT_ONCE):
        i, j = first[start : start + EDGES_AT_ONCE], second[start : start + EDGES_AT_ONCE]
        common = adjacency[i] * adjacency[j]
        per_edge = ((common @ adjacency) * common).sum(1) / 2
        found += np.bincount(i, per_edge, len(found)) + np.bincount(j, per_edge, len(found))
    return found / 3  # a clique holds three edges at each of its nodes


def orbit_counts(adjacency: np.ndarray) -> np.ndarray:
    """Counts (n, 15) of a symmetric 0/1 matrix (n, n) with zero diagonal, as whole numbers in float64."""
    a = np.asarray(adjacency, np.float64)
    d = a.sum(1)
    c = a @ a
    np.fill_diagonal(c, 0)
    shared = a * c
    t = shared.sum(1) / 2

    o = np.zeros((len(a), 15))
    o[:, 0] = d
    o[:, 1] = a @ (d - 1) - 2 * t
    o[:, 2] = _choose2(d) - t
    o[:, 3] = t
    o14 = o[:, 14] = cliques4(a)
    o13 = o[:, 13] = (a * _choose2(c)).sum(1) - 3 * o14
    o12 = o[:, 12] = ((a @ (shared - a)) * a).sum(1) / 2 - 3 * o14
    o8 = o[:, 8] = _choose2(c).sum(1) - o12 - o13 - 3 * o14
    o11 = o[:, 11] = t * (d - 2) - 2 * o13 - 3 * o14
    o10 = o[:, 10] = shared @ (d - 2) - 2 * (o12 + o13) - 6 * o14
    o9 = o[:, 9] = a @ t - 2 * t - 2 * o12 - 3 * o14
    o[:, 7] = d * (d - 1) * (d - 2) / 6 - o11 - o13 - o14
    o[:, 6] = a @ _choose2(d - 1) - o9 - o10 - 2 * o12 - o13 - 3 * o14
    o[:, 5] = (d - 1) * (a @ (d - 1)) - 2 * t - 2 * (o8 + o11 + o12) - o10 - 4 * o13 - 6 * o14
    o[:, 4] = a @ (a @ (d - 1)) - d * (d - 1) - 2 * t - 2 * (o8 + o9 + o13) - o10 - 4 * o12 - 6 * o14
    return o
