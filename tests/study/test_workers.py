"""Studies in several processes, and cells that another study has computed: the same numbers, less work."""

from __future__ import annotations

import shutil

import pytest

from isostep.base.errors import InputError
from isostep.model.analytic import analytic_model
from isostep.run.workers import cores, count_workers
from isostep.study import reuse
from isostep.study.comparison import compare_arms
from isostep.study.compute import run_study
from isostep.study.record import load_study


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))


def _graphs(study) -> dict[str, bytes]:
    return {key.name: (key / "graphs.jsonl").read_bytes() for key in (study.store.folder / "runs").iterdir()}


def _numbers(study) -> list:
    return [[{**cell.model_dump(), "seconds": 0, "evaluating": 0} for cell in arm.values()] for arm in study.cells]


def test_two_processes_give_the_numbers_of_one(told, toy_plan, toy_study, tmp_path):
    study = run_study(toy_plan, tmp_path / "two", analytic_model(), workers=2, reuse=False)
    assert sorted(told) == sorted(f"{arm.name}, seed {seed}" for arm in toy_plan.arms for seed in toy_plan.seeds)
    assert _numbers(study) == _numbers(toy_study)
    kept = {cell.run for arm in study.cells for cell in arm.values()}
    assert _graphs(study) == {name: data for name, data in _graphs(toy_study).items() if name in kept}


def test_what_another_study_has_computed_is_copied(told, toy_plan, own_cache, tmp_path, monkeypatch):
    first = run_study(toy_plan, tmp_path / "first", analytic_model())
    told.clear()
    more = toy_plan.model_copy(update={"seeds": (0, 1, 2, 3)})
    second = run_study(more, tmp_path / "second", analytic_model())
    assert told == [f"{arm.name}, seed 3" for arm in toy_plan.arms]
    assert [cells[2] for cells in second.cells] == [cells[2] for cells in first.cells]
    assert second.recorded(0) is not None
    assert compare_arms(second)["arms"][1]["metrics"]["degree"]["values"].keys() == {0, 1, 2, 3}

    # Other metrics of the same graphs: nothing is sampled again.
    fewer = toy_plan.model_copy(update={"metrics": ("degree",)})
    third = run_study(fewer, tmp_path / "third", analytic_model())
    assert _graphs(third) == _graphs(first)
    assert all((tmp_path / "third" / "runs" / c.run / "path.json").is_file() for c in (third.cells[0][0],))

    told.clear()
    run_study(toy_plan, tmp_path / "fourth", analytic_model(), reuse=False)
    assert len(told) == 6
    told.clear()
    monkeypatch.setattr(reuse, "code_digest", lambda: "another program")
    run_study(toy_plan, tmp_path / "fifth", analytic_model())
    assert len(told) == 6


def test_a_damaged_or_vanished_run_is_computed_anew(told, toy_plan, own_cache, tmp_path):
    plan = toy_plan.model_copy(update={"arms": toy_plan.arms[:1], "seeds": (0, 1)})
    first = run_study(plan, tmp_path / "first", analytic_model())
    told.clear()
    damaged = first.store.run(first.cells[0][0].run) / "graphs.jsonl"
    damaged.write_text(damaged.read_text().replace("1", "2", 1))
    second = run_study(plan, tmp_path / "second", analytic_model())
    assert told == ["uniform, seed 0"]
    first.store.folder.rename(tmp_path / "gone")
    third = run_study(plan, tmp_path / "third", analytic_model())
    assert len(told) == 1  # both seeds are in the second study
    assert _numbers(second) == _numbers(third)


def test_the_rest_of_an_interrupted_run_is_no_run(told, toy_plan, own_cache, tmp_path):
    plan = toy_plan.model_copy(update={"arms": toy_plan.arms[:1], "seeds": (0,)})
    first = run_study(plan, tmp_path / "first", analytic_model())
    run = first.cells[0][0].run
    second = tmp_path / "second"
    shutil.copytree(first.store.run(run) / "at-0.00", second / "runs" / run / "at-0.00")
    told.clear()
    run_study(plan, second, analytic_model())
    assert told == ["uniform, seed 0"]
    assert _graphs(load_study(second)) == _graphs(first)

    # A run that is lost beside its cell is made again, too.
    shutil.rmtree(second / "runs")
    run_study(plan, second, analytic_model())
    assert _graphs(load_study(second)) == _graphs(first)


def test_a_model_that_cannot_travel_is_refused_in_one_line(toy_plan, tmp_path):
    model = analytic_model()
    model.network.hook = lambda: None  # type: ignore[assignment]: local, so not importable elsewhere
    with pytest.raises(InputError, match="cannot be sent to other processes"):
        run_study(toy_plan, tmp_path, model, workers=2, reuse=False)


@pytest.mark.parametrize(("asked", "count"), [("3", 3), (2, 2), ("auto", cores())])
def test_the_number_of_workers(asked, count):
    assert count_workers(asked) == count


@pytest.mark.parametrize("asked", ["0", "-1", "many", "1.5"])
def test_a_wrong_number_of_workers(asked):
    with pytest.raises(InputError, match="--workers"):
        count_workers(asked)
