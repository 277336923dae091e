"""Generated benchmarks have the properties that define them, and depend on the seed alone."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.dataset import generate_community, generate_planar, generate_sbm, load
from isostep.metric.suite import load_reference

GENERATORS = [
    lambda count, seed: generate_planar(count, (5, 20), seed=seed),
    lambda count, seed: generate_sbm(count, seed=seed),
    lambda count, seed: generate_community(count, seed=seed),
]


@pytest.mark.parametrize("generate", GENERATORS)
def test_a_seed_fixes_the_graphs_and_a_longer_set_begins_with_the_shorter(generate):
    short, long, other = generate(4, 7), generate(9, 7), generate(4, 8)
    assert [g.to_line() for g in short] == [g.to_line() for g in long[:4]]
    assert [g.to_line() for g in short] != [g.to_line() for g in other]
    assert len({g.to_line() for g in long}) == 9


def test_planar_graphs_are_connected_planar_triangulations():
    for graph in generate_planar(30, (8, 40), seed=1):
        nx = graph.to_networkx()
        assert 8 <= graph.n <= 40
        assert networkx.is_connected(nx)
        assert networkx.check_planarity(nx)[0]
        hull = 3 * graph.n - 3 - len(graph.edges)  # Delaunay: edges = 3 n - 3 - (points on the hull)
        assert 3 <= hull <= graph.n


def degrees(name: str) -> np.ndarray:
    """Counts of the degrees 0, 1, ... of the published test graphs, one row a graph, as the package has them."""
    return load_reference(name).table("test", "degree").astype(float)


def test_planar_64_has_the_published_number_of_edges():
    published = degrees("planar")
    ours = [len(g.edges) for g in generate_planar(200, 64, seed=3)]
    theirs = published @ np.arange(published.shape[1]) / 2
    assert abs(np.mean(ours) - np.mean(theirs)) < 4 * np.std(theirs) * np.sqrt(1 / 200 + 1 / len(theirs))


def test_sbm_blocks_have_the_asked_sizes_and_densities():
    graphs = generate_sbm(60, seed=2)
    assert all(40 <= g.n <= 200 for g in graphs)
    inside = outside = pairs_inside = pairs_outside = 0
    for graph in generate_sbm(40, seed=5, communities=3, sizes=20):
        assert graph.n == 60
        same = graph.edges[:, 0] // 20 == graph.edges[:, 1] // 20
        inside, outside = inside + same.sum(), outside + (~same).sum()
        pairs_inside, pairs_outside = pairs_inside + 3 * 190, pairs_outside + 3 * 400
    for seen, pairs, p in ((inside, pairs_inside, 0.3), (outside, pairs_outside, 0.005)):
        assert abs(seen / pairs - p) < 4 * np.sqrt(p * (1 - p) / pairs)


def test_sbm_has_the_published_mean_size():
    theirs = degrees("sbm").sum(1)
    ours = [g.n for g in generate_sbm(200, seed=4)]
    assert abs(np.mean(ours) - np.mean(theirs)) < 4 * np.std(theirs) * np.sqrt(1 / 200 + 1 / len(theirs))
    assert min(ours) >= 40
    assert max(ours) <= 200


def test_community_graphs_are_two_equal_connected_halves():
    for graph in generate_community(40, seed=6):
        half = graph.n // 2
        nx = graph.to_networkx()
        assert graph.n in (12, 14, 16, 18, 20)
        assert networkx.is_connected(nx)
        assert networkx.is_connected(nx.subgraph(range(half)))
        assert networkx.is_connected(nx.subgraph(range(half, graph.n)))


def halves(graph):
    """Edges inside the first half, inside the second, and across."""
    half = graph.n // 2
    low, high = graph.edges[:, 0] < half, graph.edges[:, 1] >= half
    return graph.edges[~high].tolist(), (graph.edges[~low] - half).tolist(), graph.edges[low & high].tolist()


def test_fixed_blocks_are_those_of_the_published_community_graphs(shared):
    published = load("community-small", shared / "data").split("all")
    ours = generate_community(100, seed=0, fixed_blocks=True)
    blocks = {graph.n: halves(graph)[:2] for graph in ours}
    assert set(blocks) == {12, 14, 16, 18, 20}
    assert all(halves(graph)[:2] == blocks[graph.n] for graph in published)
    one_link = [np.mean([len(halves(g)[2]) == 1 for g in graphs]) for graphs in (published, ours)]
    assert abs(one_link[0] - one_link[1]) < 0.15


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: generate_planar(3, 2),
        lambda: generate_planar(3, (9, 8)),
        lambda: generate_planar(-1, 8),
        lambda: generate_planar(1, 8, seed=-1),
        lambda: generate_sbm(1, p_in=1.5),
        lambda: generate_sbm(1, sizes=(0, 4)),
        lambda: generate_community(1, p_out=-0.1),
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()
