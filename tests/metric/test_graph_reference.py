"""References survive storage, stay small, and refuse files that are something else."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.base import evaluate_metric
from isostep.metric.graph_reference import SPLITS, GraphReference
from isostep.metric.graph_statistics import STATISTICS
from isostep.metric.graph_summary import GraphSummary
from isostep.metric.mmd import GraphMMD
from isostep.metric.reference import reference_file, shipped
from isostep.metric.vun import Connected, Novel, Planar, Unique, Valid


def random_graphs(count: int, seed: int) -> list[Graph]:
    rng = np.random.default_rng(seed)
    return [
        Graph.from_networkx(networkx.gnp_random_graph(int(rng.integers(1, 12)), rng.random(), seed=int(k)))
        for k in rng.integers(2**31, size=count)
    ]


@pytest.fixture
def reference() -> GraphReference:
    return GraphReference.fit(random_graphs(8, 0), random_graphs(12, 1), [Valid(Planar()), Connected(), Unique()])


def test_what_is_loaded_is_what_was_saved(reference, tmp_path):
    reference.save(tmp_path / "reference.npz")
    loaded = GraphSummary.load(tmp_path / "reference.npz")
    for split in SPLITS:
        assert len(reference.graphs(split)) == len(loaded.graphs(split))
        for name in STATISTICS:
            assert np.array_equal(reference.table(split, name), loaded.table(split, name))
    generated = random_graphs(6, 2)
    for metric in (GraphMMD("degree"), GraphMMD("spectral", "emd"), Novel(), Valid(Planar()), Unique()):
        found = evaluate_metric(metric, generated, loaded.among(generated))
        assert found == evaluate_metric(metric, generated, reference)


def test_saving_twice_gives_the_same_bytes(reference, tmp_path):
    for name in "ab":
        reference.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_no_training_graphs_no_floor_and_no_novelty(tmp_path):
    GraphReference.fit(random_graphs(5, 0)).save(tmp_path / "reference.npz")
    reference = GraphSummary.load(tmp_path / "reference.npz")
    generated = random_graphs(4, 1)
    for metric in (GraphMMD("orbit"), Valid(Planar()), Connected()):
        assert evaluate_metric(metric, generated, reference).floor is None
    with pytest.raises(InputError, match="novelty needs training graphs"):
        evaluate_metric(Novel(), generated, reference)


def test_floors_of_shares_are_the_training_graphs_values(reference):
    train = reference.train
    for metric in (Valid(Planar()), Connected(), Unique()):
        expected = evaluate_metric(metric, train, reference, resamples=0).value
        assert metric.floor(reference, 5) == expected
        assert 0 < expected < 1
    assert Novel().floor(reference, 5) is None


@pytest.mark.parametrize("name", [name for name, entry in shipped().items() if entry.kind == "graph"])
def test_shipped_references_of_graphs_are_small(name):
    assert reference_file(name).stat().st_size < 500_000


def _another_version(path: Path) -> None:
    with np.load(path) as arrays:
        meta = json.loads(str(arrays["graph_summary"])) | {"version": 99}
        changed = dict(arrays) | {"graph_summary": np.array(json.dumps(meta))}
    np.savez_compressed(path, **changed)


def _fewer_rows(path: Path) -> None:
    with np.load(path) as arrays:
        changed = dict(arrays) | {"test/degree": arrays["test/degree"][1:]}
    np.savez_compressed(path, **changed)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b"not an archive"), "not a reference file"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "not a reference file"),
        (lambda path: np.savez(path, version=np.array(1)), "not a reference file"),
        (lambda path: np.savez(path, version=np.array([{}], dtype=object)), "not a reference file"),
        (lambda path: path.unlink(), "cannot read .*No such file"),
        (_another_version, "version 99, expected 1"),
        (_fewer_rows, "no statistics degree"),
    ],
)
def test_another_file_is_refused_in_one_line(reference, tmp_path, spoil, message):
    path = tmp_path / "reference.npz"
    reference.save(path)
    spoil(path)
    with pytest.raises(InputError, match=message) as caught:
        GraphSummary.load(path)
    assert "\n" not in str(caught.value)


def test_a_reference_without_nodes_is_refused():
    with pytest.raises(InputError, match="no graph with nodes"):
        GraphReference.fit([Graph.of(0, [])])
