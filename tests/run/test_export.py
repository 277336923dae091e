"""Run folders of molecules, and the formats of other tools."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256

import pytest

from isostep.base.errors import InputError
from isostep.item.graph import read_graphs
from isostep.metric.items import gather
from isostep.model.analytic import analytic_model
from isostep.model.released.convert import load_released
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.export import export_items
from isostep.run.reading import read_run
from tests.conftest import FIXTURES

PLAN = {"schedule": "uniform", "steps": 3, "batch_size": 4, "shard_size": 8}
MOLECULES = FIXTURES / "grum" / "mol.pth"


def lines(folder) -> list[tuple[int, str]]:
    return list(read_run(folder).lines())


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("molecules")
    model = load_released(MOLECULES, "raw")
    sample_run(model, 10, folder, schedule="uniform", steps=2, batch_size=4, shard_size=4, corrector="none")
    return folder


def test_molecules_are_written_with_index_and_validity(molecules):
    rows = [line.split("\t") for _, line in lines(molecules)]
    assert [int(row[1]) for row in rows] == list(range(10))
    assert {row[2] for row in rows} <= {"0", "1"}
    assert len(gather(molecules)) == 10


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_export_of_molecules(tmp_path, molecules, suffix):
    assert export_items(molecules, tmp_path / f"a.smi{suffix}", "smi") == 10
    opener = gzip.open if suffix else open
    with opener(tmp_path / f"a.smi{suffix}", "rt") as file:
        assert file.read().splitlines() == [line for _, line in lines(molecules)]
    export_items(molecules, tmp_path / "a.sdf", "sdf")
    kept = [line for _, line in lines(molecules) if not line.startswith("\t")]
    assert (tmp_path / "a.sdf").read_text().count("$$$$") == len(kept)


def test_export_of_graphs_round_trips(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    sample_run(analytic_model(), 20, tmp_path / "run", start=3, **PLAN)
    stored = [json.loads(line) for _, line in lines(tmp_path / "run")]
    export_items(tmp_path / "run", tmp_path / "a.parquet", "parquet")
    rows = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [row["index"] for row in rows] == list(range(3, 23))
    assert [{"n": row["n"], "edges": row["edges"]} for row in rows] == stored
    assert all(row["finished"] for row in rows)
    export_items(tmp_path / "run", tmp_path / "a.jsonl.gz", "jsonl")
    assert [g.to_line() for g in read_graphs(tmp_path / "a.jsonl.gz")] == [line for _, line in lines(tmp_path / "run")]
    with pytest.raises(InputError, match="holds graphs, which cannot be written as smi"):
        export_items(tmp_path / "run", tmp_path / "a.smi", "smi")


@pytest.mark.parametrize("joined", [True, False])
def test_an_export_does_not_replace_files_of_the_run(tmp_path, monkeypatch, joined):
    if not joined:
        monkeypatch.setattr(writer, "JOINED", 0)
    run = tmp_path / "run"
    sample_run(analytic_model(), 20, run, trace=True, **PLAN)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (tmp_path / "link").symlink_to(run / "run.json")
    (tmp_path / "same").symlink_to(run)
    names = ("plan.json", "graphs.jsonl", "molecules.smi", "shards.jsonl", "shards/000000.jsonl.gz", "shards/new.jsonl")
    own = [*before, *(run / name for name in names), tmp_path / "link", tmp_path / "same" / "trace.json"]
    for out in (*own, run / ".." / "run" / "run.json"):
        for folder in (run, tmp_path / "same"):
            with pytest.raises(InputError, match="is the run's own; choose another file"):
                export_items(folder, out, "jsonl")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert export_items(run, run / "mine.jsonl", "jsonl") == 20


def test_the_summary_of_a_run_counts_valid_molecules(molecules):
    run = read_run(molecules)
    assert run.record is not None
    assert run.record.summary["valid"] == sum(molecule.valid for _, molecule in run.items()) / 10


def test_a_line_with_another_index_is_refused(molecules, tmp_path):
    rows = (molecules / "molecules.smi").read_text().splitlines()
    (tmp_path / "molecules.smi").write_text("".join(row + "\n" for row in [rows[1], rows[0], *rows[2:]]))
    record = json.loads((molecules / "run.json").read_text())
    record["joined"]["sha256"] = sha256((tmp_path / "molecules.smi").read_bytes()).hexdigest()
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"item 0: expected SMILES<TAB>0<TAB>valid"):
        export_items(tmp_path, tmp_path / "a.smi", "smi")
    assert not (tmp_path / "a.smi").exists()
