"""Two sets against one reference: equal sets are not told apart, different ones are, and the values are evaluate's."""

from __future__ import annotations

import itertools
import json

import networkx as nx
import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.item import Graph, write_items
from isostep.metric.contrast import contrast
from isostep.metric.evaluate import evaluate
from isostep.metric.suite import build_reference
from tests.cli.command import isostep, refused

KEYS = ("degree", "spectral")


def drawn(chance: float, first: int, count: int = 30) -> list[Graph]:
    seeds = range(first, first + count)
    return [Graph.of(14, list(nx.gnp_random_graph(14, chance, seed=seed).edges)) for seed in seeds]


@pytest.fixture
def files(tmp_path):
    sets = {"a": drawn(0.3, 0), "b": drawn(0.3, 100), "far": drawn(0.7, 200), "test": drawn(0.3, 300)}
    for name, graphs in sets.items():
        write_items(tmp_path / f"{name}.jsonl", graphs)
    return tmp_path


def test_sets_of_one_law_are_not_told_apart_and_others_are(files):
    same, _ = contrast(files / "a.jsonl", files / "b.jsonl", files / "test.jsonl", "tv", KEYS, resamples=300)
    far, _ = contrast(files / "a.jsonl", files / "far.jsonl", files / "test.jsonl", "tv", KEYS, resamples=300)
    report = evaluate(files / "b.jsonl", files / "test.jsonl", "tv", KEYS, resamples=0)
    for row in same:
        assert row.other[0] == pytest.approx(report.values[row.metric].value, abs=1e-12)
        assert row.difference[0] == pytest.approx(row.other[0] - row.first[0])
        assert row.difference[1] < 0 < row.difference[2]
        assert row.p > 0.05
    for row in far:
        assert row.difference[1] > 0
        assert row.p == pytest.approx(1 / 301)  # no split of both sets is as far apart


def test_a_set_is_unique_by_itself_and_shares_stay_in_their_range(tmp_path):
    """Two files with the same planar graphs, one of which each holds twice."""
    cycles = [Graph.from_networkx(nx.cycle_graph(n)) for n in (64, 64, *range(65, 73))]
    for name in ("one", "two"):
        write_items(tmp_path / f"{name}.jsonl", cycles)
    keys = ("unique", "vun", "connected", "novel")
    rows, _ = contrast(tmp_path / "one.jsonl", tmp_path / "two.jsonl", "planar", None, keys, resamples=200)
    report = evaluate(tmp_path / "one.jsonl", "planar", metrics=keys)
    for row in rows:
        alone = report.values[row.metric]
        assert row.first[0] == row.other[0] == alone.value == (0.9 if row.metric in ("unique", "vun") else 1)
        for low, high in (row.first[1:], row.other[1:]):
            assert 0 <= low < row.first[0] <= high <= 1
        assert row.difference[0] == 0
        assert -1 <= row.difference[1] < 0 < row.difference[2] <= 1
        assert row.p == 1
    assert rows[-1].first == (1, report.values["novel"].low, 1)  # Wilson's, where resampling is silent
    reach = 1 - rows[-1].first[1]
    assert rows[-1].difference == pytest.approx((0, -reach, reach))  # and Newcombe's


def test_p_of_uniqueness_is_that_of_all_splits_judged_one_by_one(tmp_path):
    sizes = [(5, 6, 7, 8), (9, 9, 9, 5)]  # of cycles
    for name, lengths in zip("ab", sizes, strict=True):
        write_items(tmp_path / f"{name}.jsonl", [Graph.from_networkx(nx.cycle_graph(n)) for n in lengths])
    both = np.array(sum(sizes, ()))
    gaps = []
    for chosen in itertools.combinations(range(8), 4):
        part = np.isin(np.arange(8), chosen)
        gaps.append(abs(len(set(both[~part])) - len(set(both[part]))) / 4)
    files = [tmp_path / f"{name}.jsonl" for name in "aba"]
    (row,), _ = contrast(*files, "tv", ["unique"], resamples=2000)
    assert row.difference[0] == -0.5
    assert row.p == pytest.approx(np.mean(np.array(gaps) >= 0.5), abs=0.04)


def test_the_command_prints_both_and_refuses_molecules(files):
    words = ("evaluate", files / "a.jsonl", "--versus", files / "far.jsonl", "--reference", files / "test.jsonl")
    words = (*map(str, words), "--metrics", "degree", "--resamples", "50")
    (row,) = json.loads(isostep(*words, "--json").out)
    assert row["p_holm"] == row["p"] == pytest.approx(1 / 51)
    assert "far" in isostep(*words).out
    (files / "m.smi").write_text("CCO\nCC\n")
    with pytest.raises(InputError, match="two sets of graphs"):
        contrast(files / "a.jsonl", files / "m.smi", files / "test.jsonl")


def test_lines_that_cannot_be_used_are_said_or_fatal_and_workers_refused(files):
    good = (files / "a.jsonl").read_text().splitlines()
    (files / "bad.jsonl").write_text("\n".join([good[0], "no graph", good[1], '{"n": 2, "edges": [[0, 7]]}']))
    for first, other in (("bad", "b"), ("b", "bad")):
        sets = (files / f"{first}.jsonl", "--versus", files / f"{other}.jsonl", "--reference", files / "test.jsonl")
        words = ("evaluate", *sets, "--metrics", "degree", "--resamples", 10)
        for form in ((), ("--json",)):
            ended = isostep(*words, *form)
            assert ended.code == 0
            assert ended.err.startswith("2 lines could not be used:\n  ")
            assert "bad.jsonl, line 2: " in ended.err
        assert "bad.jsonl, line 2: " in refused(*words, "--strict")
    assert "leave out --workers 2" in refused(*words, "--workers", 2)


def test_a_reference_of_the_validation_split(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path))
    test, val = (build_reference("planar", split=split) for split in ("test", "val"))
    assert (len(test.test), len(val.test), len(val.train)) == (40, 32, len(test.train))
    with pytest.raises(InputError, match="community-small has no val split"):
        build_reference("community-small", split="val")
    with pytest.raises(InputError, match="the test or the val split"):
        build_reference("planar", split="train")
