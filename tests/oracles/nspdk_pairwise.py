"""NSPDK MMD^2 as it is written down: one dictionary of features per graph, one dot product per pair of graphs.

A graph here is (node labels, {(i, j): edge label}).
"""

from __future__ import annotations

from collections import Counter
from math import sqrt

COMPLEXITY = 4
Labelled = tuple[list[int], dict[tuple[int, int], int]]


def mmd(a: list[Labelled], b: list[Labelled]) -> float:
    """mean k(a, a') + mean k(b, b') - 2 mean k(a, b), all pairs."""
    a_features, b_features = ([features(graph) for graph in graphs] for graphs in (a, b))
    return _mean(a_features, a_features) + _mean(b_features, b_features) - 2 * _mean(a_features, b_features)


def _mean(a: list[dict[int, float]], b: list[dict[int, float]]) -> float:
    return sum(_dot(x, y) for x in a for y in b) / (len(a) * len(b))


def _dot(x: dict[int, float], y: dict[int, float]) -> float:
    return sum(value * y[slot] for slot, value in x.items() if slot in y)


def features(graph: Labelled) -> dict[int, float]:
    """Slot -> value, of unit length."""
    labels, near = _with_edge_vertices(graph)
    levels = [_levels(near, v) for v in range(len(graph[0]))]
    codes = [_codes(part, labels, near) for part in levels]
    blocks: dict[tuple[int, int], Counter] = {}
    for v, around in enumerate(levels):
        for d in range(0, min(len(around), 2 * COMPLEXITY + 1), 2):
            for u in around[d]:
                for r in range(0, min(len(codes[v]), len(codes[u]), 2 * COMPLEXITY + 1), 2):
                    block = blocks.setdefault((r, d), Counter())
                    block[_hash((*sorted((codes[v][r], codes[u][r])), r, d), 16)] += 1
                    block[_hash((codes[u][r], r, d), 16)] += 1
    joined = {slot: value for block in blocks.values() for slot, value in _unit(block).items()}
    return _unit(joined)


def _with_edge_vertices(graph: Labelled) -> tuple[list[int], list[set[int]]]:
    nodes, edges = graph
    labels = [(label & 0xFFFF) + 1 for label in [*nodes, *edges.values()]]
    near: list[set[int]] = [set() for _ in labels]
    for place, ends in enumerate(edges, start=len(nodes)):
        for end in ends:
            near[place].add(end)
            near[end].add(place)
    return labels, near


def _levels(near: list[set[int]], root: int) -> list[set[int]]:
    levels, seen = [{root}], {root}
    while len(levels) <= 2 * COMPLEXITY:
        following = {v for u in levels[-1] for v in near[u]} - seen
        if not following:
            break
        levels.append(following)
        seen |= following
    return levels


def _codes(levels: list[set[int]], labels: list[int], near: list[set[int]]) -> list[int]:
    running, codes = 0xAAAAAAAA, []
    for i, level in enumerate(levels):
        inside = _hash(tuple(sorted(_hash((labels[v], len(near[v])), 32) for v in level)), 32)
        running ^= hash((running, inside, i))
        codes.append((running & 0xFFFFFFFF) + 1)
    return codes


def _hash(items: tuple[int, ...], bits: int) -> int:
    return (hash(items) & (2**bits - 1)) + 1


def _unit(values: dict[int, float]) -> dict[int, float]:
    length = sqrt(sum(value * value for value in values.values()))
    return {slot: value / length for slot, value in values.items()}
