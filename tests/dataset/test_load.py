"""Datasets: published counts and splits, sources in order, the cache, and errors that name file and line."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import pytest

from isostep.base.cache import cache_folder
from isostep.base.errors import InputError
from isostep.dataset import load, names
from isostep.dataset.read import csv_rows

COUNTS = {
    "planar": (128, 32, 40),
    "sbm": (128, 32, 40),
    "ego-small": (160, 0, 40),
    "community-small": (80, 0, 20),
    "enzymes": (470, 0, 117),
    "grid": (80, 0, 20),
}
MOLECULES = {"qm9": (120_803, 13_082), "zinc250k": (224_568, 24_887)}


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No data folder in sight, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def counts(dataset) -> tuple[int, ...]:
    return tuple(len(dataset.split(which)) for which in ("train", "val", "test"))


@pytest.mark.parametrize("name", COUNTS)
def test_graph_benchmarks_have_the_published_rows_and_split(shared, name):
    dataset = load(name, shared / "data")
    text = (shared / "data" / f"{name.replace('-', '_')}.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert counts(dataset) == COUNTS[name]
    assert dataset.kind == "graph"
    assert dataset.spec is None
    for graph, record in zip(dataset.split("all"), records, strict=True):
        assert graph.n == record["n"]
        assert graph.edges.tolist() == sorted(sorted(edge) for edge in record["edges"])
    if "split" in records[0]:
        test = [record["edges"] for record in records if record["split"] == "test"]
    else:
        test = [record["edges"] for record in records[: len(records) // 5]]
    assert [graph.edges.tolist() for graph in dataset.split("test")] == test


@pytest.mark.parametrize("name", MOLECULES)
def test_molecule_files_have_the_published_split(shared, name):
    test = [is_test for _, _, is_test in csv_rows(shared / "data" / f"{name}.csv.gz")]
    assert (len(test) - sum(test), sum(test)) == MOLECULES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", MOLECULES)
def test_whole_molecule_benchmarks_are_the_same_from_the_cache(shared, name):
    first, dataset = (load(name, shared / "data") for _ in range(2))
    assert (len(dataset.split("train")), len(dataset.split("test"))) == MOLECULES[name]
    assert dataset.split("test") == first.split("test")
    assert len(dataset.encoded("train")) == MOLECULES[name][0]
    assert dataset.node_counts().sum() == MOLECULES[name][0]
    assert dataset.spec is not None
    assert len(dataset.node_counts()) == dataset.spec.max_nodes + 1


def write_csv(path, rows, opener=open):
    with opener(path, "wt") as file:
        csv.writer(file).writerows(rows)


ROWS = [("smiles", "test"), ("CCO", 0), ("c1ccccc1", 1), ("N", 0), ("C#N", 1)]


@pytest.mark.parametrize(("file", "opener"), [("qm9.csv", open), ("qm9.csv.gz", gzip.open)])
def test_molecules_of_a_named_folder(alone, file, opener):
    write_csv(alone / file, ROWS, opener)
    for _ in range(2):  # parsed, then from the cache
        dataset = load("qm9", alone)
        assert dataset.source == str(alone / file)
        assert dataset.split("train") == ["CCO", "N"]
        assert dataset.split("test") == ["c1ccccc1", "C#N"]
        assert dataset.split("val") == []
        assert dataset.encoded("test").counts.tolist() == [6, 2]
        assert dataset.encoded("test")[1].bonds.tolist() == [[0, 1, 3]]
        assert dataset.node_counts("train").tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("smiles,test\nCC,0\nCC,2\n", 3, "test 0 or 1"),
        ("smiles,test\nCC,0\n\nCC\n", 4, "test 0 or 1"),
        ("smiles,test\nCC,0\nC(,1\n", 3, "cannot read"),
        ("smiles,test\n[Si],0\n", 2, "holds Si"),
        ("smiles,test\nCCCCCCCCCC,0\n", 2, "heavy atoms"),
        ("name,split\nCC,0\n", 1, "columns"),
        ("", 1, "columns"),
    ],
)
def test_bad_molecule_rows_name_file_and_line(alone, text, line, reason):
    (alone / "qm9.csv").write_text(text)
    with pytest.raises(InputError, match=rf"qm9\.csv, line {line}: .*{reason}"):
        load("qm9", alone)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"n": 2, "edges": [[0, 1]]}\n{"n": 2}\n', 2, "expected"),
        ('{"n": 2, "edges": [], "split": "dev"}\n', 1, "dev"),
        ('{"n": 2, "edges": []}\n{"n": 2, "edges": [], "split": "test"}\n', 2, "all lines or in none"),
    ],
)
def test_bad_graph_lines_name_file_and_line(alone, text, line, reason):
    (alone / "planar.jsonl").write_text(text)
    with pytest.raises(InputError, match=rf"planar\.jsonl, line {line}: .*{reason}"):
        load("planar", alone)


def test_empty_and_truncated_files_are_input_errors(alone):
    (alone / "grid.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no graph"):
        load("grid", alone)
    (alone / "zinc250k.csv").write_text("smiles,test\n")
    with pytest.raises(InputError, match="no molecule"):
        load("zinc250k", alone)
    (alone / "qm9.csv.gz").write_bytes(gzip.compress(b"smiles,test\n" + b"CC,0\n" * 99)[:-9])
    with pytest.raises(InputError, match="cannot read"):
        load("qm9", alone)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "folder"])
def test_a_damaged_cache_is_built_anew(alone, damage):
    write_csv(alone / "qm9.csv", ROWS)
    load("qm9", alone)
    (path,) = (cache_folder() / "dataset").glob("qm9-*.npz")
    whole = path.read_bytes()
    middle = whole.index(b"c1ccccc1")
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "cut": whole[: len(whole) // 2],
                "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
                "text": b"not a zip file",
            }[damage]
        )
    assert load("qm9", alone).split("test") == ["c1ccccc1", "C#N"]
    if damage != "folder":
        assert path.read_bytes() == whole


def test_a_pickle_in_the_cache_is_never_executed(alone):
    write_csv(alone / "qm9.csv", ROWS)
    load("qm9", alone)
    (path,) = (cache_folder() / "dataset").glob("qm9-*.npz")

    class Payload:
        def __reduce__(self):
            return open, (str(alone / "executed"), "w")

    np.savez(path, smiles=np.array([Payload()], dtype=object))
    assert load("qm9", alone).split("train") == ["CCO", "N"]
    assert not (alone / "executed").exists()


def test_changed_content_is_parsed_again(alone):
    write_csv(alone / "qm9.csv", ROWS)
    assert len(load("qm9", alone).split("all")) == 4
    write_csv(alone / "qm9.csv", ROWS[:-1])
    assert len(load("qm9", alone).split("all")) == 3


def test_a_cache_that_cannot_be_written_does_no_harm(alone, monkeypatch):
    (alone / "file").write_text("")
    monkeypatch.setenv("ISOSTEP_CACHE", str(alone / "file"))
    assert len(load("community-small").split("train")) == 80


@pytest.mark.parametrize("name", ["planar", "sbm", "community-small"])
def test_without_files_a_seeded_generator_stands_in_and_says_so(alone, name):
    dataset = load(name)
    assert dataset.source.startswith("stand-in, generated")
    assert "seed 0" in dataset.source
    assert counts(dataset) == COUNTS[name]


def test_small_generated_sets_have_thousands_of_training_graphs(alone):
    planar, sbm, communities = load("planar-small"), load("sbm-small"), load("communities")
    assert counts(planar) == (4096, 128, 128)
    assert counts(sbm) == counts(communities) == (2048, 128, 128)
    assert np.flatnonzero(planar.node_counts()).tolist() == [8, 9, 10]
    assert np.flatnonzero(communities.node_counts()).tolist() == [12, 14, 16, 18, 20]
    assert np.flatnonzero(sbm.node_counts()).min() >= 12
    assert np.flatnonzero(sbm.node_counts()).max() <= 27


def test_the_environment_names_the_folder(alone, monkeypatch):
    (alone / "planar.jsonl").write_text('{"n": 2, "edges": [[0, 1]], "split": "val"}\n')
    monkeypatch.setenv("ISOSTEP_DATA", str(alone))
    assert counts(load("planar")) == (0, 1, 0)


def test_the_folder_may_have_a_folder_for_data(alone, monkeypatch):
    (alone / "data").mkdir()
    (alone / "data" / "grid.jsonl").write_text('{"n": 2, "edges": [[0, 1]]}\n' * 10)
    monkeypatch.setenv("ISOSTEP_DATA", str(alone))
    assert counts(load("grid")) == (8, 0, 2)


def test_nothing_outside_the_setting_is_looked_at(alone, monkeypatch):
    monkeypatch.delenv("ISOSTEP_DATA")
    (alone / "here").mkdir()
    (alone / "shared" / "data").mkdir(parents=True)
    for place in (alone / "here", alone / "shared" / "data"):
        (place / "grid.jsonl").write_text('{"n": 2, "edges": [[0, 1]]}\n' * 10)
    monkeypatch.chdir(alone / "here")
    with pytest.raises(InputError, match="grid was not found"):
        load("grid")


def test_a_named_folder_without_the_file_is_an_error_even_if_a_generator_exists(alone):
    with pytest.raises(InputError, match=r"planar\.jsonl"):
        load("planar", alone)


@pytest.mark.parametrize("name", ["ego-small", "enzymes", "grid"])
def test_what_cannot_be_found_lists_the_options(alone, name):
    with pytest.raises(InputError, match=r"ISOSTEP_DATA"):
        load(name)


def test_names_are_forgiving_and_unknown_ones_listed(alone):
    assert load("Community_Small").name == "community-small"
    with pytest.raises(InputError, match="known are qm9"):
        load("moses")
    assert {"qm9", "qm9-3d", "zinc250k", *COUNTS, "communities", "planar-small", "sbm-small"} == set(names())


def test_wrong_questions_are_input_errors(alone):
    dataset = load("community-small")
    with pytest.raises(InputError, match="dev"):
        dataset.split("dev")
    with pytest.raises(InputError, match="graphs, not molecules"):
        dataset.encoded("train")
