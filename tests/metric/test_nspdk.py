"""NSPDK: slot for slot EDeN's features, the peers' number, and the laws of the definition."""

from __future__ import annotations

import json

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.base import evaluate_metric
from isostep.metric.molecules import MoleculeSet
from isostep.metric.nspdk import SLOTS, GraphNspdk, LabelledGraph, MoleculeNspdk, features
from tests.conftest import FIXTURES
from tests.oracles import nspdk_pairwise as oracle

METRICS = FIXTURES / "metrics"


def smiles(name: str) -> list[str]:
    return (METRICS / f"mols_{name}.smi").read_text().split()


def labelled(text: str) -> LabelledGraph:
    return LabelledGraph.of_molecule(Chem.MolFromSmiles(text))


def dictionaries(graph: LabelledGraph) -> oracle.Labelled:
    edges = {(int(i), int(j)): int(b) for (i, j), b in zip(graph.edges, graph.bonds, strict=True)}
    return graph.nodes.tolist(), edges


def dense(rows: list[dict[int, float]]) -> np.ndarray:
    table = np.zeros((len(rows), SLOTS))
    for row, values in zip(table, rows, strict=True):
        row[list(values)] = list(values.values())
    return table


@st.composite
def graphs(draw) -> LabelledGraph:
    n = draw(st.integers(1, 9))
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    nodes = draw(st.lists(st.integers(0, 100), min_size=n, max_size=n))
    bonds = draw(st.lists(st.integers(0, 3), min_size=len(edges), max_size=len(edges)))
    return LabelledGraph(np.array(nodes), np.array(edges, np.int64).reshape(-1, 2), np.array(bonds, np.int64))


def test_peers_number_on_the_fixture():
    expected = json.loads((METRICS / "molecules_expected.json").read_text())["nspdk_int_labels"]
    metric = MoleculeNspdk()
    measured = evaluate_metric(metric, smiles("gen"), smiles("test"), resamples=0).value
    assert measured == pytest.approx(expected, abs=1e-9)


def test_every_slot_equals_eden():
    eden = pytest.importorskip("eden.graph", reason="eden-kernel comes with the dev extra")
    texts = [*smiles("gen")[:60], "C", "[Na+].[Cl-]", "Cc1cc(C(=O)NC2CCN(Cc3ccccc3)CC2)c2ccccc2n1", "BrC(I)(Cl)S(=O)F"]
    peers = []
    for text in texts:
        graph = networkx.Graph()
        part = labelled(text)
        graph.add_nodes_from((i, {"label": int(label)}) for i, label in enumerate(part.nodes))
        graph.add_edges_from(
            (int(i), int(j), {"label": int(b)}) for (i, j), b in zip(part.edges, part.bonds, strict=True)
        )
        peers.append(graph)
    difference = features(map(labelled, texts)) - eden.vectorize(peers, complexity=4, discrete=True)
    assert abs(difference).max() < 1e-12


@settings(max_examples=60, deadline=None)
@given(st.lists(graphs(), min_size=1, max_size=4))
def test_equals_the_definition_on_any_graphs(batch: list[LabelledGraph]):
    expected = dense([oracle.features(dictionaries(graph)) for graph in batch])
    np.testing.assert_allclose(features(batch).toarray(), expected, atol=1e-12)


def test_closed_form_equals_all_pairs():
    a, b = smiles("gen")[:25], smiles("test")[:30]
    pairwise = oracle.mmd([dictionaries(labelled(s)) for s in a], [dictionaries(labelled(s)) for s in b])
    assert evaluate_metric(MoleculeNspdk(), a, b, resamples=0).value == pytest.approx(pairwise, abs=1e-8)


def test_batching_changes_nothing(monkeypatch):
    parts = [labelled(s) for s in smiles("gen")[:40]]
    whole = features(parts)
    monkeypatch.setattr("isostep.metric.nspdk._PAIRS_AT_ONCE", 150)
    assert abs(features(parts) - whole).max() == 0


def test_rows_have_unit_length_and_a_graph_without_nodes_is_zero():
    empty = LabelledGraph(np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
    rows = features([labelled("CCO"), empty, labelled("C")])
    np.testing.assert_allclose(rows.multiply(rows).sum(1).ravel(), [[1, 0, 1]])


def test_aromatic_bonds_count_as_single_and_elements_matter():
    assert evaluate_metric(MoleculeNspdk(), ["c1ccccc1"], ["C1CCCCC1"], resamples=0).value < 1e-12
    assert evaluate_metric(MoleculeNspdk(), ["CCO"], ["CCN"], resamples=0).value > 0.1


def test_graphs_without_labels():
    reference = [Graph.of(4, [(0, 1), (1, 2), (2, 3)]), Graph.of(3, [(0, 1), (1, 2), (0, 2)])]
    metric = GraphNspdk()
    assert evaluate_metric(metric, reference, reference, resamples=0).value == pytest.approx(0, abs=1e-12)
    renumbered = [Graph.of(4, [(2, 0), (0, 3), (3, 1)]), reference[1]]
    # Renumbering may only move slots that two blocks share.
    assert evaluate_metric(metric, renumbered, reference, resamples=0).value < 1e-3
    star = [Graph.of(4, [(0, 1), (0, 2), (0, 3)]), reference[1]]
    assert evaluate_metric(metric, star, reference, resamples=0).value > 0.05
    with_empty = [*reference, Graph.of(0, [])]
    assert evaluate_metric(metric, with_empty, reference, resamples=20).value == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="none of the 1 generated graphs has a node"):
        evaluate_metric(metric, [Graph.of(0, [])], reference)


def test_repeated_molecules_count_as_often_as_they_occur():
    metric, reference = MoleculeNspdk(), ["CCO", "CCN", "c1ccccc1"]
    arrays = metric.fit(MoleculeSet.of(reference))
    repeated = metric.compare(MoleculeSet.of(["CCO", "OCC", "CCN"]), arrays)(np.full(3, 1 / 3))
    weighted = metric.compare(MoleculeSet.of(["CCO", "CCN"]), arrays)(np.array([2 / 3, 1 / 3]))
    assert repeated == pytest.approx(weighted, abs=1e-12)
