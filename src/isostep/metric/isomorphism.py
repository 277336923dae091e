"""Graphs up to isomorphism: a Weisfeiler-Leman hash sorts them into buckets, and inside a bucket VF2 decides exactly.

Colour refinement: c_i <- mix(c_i + sum over neighbours j of c_j), all words of 64 bits, until no class splits. The
sorted colours are the hash; they depend on no seed, so they are the same in every process.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import rustworkx

from isostep.item.graph import Graph


def to_rustworkx(graph: Graph, payload: Sequence[Any] | None = None) -> rustworkx.PyGraph:
    built = rustworkx.PyGraph(multigraph=False)
    built.add_nodes_from(range(graph.n) if payload is None else payload)
    built.add_edges_from_no_data([(int(i), int(j)) for i, j in graph.edges])
    return built


def _mix(x: np.ndarray) -> np.ndarray:
    """A fixed scrambling of 64-bit words (the finaliser of splitmix64), so that sums of colours rarely collide."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def colours(graph: Graph) -> np.ndarray:
    """Weisfeiler-Leman colours (n,), refined until they separate no more nodes; the same for isomorphic graphs."""
    colour = np.full(graph.n, graph.n, np.uint64)
    i, j = graph.edges.T
    classes = min(graph.n, 1)
    while True:
        scrambled = _mix(colour + np.uint64(0x9E3779B97F4A7C15))
        around = np.zeros_like(colour)
        np.add.at(around, i, scrambled[j])
        np.add.at(around, j, scrambled[i])
        refined = _mix(scrambled + around)
        count = len(np.unique(refined))
        if count <= classes:
            return refined
        colour, classes = refined, count


class Catalogue:
    """A set of graphs up to isomorphism; its classes are numbered in the order they come."""

    def __init__(self, graphs: Iterable[Graph] = ()):
        self._buckets: dict[bytes, list[tuple[int, rustworkx.PyGraph]]] = {}
        self.classes = 0
        for graph in graphs:
            self.add(graph)

    def __contains__(self, graph: Graph) -> bool:
        bucket, candidate = self._place(graph)
        return any(_isomorphic(known, candidate) for _, known in bucket)

    def add(self, graph: Graph) -> int:
        """The number of its class, a new one if no isomorphic graph was here before."""
        bucket, candidate = self._place(graph)
        for number, known in bucket:
            if _isomorphic(known, candidate):
                return number
        bucket.append((self.classes, candidate))
        self.classes += 1
        return self.classes - 1

    def _place(self, graph: Graph) -> tuple[list[tuple[int, rustworkx.PyGraph]], rustworkx.PyGraph]:
        colour = colours(graph)
        return self._buckets.setdefault(np.sort(colour).tobytes(), []), to_rustworkx(graph, colour.tolist())


def _isomorphic(a: rustworkx.PyGraph, b: rustworkx.PyGraph) -> bool:
    """Equal up to a renaming that keeps the colours, which every isomorphism does; they cut the search short."""
    return rustworkx.is_isomorphic(a, b, node_matcher=operator.eq, id_order=False)
