"""Sets of graphs up to isomorphism."""

from __future__ import annotations

import networkx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.item.graph import Graph
from isostep.metric.isomorphism import Catalogue, colours


def shuffled(graph: Graph, seed: int) -> Graph:
    return Graph.of(graph.n, np.random.default_rng(seed).permutation(graph.n)[graph.edges])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10), st.integers(0, 2**31))
def test_a_renamed_graph_is_found(n, tenths, seed):
    graph = Graph.from_networkx(networkx.gnp_random_graph(n, tenths / 10, seed=seed))
    assert shuffled(graph, seed) in Catalogue([graph])


def test_agrees_with_networkx_on_all_graphs_of_five_nodes():
    """34 graphs with 5 nodes exist up to isomorphism."""
    catalogue = Catalogue()
    pairs = [(i, j) for i in range(5) for j in range(i)]
    found = [catalogue.add(Graph.of(5, [p for k, p in enumerate(pairs) if code >> k & 1])) for code in range(1024)]
    assert list(dict.fromkeys(found)) == list(range(34))


def test_graphs_that_colours_cannot_tell_apart_are_told_apart():
    hexagon, triangles = networkx.cycle_graph(6), networkx.disjoint_union(*[networkx.cycle_graph(3)] * 2)
    hexagon, triangles = map(Graph.from_networkx, (hexagon, triangles))
    assert np.array_equal(np.sort(colours(hexagon)), np.sort(colours(triangles)))
    assert triangles not in Catalogue([hexagon])
    assert shuffled(triangles, 0) in Catalogue([hexagon, triangles])


def test_one_moved_edge_is_another_graph():
    graph = Graph.from_networkx(networkx.path_graph(6))
    moved = Graph.of(6, [*graph.edges[:-1].tolist(), [1, 5]])
    assert moved not in Catalogue([graph])


def test_size_and_isolated_nodes_count():
    assert Graph.of(3, [(0, 1)]) not in Catalogue([Graph.of(2, [(0, 1)]), Graph.of(0, [])])
    assert Graph.of(0, []) in Catalogue([Graph.of(0, [])])
    assert Graph.of(1, []) not in Catalogue([Graph.of(0, []), Graph.of(2, [])])
