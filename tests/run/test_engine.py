"""Run folders: the graphs of a run do not depend on how it is cut, who makes them, or where it was interrupted."""

from __future__ import annotations

import json

import pytest

from isostep.base.errors import InputError
from isostep.item.graph import read_graphs
from isostep.metric.items import gather
from isostep.model.analytic import analytic_model
from isostep.model.lookup import load_model
from isostep.run import writer
from isostep.run.engine import sample_run, save_result
from isostep.run.inspect import status, verify
from isostep.run.reading import read_run
from isostep.sampling.run import sample
from tests.conftest import FIXTURES

PLAN = {"schedule": "uniform", "steps": 3, "batch_size": 4, "shard_size": 8}


def lines(folder) -> list[tuple[int, str]]:
    return list(read_run(folder).lines())


@pytest.mark.parametrize("clock", ["graph", "batch"])
def test_a_run_in_shards_holds_the_graphs_of_one_in_memory(tmp_path, clock):
    options = {"schedule": "dvs", "steps": 3, "seed": 5, "start": 6, "batch_size": 4, "clock": clock}
    summary = sample_run(analytic_model(), 21, tmp_path, shard_size=8, **options)
    whole = sample(analytic_model(), 21, **options)
    found = read_graphs(tmp_path / "graphs.jsonl")
    assert [graph.to_line() for graph in found] == [graph.to_line() for graph in whole.graphs]
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
    monkeypatch.setattr(writer, "JOINED", 0)
    told = []
    sample_run(analytic_model(), 30, tmp_path / "one", **PLAN)
    sample_run(analytic_model(), 30, tmp_path / "two", workers=2, advance=told.append, **PLAN)
    for path in (tmp_path / "one" / "shards").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "shards" / path.name).read_bytes()
    assert sum(told) == pytest.approx(30)


def test_a_repeated_command_makes_nothing_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "JOINED", 0)
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


@pytest.mark.parametrize(
    ("extent", "words"),
    [
        ({"shard_size": 6}, "not a multiple of the batch size"),
        ({"shard_size": 0}, "the shard size must be"),
        ({"shard_size": 2**21}, "the shard size must be"),
        ({"batch_size": 0}, "the batch size must be"),
        ({"n": 2**40 + 1}, "at most 2"),
        ({"start": 2**40}, "at most 2"),
    ],
    ids=str,
)
def test_an_extent_that_cannot_be_is_refused(tmp_path, extent, words):
    """A shard holds whole batches."""
    with pytest.raises(InputError, match=words):
        sample_run(analytic_model(), **{**PLAN, "n": 8, "out": tmp_path / "run", **extent})
    assert not (tmp_path / "run").exists()


def test_the_last_indices_can_be_sampled(tmp_path):
    assert sample_run(analytic_model(), 20, tmp_path, start=2**40 - 20, **PLAN)["done"] == 20


def test_the_trace_is_of_the_first_batch_or_where_clocks_are_own_of_the_first_shard(tmp_path):
    chosen = {"schedule": "dvs", "steps": 20, "batch_size": 2, "shard_size": 4, "trace": True}
    for clock, graphs in (("graph", {5, 6, 7}), ("batch", {-1})):
        sample_run(analytic_model(), 8, tmp_path / clock, start=5, clock=clock, **chosen)
        assert set(json.loads((tmp_path / clock / "trace.json").read_text())["graph"]) == graphs


def test_evaluation_reads_a_run_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "JOINED", 0)
    sample_run(analytic_model(), 20, tmp_path, **PLAN)
    assert [graph.to_line() for graph in gather(tmp_path).members] == [line for _, line in lines(tmp_path)]


def test_status_of_a_complete_run(tmp_path):
    sample_run(analytic_model(), 20, tmp_path, **PLAN)
    report = status(tmp_path)
    assert (report["state"], report["graphs"], report["shards_done"], report["shards"]) == ("complete", 20, 3, 3)
    assert report["graphs_per_second"] > 0


def interrupted(folder, seconds: list[tuple[float, float]]) -> None:
    """A run of 32 graphs stopped in its fourth shard, as if the three before were made in these spans of time."""

    def stop(graphs: float) -> None:
        if read_run(folder).count == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_run(analytic_model(), 32, folder, advance=stop, **PLAN)
    records = read_run(folder).shards.values()
    spans = zip(records, seconds, strict=True)
    lines = [shard.model_copy(update={"at": to, "seconds": to - since}) for shard, (since, to) in spans]
    (folder / "shards.jsonl").write_text("".join(line.model_dump_json() + "\n" for line in lines))


def test_a_continued_run_counts_the_time_of_all_its_parts(tmp_path):
    """Shards made at the same time count once, pauses not at all."""
    interrupted(tmp_path, [(1000, 1100), (1050, 1150), (5000, 5100)])
    assert status(tmp_path)["graphs_per_second"] == pytest.approx(16 / 150)
    summary = sample_run(analytic_model(), 32, tmp_path, **PLAN)
    assert 250 < summary["wall_seconds"] < 300
    assert status(tmp_path)["graphs_per_second"] == pytest.approx(32 / summary["wall_seconds"])


def test_no_rate_is_made_up_for_shards_whose_times_are_lost(tmp_path):
    interrupted(tmp_path, [(1000, 1100), (1100, 1200), (1200, 1300)])
    (tmp_path / "shards.jsonl").unlink()
    assert "wall_seconds" not in sample_run(analytic_model(), 32, tmp_path, **PLAN)
    assert status(tmp_path)["graphs_per_second"] is None


# --- what was sampled in memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["step", "path"])
def test_a_saved_result_is_a_run_that_can_be_verified_and_repeated(tmp_path, noise):
    model = analytic_model()
    options = {"schedule": "dvs", "steps": 4, "seed": 2, "start": 5, "batch_size": 4}
    result = sample(model, 10, noise=noise, **options)
    save_result(result, tmp_path)
    run = read_run(tmp_path)
    assert [line for _, line in run.lines()] == result.lines()
    assert run.record is not None
    assert run.record.summary == json.loads(json.dumps(result.summary()))
    verdict = verify(tmp_path, model, batches=3)
    assert verdict.ok
    assert verdict.regenerated
    save_result(result, tmp_path)  # again: nothing to do
    with pytest.raises(InputError, match="holds another run: its seed is 2, not 3"):
        save_result(sample(model, 10, noise=noise, **{**options, "seed": 3}), tmp_path)


def test_the_noise_belongs_to_the_plan(tmp_path):
    """Graphs of a path are not those of the same command without."""
    save_result(sample(analytic_model(), 10, schedule="uniform", steps=4, noise="path"), tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**record, "noise": "step"}))
    assert "differ when sampled again" in verify(tmp_path, analytic_model()).bad[0][1]


def test_noise_of_ones_own_cannot_be_saved_as_a_run(tmp_path):
    from isostep.noise import BrownianTree

    result = sample(analytic_model(), 4, schedule="uniform", steps=4, noise=BrownianTree(7))
    with pytest.raises(InputError, match="can be repeated"):
        save_result(result, tmp_path)
    with pytest.raises(InputError, match="noise must be"):
        sample(analytic_model(), 4, noise="none")  # type: ignore[arg-type]


def test_a_run_with_a_preset_is_verified_with_a_loaded_model(tmp_path):
    file = FIXTURES / "grum" / "mol.pth"
    sample_run(file, 2, tmp_path, preset="grum-qm9", steps=2)
    assert verify(tmp_path, load_model(file, preset="grum-qm9")).ok
    assert verify(tmp_path, file).ok
