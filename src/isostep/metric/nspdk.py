"""Neighbourhood subgraph pairwise distance kernel: MMD^2 = ||mean f(generated) - mean f(reference)||^2.

f(G) counts pairs of neighbourhoods. Put a vertex on every edge, so that distances double. The radius-r code of a
node hashes, level by level, the sorted (label, degree) codes of the vertices at distance 0..2r. For every ordered
pair of nodes at distance d <= 4 and every radius r <= 4, the slot of (both codes, r, d) and the slot of (second
code, r, d) go up by one. Counts of one (r, d) are scaled to unit length, the blocks are joined, and the whole is
scaled to unit length. The kernel is linear, hence the closed form above.

The hash is CPython's tuple hash of integers, done here on whole arrays, so that every slot equals EDeN's
(complexity 4, 16 bits). Two blocks that meet in one slot: the block that was met last wins, as there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from scipy import sparse

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.base import Measure
from isostep.metric.graph_reference import GraphReference, as_reference
from isostep.metric.molecules import Arrays, MoleculeMetric, MoleculeSet

COMPLEXITY = 4
SLOTS = 2**16 + 1
_LEVELS = 2 * COMPLEXITY + 1
_BLOCKS = (COMPLEXITY + 1) ** 2
_PAIRS_AT_ONCE = 400_000  # bounds the memory of one batch


class MoleculeNspdk(MoleculeMetric):
    name = "nspdk"
    definition = "NSPDK MMD^2, EDeN features of complexity 4, labels = atomic number and whole bond order (aromatic 1)"
    equals = "GDSS, GruM, DVS but for their random hash of string labels (spread of 2 %)"
    better: Literal["lower"] = "lower"
    bounds = (0.0, 2.0)

    def fit(self, reference: MoleculeSet) -> dict[str, np.ndarray]:
        rows = features(reference.map(LabelledGraph.of_molecule))
        weights = reference.of_distinct(np.full(len(reference), 1 / len(reference)))
        return {"mean": (weights @ rows).astype(np.float32)}

    def compare(self, generated: MoleculeSet, reference: Arrays) -> Measure:
        measure = distance(features(generated.map(LabelledGraph.of_molecule)), reference["mean"])
        return lambda weights: measure(generated.of_distinct(weights))


@dataclass(frozen=True)
class GraphNspdk:
    """The same of graphs without labels; graphs without nodes are left out."""

    name: ClassVar[str] = "nspdk"
    definition: ClassVar[str] = "NSPDK MMD^2, EDeN features of complexity 4, all labels equal"
    equals: ClassVar[str] = "EDeN features with constant labels; no published table has it"
    better: ClassVar[Literal["lower"]] = "lower"
    bounds: ClassVar[tuple[float, float]] = (0.0, 2.0)

    def prepare(self, generated: Sequence[Graph], reference: GraphReference | Sequence[Graph]) -> Measure:
        kept = np.array([graph.n > 0 for graph in generated], bool)
        if not kept.any():
            raise InputError(f"nspdk: none of the {len(generated)} generated graphs has a node; nothing to compare")
        rows = features(LabelledGraph.plain(graph) for graph in generated if graph.n > 0)
        measure = distance(rows, moments(as_reference(reference)).mean)

        def among_kept(weights: np.ndarray) -> float:
            w = weights[kept]
            # A resample may consist of dropped graphs alone; it then says nothing and stands for the whole set.
            return measure(w / w.sum() if w.any() else np.full(len(w), 1 / len(w)))

        return among_kept

    def floor(self, reference: GraphReference | Sequence[Graph], n: int) -> float | None:
        """Expected value of n training graphs: the kernel of a graph with itself is 1."""
        reference = as_reference(reference)
        if len(reference.train) < 2:
            return None
        mean, apart, across = moments(reference)
        return float(1 / n + (1 - 1 / n) * apart - 2 * across + np.square(mean.astype(float)).sum())


class Moments(NamedTuple):
    """Mean features of the test graphs; mean kernel of two different training graphs, and of training with test."""

    mean: np.ndarray
    apart: float | np.ndarray
    across: float | np.ndarray


@functools.lru_cache(maxsize=4)
def moments(reference: GraphReference) -> Moments:
    """Computed once per reference; a reference that brings its own `nspdk` moments is believed."""
    stored = getattr(reference, "nspdk", None)
    if stored is not None:
        return stored
    test, train = (features(map(LabelledGraph.plain, graphs)) for graphs in (reference.test, reference.train))
    mean, size = np.asarray(test.mean(0)).ravel().astype(np.float32), len(reference.train)
    if size < 2:
        return Moments(mean, 0.0, 0.0)
    total = np.asarray(train.sum(0)).ravel()
    return Moments(mean, float((total @ total - size) / (size * (size - 1))), float(total @ mean / size))


def distance(rows: sparse.csr_matrix, mean: np.ndarray) -> Measure:
    """Squared distance of the weighted mean row from `mean`."""
    used = np.unique(rows.indices)
    columns = rows[:, used].T.tocsr()
    inside, outside = mean[used].astype(float), float(np.square(np.delete(mean, used).astype(float)).sum())

    def measure(weights: np.ndarray) -> float:
        return float(np.square(columns @ weights - inside).sum() + outside)

    return measure


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """`edges` (m, 2) over nodes 0..len(nodes)-1, with an integer label for each node and each edge."""

    nodes: np.ndarray
    edges: np.ndarray
    bonds: np.ndarray

    @staticmethod
    def plain(graph: Graph) -> LabelledGraph:
        """A graph without labels: all labels 0; the degrees still enter the codes."""
        return LabelledGraph(np.zeros(graph.n, np.int64), graph.edges, np.zeros(len(graph.edges), np.int64))

    @staticmethod
    def of_molecule(molecule) -> LabelledGraph:
        """Atomic numbers, and whole bond orders (an aromatic bond counts as 1)."""
        bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), int(b.GetBondTypeAsDouble())) for b in molecule.GetBonds()]
        table = np.array(bonds, np.int64).reshape(-1, 3)
        atoms = np.array([atom.GetAtomicNum() for atom in molecule.GetAtoms()], np.int64)
        return LabelledGraph(atoms, table[:, :2], table[:, 2])


def features(graphs: Iterable[LabelledGraph]) -> sparse.csr_matrix:
    """One row of unit length per graph, shape (graphs, SLOTS); a graph without nodes gives a row of zeros."""
    rows = [_features(batch) for batch in _batches(graphs)]
    return sparse.csr_matrix(sparse.vstack(rows)) if rows else sparse.csr_matrix((0, SLOTS))


def _batches(graphs: Iterable[LabelledGraph]) -> Iterable[list[LabelledGraph]]:
    batch, pairs = [], 0
    for graph in graphs:
        batch.append(graph)
        pairs += len(graph.nodes) ** 2
        if pairs > _PAIRS_AT_ONCE:
            yield batch
            batch, pairs = [], 0
    if batch:
        yield batch


# CPython's hash of a tuple (the xxHash64 round on each item), on uint64 arrays.
_PRIME_1, _PRIME_2, _PRIME_5 = (np.uint64(p) for p in (11400714785074694791, 14029467366897019727, 2870177450012600261))
_MERSENNE = np.uint64(2**61 - 1)
_MINUS_ONE = np.uint64(2**64 - 1)


def _round(state: np.ndarray, item: np.ndarray) -> np.ndarray:
    state = state + item * _PRIME_2
    return ((state << np.uint64(31)) | (state >> np.uint64(33))) * _PRIME_1


def _finish(state: np.ndarray, length: np.ndarray | int) -> np.ndarray:
    state = state + (np.asarray(length).astype(np.uint64) ^ (_PRIME_5 ^ np.uint64(3527539)))
    return np.where(state == _MINUS_ONE, np.uint64(1546275796), state)


def _tuple_hash(*items: np.ndarray) -> np.ndarray:
    """Hash of a tuple of integers whose own hash is themselves (below 2^61 - 1)."""
    state = np.full(np.broadcast_shapes(*(np.shape(item) for item in items)), _PRIME_5)
    for item in items:
        state = _round(state, np.atleast_1d(item).astype(np.uint64))
    return _finish(state, len(items))


def _integer_hash(value: np.ndarray) -> np.ndarray:
    """CPython's hash of a signed 64-bit integer: its remainder by 2^61 - 1 with its sign, never -1."""
    negative = value >> np.uint64(63) == 1
    size = np.where(negative, ~value + np.uint64(1), value) % _MERSENNE
    signed = np.where(negative, ~size + np.uint64(1), size)
    return np.where(signed == _MINUS_ONE, np.uint64(2**64 - 2), signed)


