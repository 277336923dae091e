"""The reference of a study is that of the model's dataset; one that does not ship is built once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.dataset import load
from isostep.dataset.catalogue import CATALOGUE, Benchmark
from isostep.dataset.generate import generate_planar
from isostep.dataset.read import in_order
from isostep.item import Graph
from isostep.metric import mmd
from isostep.metric.evaluate import evaluate, metric_names
from isostep.metric.graph_reference import GraphReference
from isostep.metric.suite import build_reference, check_metrics
from isostep.model.lookup import embedded_names, load_model
from isostep.study.reference import find_reference

METRICS = ("degree", "clustering", "orbit", "spectral", "novel")


@pytest.fixture
def tiny(monkeypatch, tmp_path) -> str:
    """A generated dataset of its own, in a cache of its own."""
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path))
    entry = Benchmark(
        "tiny", "tiny", in_order(24, 8, 8), generate=lambda: generate_planar(40, (8, 10), seed=3), recipe="x"
    )
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    return "tiny"


def test_a_generated_dataset_is_fitted_once(tiny, tmp_path):
    found = find_reference(tiny, None)
    assert isinstance(found.reference, GraphReference)
    want = GraphReference.fit(load(tiny).split("test"))
    for name in ("degree", "orbit"):
        np.testing.assert_array_equal(found.reference.table("test", name), want.table("test", name))
    assert (found.name, found.kernel) == ("tiny", "tv")
    (file,) = (tmp_path / "cache" / "reference").iterdir()
    before = file.stat().st_mtime_ns
    assert find_reference(tiny, "emd").sha256 == found.sha256
    assert file.stat().st_mtime_ns == before


def test_fewer_rows_for_the_floor_leave_the_values_alone(tiny, monkeypatch):
    graphs = load(tiny).split("train")[:10]
    whole = evaluate(graphs, build_reference(tiny), "tv", METRICS, resamples=0)
    monkeypatch.setattr(mmd, "FLOOR_ROWS", 3)
    found = find_reference(tiny, "tv")
    cut = evaluate(graphs, found.reference, "tv", METRICS, resamples=0)
    assert {key: value.value for key, value in cut.values.items()} == {k: v.value for k, v in whole.values.items()}
    assert cut.values["degree"].floor != whole.values["degree"].floor


def test_every_embedded_model_names_a_known_dataset():
    for name in embedded_names():
        assert load_model(name).info.dataset in CATALOGUE


def test_a_file_is_not_the_set_that_it_is_named_after(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = json.dumps({"n": 3, "edges": [[0, 1]]})
    for name in ("community-small.jsonl", "planar.jsonl", "planar"):
        Path(name).write_text(f"{line}\n" * 3)
    found = find_reference("community-small.jsonl", None)
    assert (found.name, found.kernel) == ("community-small.jsonl", "tv")
    assert found.kernel == evaluate([Graph.of(3, [(0, 1)])], "community-small.jsonl", resamples=0).kernel
    assert find_reference("planar.jsonl", None).rule is None
    assert find_reference(str(tmp_path / "planar.jsonl"), None).name == "planar.jsonl"
    named = find_reference("planar", None)  # as in `evaluate`, a name of the package goes before a file
    assert (named.rule, len(named.reference.test)) == ("planar", 40)


def test_unknown_names_are_told():
    with pytest.raises(InputError, match="nowhere"):
        find_reference("nowhere", None)


@pytest.mark.parametrize("name", ["planar", "sbm", "community_small", "qm9"])
def test_what_evaluate_measures_a_study_takes(name):
    found = find_reference(name, None)
    check_metrics(found.reference.kind, found.reference, metric_names(found.reference, found.rule), name, found.rule)


def test_without_a_rule_graphs_are_not_valid_or_invalid():
    found = find_reference("community_small", None)
    with pytest.raises(InputError, match="unknown metric 'valid'"):
        check_metrics("graph", found.reference, ["valid"], "community_small", found.rule)
