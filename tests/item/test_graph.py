"""The graph type: one form for every input, exact round trips, errors that name the line."""

from __future__ import annotations

import gzip

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.base.errors import InputError
from isostep.item import write_items
from isostep.item.graph import MAX_NODES, Graph, read_graphs


@st.composite
def graphs(draw) -> Graph:
    n = draw(st.integers(1, 12))
    node = st.integers(0, n - 1)
    return Graph.of(n, [e for e in draw(st.lists(st.tuples(node, node), max_size=30)) if e[0] != e[1]])


def same(a: Graph, b: Graph) -> bool:
    return a.n == b.n and np.array_equal(a.edges, b.edges)


@given(graphs())
@settings(max_examples=60)
def test_every_form_gives_the_graph_back(graph):
    assert same(graph, Graph.from_line(graph.to_line()))
    assert same(graph, Graph.from_networkx(graph.to_networkx()))
    assert same(graph, Graph.from_adjacency(graph.adjacency()))
    assert same(graph, Graph.of(graph.n, graph.edges[::-1, ::-1]))


@given(graphs())
@settings(max_examples=60)
def test_edges_are_sorted_upper_and_without_repeats(graph):
    assert graph.edges.dtype == np.int64
    assert graph.edges.shape[1] == 2
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert same(graph, Graph(graph.n, np.unique(graph.edges, axis=0).reshape(-1, 2)))
    dense = graph.adjacency()
    assert np.array_equal(dense, dense.T)
    assert dense.sum() == 2 * len(graph.edges)


def test_networkx_nodes_are_numbered_in_their_order_and_loops_dropped():
    source = networkx.Graph([("b", "a"), ("a", "c"), ("a", "a")])
    graph = Graph.from_networkx(source)
    assert graph.n == 3
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("kind", [networkx.DiGraph, networkx.MultiGraph, networkx.MultiDiGraph])
def test_directed_and_parallel_edges_of_networkx_are_one(kind):
    graph = Graph.from_networkx(kind([("b", "a"), ("a", "b"), ("b", "a"), ("a", "c"), ("a", "a")]))
    assert graph.n == 3
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("n", "edges", "reason"),
    [
        (3, [[0, 3]], "node 3"),
        (3, [[-1, 2]], "node -1"),
        (3, [[1, 1]], "itself"),
        (3, [[0, 1, 2]], "pairs"),
        (3, [[0], [1, 2]], "pairs"),
        (3, [[], []], "pairs"),
        (3, [0, 1], "pairs"),
        (3, [[0.0, 1.0]], "whole numbers"),
        (3, [[True, False]], "whole numbers"),
        (3, [[0, 2**70]], "whole numbers"),
        (3, 5, "pairs"),
        (True, [], "whole number"),
        (2.0, [], "whole number"),
        (-1, [], "whole number"),
        (MAX_NODES + 1, [], "whole number"),
        ("3", [], "whole number"),
    ],
)
def test_bad_graphs_are_refused_with_the_reason(n, edges, reason):
    with pytest.raises(InputError, match=reason):
        Graph.of(n, edges)


def test_an_adjacency_matrix_must_be_square():
    with pytest.raises(InputError, match=r"\(2, 3\)"):
        Graph.from_adjacency(np.ones((2, 3)))


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"n": 3}', '{"n": 3, "edges": {}}', "[" * 100_000])
def test_bad_lines_are_input_errors(line):
    with pytest.raises(InputError):
        Graph.from_line(line)


def test_files_round_trip_and_blank_lines_do_not_shift_line_numbers(tmp_path):
    path = tmp_path / "g.jsonl"
    originals = [Graph.of(3, [(0, 1)]), Graph.of(1, []), Graph.of(4, [(2, 3), (0, 2)])]
    write_items(path, originals)
    assert all(same(a, b) for a, b in zip(originals, read_graphs(path), strict=True))
    path.write_text('{"n": 1, "edges": []}\n\n\n{"n": 2, "edges": [[0, 5]]}\n')
    with pytest.raises(InputError, match=r"g\.jsonl, line 4: .*node 5"):
        read_graphs(path)


def test_compressed_files_are_read_and_broken_ones_named(tmp_path):
    path = tmp_path / "g.jsonl.gz"
    whole = gzip.compress(b'{"n": 2, "edges": [[0, 1]]}\n' * 500)
    path.write_bytes(whole)
    assert len(read_graphs(path)) == 500
    path.write_bytes(whole[:-12])
    with pytest.raises(InputError, match=r"cannot read .*g\.jsonl\.gz"):
        read_graphs(path)


def test_unreadable_files_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="check the file"):
        read_graphs(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="cannot read"):
        read_graphs(tmp_path)
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_graphs(tmp_path / "bytes.jsonl")