def _bits(value: np.ndarray, bits: int) -> np.ndarray:
    return (value & np.uint64(2**bits - 1)) + np.uint64(1)


def _hash_groups(group: np.ndarray, item: np.ndarray, groups: int) -> np.ndarray:
    """Hash of the sorted items of each group 0..groups-1; an absent group is hashed as the empty tuple."""
    order = np.lexsort((item, group))
    item = item[order]
    length = np.bincount(group, minlength=groups)
    first = np.cumsum(length) - length
    by_length = np.argsort(-length, kind="stable")
    state = np.full(groups, _PRIME_5)
    # Position by position over the groups still long enough: a prefix of `by_length`.
    alive = groups - np.searchsorted(np.sort(length), np.arange(1, length.max(initial=0) + 1))
    for position, count in enumerate(alive):
        chosen = by_length[:count]
        state[chosen] = _round(state[chosen], item[first[chosen] + position])
    return _bits(_finish(state, length), 32)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """All ordered node pairs (v, u) of a batch at distance d <= COMPLEXITY, sorted by v."""

    v: np.ndarray
    u: np.ndarray
    d: np.ndarray


def _pairs(adjacency: sparse.csr_matrix, n: int) -> _Pairs:
    """Breadth-first levels of every node at once: the product with A of the last level, less what was met before."""
    level = seen = sparse.csr_matrix(sparse.identity(n, "int32"))
    found = [level.tocoo()]
    for _ in range(COMPLEXITY):
        step = sparse.csr_matrix(level @ adjacency)
        step.data[:] = 1
        level = sparse.csr_matrix(step - step.multiply(seen))
        level.eliminate_zeros()
        seen = seen + level
        found.append(level.tocoo())
    v, u = (np.concatenate([getattr(part, side) for part in found]).astype(np.int64) for side in ("row", "col"))
    d = np.repeat(np.arange(COMPLEXITY + 1), [part.nnz for part in found])
    order = np.argsort(v, kind="stable")
    return _Pairs(v[order], u[order], d[order])


