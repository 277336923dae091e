"""Block inference: the length is the formula's, moves and merges are its exact minima, planted blocks come back."""

from __future__ import annotations

import sys
from math import comb, factorial, log

import networkx
import numpy as np
import pytest
from scipy.special import gammaln

from isostep.base.errors import InputError, MissingPackageError
from isostep.item.graph import Graph
from isostep.metric import sbm
from isostep.metric.sbm import Partition, choose_inference, graph_tool_python, infer, infer_blocks


def planted(sizes: list[int], seed: int, inside: float = 0.3, across: float = 0.005) -> tuple[Graph, np.ndarray]:
    p = np.full((len(sizes), len(sizes)), across)
    np.fill_diagonal(p, inside)
    graph = networkx.stochastic_block_model(sizes, p, seed=seed)
    return Graph.from_networkx(graph), np.repeat(np.arange(len(sizes)), sizes)


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return len(set(zip(a.tolist(), b.tolist(), strict=True))) == len(set(a.tolist())) == len(set(b.tolist()))


def partitions(m: int, n: int) -> int:
    """Partitions of m into at most n parts."""
    if m == 0:
        return 1
    return 0 if n == 0 or m < 0 else partitions(m, n - 1) + partitions(m - n, n)


def formula(graph: Graph, labels: np.ndarray) -> float:
    """S term by term."""
    edges, n = len(graph.edges), graph.n
    degrees = graph.adjacency().sum(1).astype(int)
    blocks = sorted(set(labels.tolist()))
    number = len(blocks)
    total = log(comb(number * (number + 1) // 2 + edges - 1, edges)) + log(comb(n - 1, number - 1))
    for r in blocks:
        inside = labels == r
        ends = int(degrees[inside].sum())
        total += log(factorial(ends)) + log(partitions(ends, int(inside.sum())))
        total -= sum(log(factorial(int((degrees[inside] == k).sum()))) for k in set(degrees[inside].tolist()))
        for s in blocks:
            between = int(graph.adjacency()[inside][:, labels == s].sum())
            if s == r:
                total -= gammaln(between / 2 + 1) + between / 2 * log(2)
            elif s > r:
                total -= log(factorial(between))
    return total


@pytest.mark.parametrize("seed", range(5))
def test_length_is_the_formula(seed):
    rng = np.random.default_rng(seed)
    graph = Graph.from_networkx(networkx.gnp_random_graph(9, 0.3, seed=seed))
    labels = rng.integers(3, size=9)
    assert Partition(graph, labels).length() == pytest.approx(formula(graph, labels), abs=1e-9)


def test_partition_numbers():
    table = np.exp(sbm._ln_partitions(12, 6))
    assert np.allclose(table, [[partitions(m, n) for m in range(13)] for n in range(7)])


def test_moves_and_merges_choose_the_least_length():
    graph, _ = planted([10, 12, 8], seed=0, inside=0.5, across=0.1)
    labels = np.random.default_rng(0).integers(5, size=graph.n)
    for i in range(graph.n):
        partition = Partition(graph, labels)
        partition._best_move(i)
        trials = [Partition(graph, np.where(np.arange(graph.n) == i, r, labels)).length() for r in range(5)]
        assert partition.length() == pytest.approx(min(trials), abs=1e-8)
        assert partition.length() == pytest.approx(Partition(graph, partition.labels).length(), abs=1e-8)
    partition = Partition(graph, labels)
    partition.merge()
    trials = [Partition(graph, np.where(labels == s, r, labels)).length() for r in range(5) for s in range(r)]
    assert partition.length() == pytest.approx(min(trials), abs=1e-8)


@pytest.mark.parametrize("sizes", [[30, 30], [20, 40, 25], [40, 20, 30, 25, 35]])
def test_planted_blocks_are_found(sizes):
    graph, labels = planted(sizes, seed=1)
    order = np.random.default_rng(0).permutation(graph.n)
    found = infer_blocks(Graph.of(graph.n, order[graph.edges]), seed=3)[order]
    assert Partition(graph, found).length() <= Partition(graph, labels).length() + 1e-9
    assert np.mean([same_partition(found[keep], labels[keep]) for keep in np.array_split(order, 10)]) >= 0.8
    assert len(set(found.tolist())) == len(sizes)


def test_a_random_graph_is_one_block():
    graph = Graph.from_networkx(networkx.gnp_random_graph(80, 0.1, seed=0))
    assert len(set(infer_blocks(graph).tolist())) == 1


@pytest.mark.parametrize("graph", [Graph.of(1, []), Graph.of(30, []), Graph.of(2, [(0, 1)])])
def test_graphs_without_structure_are_one_block(graph):
    assert infer_blocks(graph).tolist() == [0] * graph.n


def test_the_same_seed_finds_the_same_blocks():
    graph, _ = planted([20, 25, 30], seed=2)
    assert np.array_equal(infer_blocks(graph, 5), infer_blocks(graph, 5))


def test_too_many_edges_are_refused():
    with pytest.raises(InputError, match="up to 30000 edges, got 31125"):
        infer_blocks(Graph.from_adjacency(np.ones((250, 250))))


# A stand-in for graph-tool, which is not on PyPI: the calls that the script makes, blocks by the parity of the node.
STAND_IN = """
class Graph:
    def __init__(self, directed): assert directed is False
    def add_vertex(self, n): self.n = n
    def add_edge_list(self, edges): assert all(0 <= i < j < self.n for i, j in edges)
def seed_rng(seed): assert seed == 7
"""
STAND_IN_INFERENCE = """
class Blocks:
    def __init__(self, a): self.a = a
class State:
    rounds = 0
    def __init__(self, graph): self.graph = graph
    def multiflip_mcmc_sweep(self, beta, niter): assert beta == float("inf"); self.rounds += 1
    def get_blocks(self): assert self.rounds == 100; return Blocks([i % 2 for i in range(self.graph.n)])
def minimize_blockmodel_dl(graph): return State(graph)
"""


@pytest.fixture
def interpreter(tmp_path, monkeypatch):
    """Name an interpreter with the stand-in, which may be spoilt by `inference`."""

    def install(inference: str) -> None:
        package = tmp_path / "site" / "graph_tool"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(STAND_IN)
        (package / "inference.py").write_text(inference)
        python = tmp_path / "python"
        isolated = '[ "$1" = -I ] || exit 9; shift'
        python.write_text(f'#!/bin/sh\n{isolated}\nPYTHONPATH="{package.parent}" exec "{sys.executable}" -P "$@"\n')
        python.chmod(0o755)
        monkeypatch.setenv("ISOSTEP_GRAPH_TOOL", str(python))

    for cached in (graph_tool_python, sbm._infer):
        cached.cache_clear()
    yield install
    for cached in (graph_tool_python, sbm._infer):
        cached.cache_clear()


def test_graph_tool_runs_in_its_own_process(interpreter):
    interpreter(STAND_IN_INFERENCE)
    assert choose_inference("auto") == choose_inference("graph-tool") == "graph-tool"
    labels = infer([Graph.of(3, [(0, 1)]), Graph.of(2, [])], seed=7, inference="graph-tool")
    assert [found.tolist() for found in labels] == [[0, 1, 0], [0, 1]]
    assert choose_inference("own") == "own"


def test_a_failing_graph_tool_is_reported_in_one_line(interpreter):
    interpreter("def minimize_blockmodel_dl(graph): raise RuntimeError('no memory')")
    with pytest.raises(InputError, match=r"graph-tool failed \(RuntimeError: no memory\)"):
        infer([Graph.of(3, [(0, 1)])], seed=7, inference="graph-tool")


def test_graph_tool_asked_for_but_absent(interpreter, monkeypatch, tmp_path):
    monkeypatch.setenv("ISOSTEP_GRAPH_TOOL", str(tmp_path / "nowhere"))
    assert choose_inference("auto") == "own"
    with pytest.raises(MissingPackageError, match="no interpreter has it"):
        choose_inference("graph-tool")
