"""Orbit counts: brute force, ORCA, known graphs."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.metric import orbits
from isostep.metric.orbits import orbit_counts
from tests.oracles import mmd_pairwise as oracle


def adjacency(graph: networkx.Graph) -> np.ndarray:
    return networkx.to_numpy_array(graph)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10), st.integers(0, 2**31))
def test_every_set_of_nodes_counted(n, tenths, seed):
    graph = networkx.gnp_random_graph(n, tenths / 10, seed=seed)
    assert np.array_equal(orbit_counts(adjacency(graph)), oracle.orbits(graph))


def test_equals_orca_on_graphs_of_every_density():
    orca = pytest.importorskip("orbit_count")
    for seed in range(60):
        graph = networkx.gnp_random_graph(12 + seed, (seed % 10 + 1) / 11, seed=seed)
        assert np.array_equal(orbit_counts(adjacency(graph)), orca.node_orbit_counts(graph, graphlet_size=4))


@pytest.mark.parametrize(
    ("graph", "orbit", "count"),
    [
        (networkx.complete_graph(4), 14, 1),
        (networkx.cycle_graph(4), 8, 1),
        (networkx.complete_graph(6), 14, 10),
        (networkx.cycle_graph(7), 4, 2),
        (networkx.empty_graph(3), 0, 0),
    ],
)
def test_all_nodes_of_a_vertex_transitive_graph_agree(graph, orbit, count):
    assert (orbit_counts(adjacency(graph))[:, orbit] == count).all()


def test_relabelling_nodes_permutes_rows():
    rng = np.random.default_rng(0)
    a = adjacency(networkx.gnp_random_graph(20, 0.3, seed=1))
    order = rng.permutation(20)
    assert np.array_equal(orbit_counts(a[order][:, order]), orbit_counts(a)[order])


def test_cliques_do_not_depend_on_the_chunk(monkeypatch):
    a = adjacency(networkx.gnp_random_graph(15, 0.7, seed=0))
    whole = orbits.cliques4(a)
    monkeypatch.setattr(orbits, "EDGES_AT_ONCE", 7)
    assert whole.sum() > 0
    assert np.array_equal(orbits.cliques4(a), whole)