def _codes(pairs: _Pairs, nodes: np.ndarray, edges: np.ndarray, bonds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, levels) of the neighbourhood of each node up to each distance, and how many levels each node has."""
    n = len(nodes)
    degree = np.bincount(edges.ravel(), minlength=n)
    node_code = _bits(_tuple_hash(_bits(nodes.astype(np.uint64), 16), degree), 32)
    edge_code = _bits(_tuple_hash(_bits(bonds.astype(np.uint64), 16), np.array(2)), 32)
    root, edge, near = _edge_levels(pairs, edges, n)
    group = np.concatenate([pairs.v * _LEVELS + 2 * pairs.d, root * _LEVELS + 2 * near + 1])
    item = np.concatenate([node_code[pairs.u], edge_code[edge]])
    level = _hash_groups(group, item, n * _LEVELS).reshape(n, _LEVELS)
    levels = (np.bincount(group, minlength=n * _LEVELS).reshape(n, _LEVELS) > 0).sum(1)
    running = np.full(n, 0xAAAAAAAA, np.uint64)
    codes = np.empty((n, _LEVELS), np.uint64)
    for i in range(_LEVELS):
        state = _round(np.full(n, _PRIME_5), _integer_hash(running))
        running = running ^ _finish(_round(_round(state, level[:, i]), np.array([i], np.uint64)), 3)
        codes[:, i] = _bits(running, 32)
    return codes, levels


def _edge_levels(pairs: _Pairs, edges: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(root, edge, distance of the edge's nearer end) for every edge whose nearer end is within COMPLEXITY - 1."""
    ends = sparse.csr_matrix(
        (np.tile(np.arange(len(edges)), 2), (edges.T.ravel(), np.tile(np.arange(len(edges)), 2))),
        shape=(n, max(len(edges), 1)),
    )
    inside = pairs.d < COMPLEXITY
    v, u, d = pairs.v[inside], pairs.u[inside], pairs.d[inside]
    count = np.diff(ends.indptr)[u]
    start = np.repeat(ends.indptr[u] - (np.cumsum(count) - count), count)
    edge = ends.indices[start + np.arange(count.sum())].astype(np.int64)
    root, near = np.repeat(v, count), np.repeat(d, count)
    # Both ends meet their edge; the nearer one decides.
    key = root * max(len(edges), 1) + edge
    order = np.lexsort((near, key))
    first = order[np.append(True, np.diff(key[order]) > 0)] if len(order) else order
    return root[first], edge[first], near[first]


