"""Run folders: the graphs of a run do not depend on how it is cut, who makes them, or where it was interrupted."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.base.errors import InputError
from isostep.item.graph import read_graphs
from isostep.metric.items import gather
from isostep.model.analytic import analytic_model
from isostep.model.released.convert import load_released
from isostep.run import format as shards
from isostep.run.cost import Measured, estimate, measure, simulate
from isostep.run.engine import sample_run
from isostep.run.export import export_run
from isostep.run.format import Plan, read_state
from isostep.run.inspect import status, verify
from isostep.sampling.run import sample
from isostep.settings.schema import SamplerSettings
from tests.conftest import FIXTURES

PLAN = {"schedule": "uniform", "steps": 3, "batch_size": 4, "shard_size": 8}
MOLECULES = FIXTURES / "grum" / "mol.pth"


def lines(folder) -> list[tuple[int, str]]:
    return list(read_state(folder).lines())


@given(st.integers(0, 100), st.integers(1, 200), st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_shards_cover_the_indices_once_in_whole_batches(start, n, batch, times):
    plan = Plan(
        model="m", card={}, fingerprint="0" * 64, kind="graph", asked={}, settings=SamplerSettings(), seed=0,
        start=start, n=n, batch_size=batch, shard_size=batch * times,
    )  # fmt: skip
    tasks = [plan.task(k) for k in range(plan.count)]
    assert [i for task in tasks for i in range(task.start, task.start + task.n)] == list(range(start, start + n))
    assert all(task.start % batch == 0 for task in tasks[1:])


@pytest.mark.parametrize("clock", ["graph", "batch"])
def test_a_run_in_shards_holds_the_graphs_of_one_in_memory(tmp_path, clock):
    options = {"schedule": "dvs", "steps": 3, "seed": 5, "start": 6, "batch_size": 4, "clock": clock}
    summary = sample_run(analytic_model(), 21, tmp_path, shard_size=8, **options)
    whole = sample(analytic_model(), 21, **options)
    found = read_graphs(tmp_path / "graphs.jsonl")
    assert [graph.to_json() for graph in found] == [graph.to_json() for graph in whole.graphs]
    account = whole.summary()
    assert {key: summary[key] for key in account if key not in ("seconds", "batch_calls")} == {
        key: account[key] for key in account if key not in ("seconds", "batch_calls")
    }


def test_a_small_run_ends_as_one_file(tmp_path):
    sample_run(analytic_model(), 20, tmp_path, trace=True, **PLAN)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "graphs.jsonl", "run.json", "trace.json"]
    assert verify(tmp_path).regenerated
    (tmp_path / "graphs.jsonl").write_text((tmp_path / "graphs.jsonl").read_text().replace("[0,1]", "[0,2]", 1))
    assert not verify(tmp_path, repair=True).ok
    sample_run(analytic_model(), 20, tmp_path, trace=True, **PLAN)
    assert verify(tmp_path).ok


def test_two_workers_write_the_files_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "JOINED", 0)
    told = []
    sample_run(analytic_model(), 30, tmp_path / "one", **PLAN)
    sample_run(analytic_model(), 30, tmp_path / "two", workers=2, advance=told.append, **PLAN)
    for path in (tmp_path / "one" / "shards").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "shards" / path.name).read_bytes()
    assert sum(told) == pytest.approx(30)


def test_a_repeated_command_makes_nothing_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "JOINED", 0)
    first = sample_run(analytic_model(), 20, tmp_path, **PLAN)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"}
    assert sample_run(analytic_model(), 20, tmp_path, **PLAN) == first
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"}


def test_what_was_measured_is_taken_from_the_folder(tmp_path, monkeypatch):
    """A pilot measured again could differ in the last digit: the run would not be the same."""
    options = {**PLAN, "schedule": "arclength"}
    sample_run(analytic_model(), 8, tmp_path / "run", **options)
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "empty"))
    sample_run(analytic_model(), 8, tmp_path / "run", **options)
    assert not (tmp_path / "empty").exists()


def test_a_shard_must_hold_whole_batches(tmp_path):
    with pytest.raises(InputError, match="not a multiple of the batch size"):
        sample_run(analytic_model(), 8, tmp_path, **{**PLAN, "shard_size": 6})


def test_evaluation_reads_a_run_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "JOINED", 0)
    sample_run(analytic_model(), 20, tmp_path, **PLAN)
    assert [graph.to_json() for graph in gather(tmp_path).graphs] == [line for _, line in lines(tmp_path)]


def test_status_of_a_complete_run(tmp_path):
    sample_run(analytic_model(), 20, tmp_path, **PLAN)
    report = status(tmp_path)
    assert (report["state"], report["graphs"], report["shards_done"], report["shards"]) == ("complete", 20, 3, 3)
    assert report["graphs_per_second"] > 0


# --- molecules and formats -------------------------------------------------------------------------------------------


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
    assert export_run(molecules, tmp_path / f"a.smi{suffix}", "smi") == 10
    opener = gzip.open if suffix else open
    with opener(tmp_path / f"a.smi{suffix}", "rt") as file:
        assert file.read().splitlines() == [line for _, line in lines(molecules)]
    export_run(molecules, tmp_path / "a.sdf", "sdf")
    kept = [line for _, line in lines(molecules) if not line.startswith("\t")]
    assert (tmp_path / "a.sdf").read_text().count("$$$$") == len(kept)


def test_export_of_graphs_round_trips(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    sample_run(analytic_model(), 20, tmp_path / "run", start=3, **PLAN)
    stored = [json.loads(line) for _, line in lines(tmp_path / "run")]
    export_run(tmp_path / "run", tmp_path / "a.parquet", "parquet")
    rows = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [row["index"] for row in rows] == list(range(3, 23))
    assert [{"n": row["n"], "edges": row["edges"]} for row in rows] == stored
    assert all(row["finished"] for row in rows)
    export_run(tmp_path / "run", tmp_path / "a.jsonl.gz", "jsonl")
    assert [g.to_json() for g in read_graphs(tmp_path / "a.jsonl.gz")] == [line for _, line in lines(tmp_path / "run")]
    with pytest.raises(InputError, match="holds graphs, which cannot be written as smi"):
        export_run(tmp_path / "run", tmp_path / "a.smi", "smi")


# --- cost ------------------------------------------------------------------------------------------------------------

EVEN = Measured(
    step_seconds=(0.5, 0.5), steps=10, decode_seconds=0, batch_size=10, bytes_per_graph=7, memory=1, weights=1
)


def test_the_formula_is_the_simulation_where_steps_are_even():
    for n, workers in ((1000, 1), (1000, 3), (1000, 7), (950, 100)):
        cost = estimate(EVEN, n, workers, shard_size=10)
        assert cost.seconds == pytest.approx(cost.low) == pytest.approx(cost.high) == -(-n // 10 // workers) * 5
        assert (cost.disk, cost.shards) == (7 * n, -(-n // 10))


def test_failures_cost_what_renewal_theory_says():
    """Work of length L that restarts at rate r takes (e^(rL) - 1) (1/r + pause) on average."""
    random, rate, length, pause = np.random.default_rng(0), 0.1, 5.0, 2.0
    ends = [simulate(length, 0.0, 1, 1, rate, pause, random) for _ in range(4000)]
    expected = (np.exp(rate * length) - 1) * (1 / rate + pause)
    assert np.mean(ends) == pytest.approx(expected, rel=0.05)


def test_the_measured_batch_is_the_real_one():
    settings = SamplerSettings(schedule="uniform", steps=30)
    cost = measure(analytic_model(), settings, batch_size=64)
    assert cost.steps == 30
    assert cost.memory > cost.weights > 0
    assert len(cost.step_seconds) >= 10