def _features(graphs: Sequence[LabelledGraph]) -> sparse.csr_matrix:
    size = np.array([len(graph.nodes) for graph in graphs])
    shift = np.cumsum(size) - size
    n = int(size.sum())
    if n == 0:
        return sparse.csr_matrix((len(graphs), SLOTS))
    nodes = np.concatenate([graph.nodes for graph in graphs])
    edges = np.concatenate([graph.edges + at for graph, at in zip(graphs, shift, strict=True)]).astype(np.int64)
    bonds = np.concatenate([graph.bonds for graph in graphs])
    half = sparse.csr_matrix((np.ones(len(edges), np.int32), (edges[:, 0], edges[:, 1])), shape=(n, n))
    pairs = _pairs(sparse.csr_matrix(half + half.T), n)
    codes, levels = _codes(pairs, nodes, edges, bonds)
    owner = np.repeat(np.arange(len(graphs)), size)
    return _vectors(_slots(pairs, codes, levels, owner), len(graphs))


class _Slots(NamedTuple):
    """Features before they are merged: graph, block (r, d), slot, count, and the node that met it first."""

    graph: np.ndarray
    block: np.ndarray
    slot: np.ndarray
    count: np.ndarray
    met: np.ndarray


def _slots(pairs: _Pairs, codes: np.ndarray, levels: np.ndarray, owner: np.ndarray) -> _Slots:
    parts = []
    upper = pairs.v <= pairs.u  # the pair (u, v) falls into the slot of (v, u)
    for radius in range(COMPLEXITY + 1):
        code = codes[:, 2 * radius]
        deep = levels > 2 * radius
        both = deep[pairs.v] & deep[pairs.u]
        half_key = pairs.u[both] * (COMPLEXITY + 1) + pairs.d[both]
        half_key, first_v, half_count = _first_and_count(half_key, pairs.v[both])
        u, d = half_key // (COMPLEXITY + 1), half_key % (COMPLEXITY + 1)
        slot = _bits(_tuple_hash(code[u], np.array(2 * radius), 2 * d), 16)
        block = d * (COMPLEXITY + 1) + radius
        parts.append((owner[u], block, slot, half_count, first_v))
        chosen = both & upper
        v, u, d = pairs.v[chosen], pairs.u[chosen], pairs.d[chosen]
        low, high = np.minimum(code[v], code[u]), np.maximum(code[v], code[u])
        slot = _bits(_tuple_hash(low, high, np.array(2 * radius), 2 * d), 16)
        parts.append((owner[v], d * (COMPLEXITY + 1) + radius, slot, np.where(v == u, 1, 2), v))
    return _Slots(*(np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)))


def _first_and_count(key: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct keys, the value that stands first for each, and how often each occurs."""
    distinct, first, count = np.unique(key, return_index=True, return_counts=True)
    return distinct, value[first], count


def _vectors(found: _Slots, graphs: int) -> sparse.csr_matrix:
    """Sum equal slots, scale each block to unit length, let the block met last keep a shared slot, scale the row."""
    key = found.graph * _BLOCKS + found.block
    # When a block was met: by its first node v, then by its place in the loop over d and r.
    when = np.full(graphs * _BLOCKS, found.met.max())
    np.minimum.at(when, key, found.met)
    when = when * _BLOCKS + np.tile(np.arange(_BLOCKS), graphs)
    merged, inverse = np.unique(key * SLOTS + found.slot, return_inverse=True)
    value = np.bincount(inverse, weights=found.count)
    key, slot = merged // SLOTS, merged % SLOTS
    value /= np.sqrt(np.bincount(key, weights=value**2, minlength=graphs * _BLOCKS))[key]
    row = key // _BLOCKS
    order = np.lexsort((when[key], slot, row))
    row, slot, value = row[order], slot[order], value[order]
    last = np.append((np.diff(row) != 0) | (np.diff(slot) != 0), True)
    row, slot, value = row[last], slot[last], value[last]
    value /= np.sqrt(np.bincount(row, weights=value**2, minlength=graphs))[row]
    return sparse.csr_matrix((value, (row, slot)), shape=(graphs, SLOTS))
