"""Studies: resumable, paired, tables and plots from JSON alone."""

from __future__ import annotations

import csv
import io
import json
import logging
import time
from dataclasses import replace

import pytest
import torch

import isostep
from isostep.base.errors import InputError
from isostep.base.files import read_json, write_json
from isostep.item.graph import read_graphs
from isostep.model.analytic import analytic_model
from isostep.reporting.figures import differences
from isostep.reporting.output import write_outputs
from isostep.reporting.page import write_report
from isostep.reporting.plots import draw
from isostep.reporting.tables import EQUAL, difference_table, long_csv, summary_table
from isostep.study.comparison import compare_arms
from isostep.study.compute import run_study
from isostep.study.plan import Arm, parse_counts, parse_seeds, product_arms
from isostep.study.record import load_study


def _times(folder) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in folder.rglob("*.json") if p.name not in ("study.json",)}


def test_a_repeated_run_computes_nothing(toy_plan, toy_study, caplog):
    before = _times(toy_study.store.folder)
    with caplog.at_level("INFO", "isostep"):
        again = run_study(toy_plan, toy_study.store.folder, analytic_model())
    assert not caplog.records
    assert _times(toy_study.store.folder) == before
    assert compare_arms(again) == compare_arms(toy_study)


def test_a_lost_cell_alone_is_computed_again_without_sampling(toy_plan, toy_study, caplog):
    key = toy_study.record.arms[1].cells[2]
    kept = toy_study.store.read_cell(key)
    toy_study.store.cell(key).unlink()
    runs = _times(toy_study.store.folder / "runs")
    with caplog.at_level("INFO", "isostep"):
        run_study(toy_plan, toy_study.store.folder, analytic_model())
    assert caplog.messages == ["study toy: dvs, seed 2"]
    again = toy_study.store.read_cell(key)
    assert again.model_copy(update={"evaluating": kept.evaluating}) == kept
    assert _times(toy_study.store.folder / "runs") == runs


def test_other_settings_have_other_keys(toy_plan, toy_study):
    keys = {key for arm in toy_study.record.arms for key in arm.cells.values()}
    assert len(keys) == 6
    more = toy_plan.model_copy(update={"n": 13, "seeds": (0,), "arms": toy_plan.arms[:1]})
    study = run_study(more, toy_study.store.folder, analytic_model())
    assert not keys & set(study.record.arms[0].cells.values())
    run_study(toy_plan, toy_study.store.folder, analytic_model())  # the folder describes the fixture's study again


def test_identical_arms_have_identical_graphs_and_are_not_distinguishable(toy_plan, tmp_path):
    arm = toy_plan.arms[0]
    twin = Arm(name="twin", chosen={**arm.chosen, "max_steps": 99_999})
    plan = toy_plan.model_copy(update={"arms": (arm, twin), "noise": "path", "seeds": (0, 1)})
    study = run_study(plan, tmp_path, analytic_model())
    comparison = compare_arms(study)
    for metric in comparison["arms"][1]["metrics"].values():
        assert metric["test"]["verdict"] == "not distinguishable"
        assert metric["test"]["difference"] == 0
    assert {row[4] for row in difference_table(comparison).rows} == {EQUAL}
    dots = [dot for panel in differences(comparison) for dot in panel.dots]
    assert {(dot.low, dot.text) for dot in dots} == {(None, "0\N{NO-BREAK SPACE}%")}
    assert draw(differences(comparison)).axes
    folders = [tmp_path / "runs" / study.cells[k][0].run for k in (0, 1)]
    assert folders[0] != folders[1]
    first, second = (read_graphs(folder / "graphs.jsonl") for folder in folders)
    assert [g.to_line() for g in first] == [g.to_line() for g in second]


def test_a_planted_difference_is_found(toy_plan, tmp_path):
    """Two steps from noise to data against forty: the degrees must be worse, and the study says so."""
    plan = toy_plan.model_copy(
        update={
            "arms": (
                Arm(name="40", chosen={"schedule": "uniform", "steps": 40}),
                Arm(name="2", chosen={"schedule": "uniform", "steps": 2}),
            ),
            "seeds": (0, 1, 2, 3),
            "n": 40,
        }
    )
    comparison = compare_arms(run_study(plan, tmp_path, analytic_model()))
    verdicts = {name: m["test"]["verdict"] for name, m in comparison["arms"][1]["metrics"].items()}
    assert "worse" in verdicts.values()
    assert "better" not in verdicts.values()


def test_graphs_that_did_not_finish_are_named(toy_plan, tmp_path):
    short = Arm(name="short", chosen={**toy_plan.arms[0].chosen, "max_steps": 3})
    plan = toy_plan.model_copy(update={"arms": (toy_plan.arms[0], short), "seeds": (0, 1), "metrics": ("degree",)})
    study = run_study(plan, tmp_path, analytic_model())
    comparison = write_outputs(study, plots=False)
    assert [arm["unfinished"] for arm in comparison["arms"]] == [0, 24]
    said = "Not finished, but measured: 24 of 24 graphs of short."
    assert said in summary_table(comparison).notes
    assert said in (tmp_path / "comparison.md").read_text()
    write_report(tmp_path / "report.html", study, comparison)
    text = (tmp_path / "report.html").read_text()
    assert said in text[: text.index("<table")]


@pytest.mark.parametrize("solver", ["flow-euler", "flow-heun"])
def test_the_last_arm_may_step_without_noise(toy_plan, tmp_path, solver):
    """Where the calls fall is drawn beside what a pilot with the last arm's solver sees."""
    arms = product_arms(["uniform", "arclength"], [solver], [], 3, corrector="none")
    update = {"model": "gdss-community-small", "reference": None, "metrics": ("degree",), "arms": arms, "seeds": (0,)}
    study = run_study(toy_plan.model_copy(update={**update, "n": 2}), tmp_path)
    assert [cells[0].steps for cells in study.cells] == [3, 3]
    assert study.record.decided.share[-1] == 1


def test_budgets_count_calls(toy_plan, tmp_path, caplog):
    arms = product_arms(["uniform", "dvs"], ["heun"], [20], None)
    plan = toy_plan.model_copy(update={"arms": arms, "seeds": (0,)})
    comparison = compare_arms(run_study(plan, tmp_path, analytic_model()))
    grid, adaptive = comparison["arms"]
    assert grid["calls"]["mean"] == 20
    assert grid["steps"]["mean"] == 10
    assert 0 < adaptive["calls"]["mean"] <= 22  # the pilot of 16 graphs holds the budget; this set may differ a little
    assert "pilot" in adaptive["note"]
    with caplog.at_level("INFO", "isostep"):
        run_study(plan, tmp_path, analytic_model())
    assert not caplog.records


def test_tables_and_plots_come_from_the_json_alone(toy_study, tmp_path):
    study = load_study(toy_study.store.folder)
    comparison = write_outputs(study)
    folder = study.store.folder
    assert read_json(folder / "comparison.json")["arms"][0]["name"] == "uniform"
    rows = list(csv.DictReader(io.StringIO(long_csv(comparison))))
    assert len(rows) == 2 * len(study.metrics)
    for row in rows:
        values = comparison["arms"][["uniform", "dvs"].index(row["arm"])]["metrics"][row["metric"]]["values"].values()
        assert float(row["mean"]) == pytest.approx(sum(values) / 3)
    assert summary_table(comparison).markdown().count("\n| ") >= 3
    assert r"\begin{tabular}{lrrr" in (folder / "comparison.tex").read_text()
    assert len(difference_table(comparison).rows) == len(study.metrics)
    for name in ("differences", "quality", "step-size", "information", "variation", "convergence"):
        assert (folder / "plots" / f"{name}.svg").stat().st_size > 2000
        assert (folder / "plots" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_recorded_path_is_consistent(toy_study):
    path, along = toy_study.recorded(1)
    trace = path.trace
    steps = toy_study.cells[1][0].steps
    assert len(trace["t"]) == steps
    assert sum(trace["dt"]) == pytest.approx(1.0, abs=1e-6)
    made = toy_study.generated(1, len(path.films))
    assert [len(film.sketch(-1).decided) for film in path.films] == [len(graph.edges) for graph in made]
    assert along[1.0] == pytest.approx(toy_study.cells[1][0].metrics)


def test_a_damaged_cell_and_an_empty_folder_are_told_in_one_line(toy_plan, tmp_path):
    with pytest.raises(InputError, match=r"no study\.json"):
        load_study(tmp_path)
    plan = toy_plan.model_copy(update={"arms": toy_plan.arms[:1], "seeds": (0,), "record": False})
    study = run_study(plan, tmp_path, analytic_model())
    path = study.store.cell(study.record.arms[0].cells[0])
    write_json(path, {"format": 99})
    with pytest.raises(InputError, match="delete it"):
        load_study(tmp_path)
    path.write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        load_study(tmp_path)


def test_another_command_in_the_folder_does_not_change_what_a_run_returns(toy_plan, tmp_path, caplog):
    plan = toy_plan.model_copy(update={"arms": toy_plan.arms[:1], "seeds": (0,), "record": False})

    def other_command(_: logging.LogRecord) -> bool:
        other = plan.model_copy(update={"title": "another"}).model_dump(mode="json")
        record = json.loads((tmp_path / "study.json").read_text())
        write_json(tmp_path / "study.json", {**record, "plan": other, "arms": []})
        return True

    with caplog.at_level("INFO", "isostep"), caplog.filtering(other_command):
        study = run_study(plan, tmp_path, analytic_model())
    assert json.loads((tmp_path / "study.json").read_text())["plan"]["title"] == "another"
    assert study.plan == plan
    assert list(study.cells[0]) == [0]


def test_a_models_preferred_settings_do_not_decide_its_cells():
    model = analytic_model()
    other = model.info.sampler.model_copy(update={"steps": model.info.sampler.steps + 1})
    assert replace(model, info=model.info.model_copy(update={"sampler": other})).fingerprint() == model.fingerprint()
    larger = model.info.model_copy(update={"scale": model.info.scale * 2})
    assert replace(model, info=larger).fingerprint() != model.fingerprint()


def test_an_unfinished_study_is_reported_with_what_there_is(toy_study, tmp_path):
    record = json.loads((toy_study.store.folder / "study.json").read_text())
    write_json(tmp_path / "study.json", record)
    with pytest.raises(InputError, match="no finished arm"):
        load_study(tmp_path)
    key = record["arms"][0]["cells"]["1"]
    store = toy_study.store
    write_json(tmp_path / "cells" / f"{key}.json", read_json(store.cell(key)))
    comparison = compare_arms(load_study(tmp_path))
    assert comparison["arms"][0]["seeds"] == [1]
    assert comparison["arms"][1]["seeds"] == []


def test_seeds_counts_and_arms_are_checked():
    assert parse_seeds("0-3,7") == (0, 1, 2, 3, 7)
    assert parse_counts("100, 250", "--calls") == [100, 250]
    for bad in ("", "a", "3-1", "1,1", "-1", "0-9999999"):
        with pytest.raises(InputError):
            parse_seeds(bad)
    with pytest.raises(InputError, match="above 0"):
        parse_counts("10,x", "--calls")
    with pytest.raises(InputError, match="give one of them"):
        product_arms(["uniform"], [], [10], 5)
    with pytest.raises(InputError, match="must differ"):
        product_arms(["uniform", "uniform"], [], [], 5)
    names = [arm.name for arm in product_arms(["a", "b"], ["x", "y"], [1, 2], None)]
    assert names[0] == "a, x, 1 calls"
    assert len(names) == 8


@pytest.mark.parametrize("calls", [0, -1])
def test_a_budget_of_no_calls_is_one_line(tmp_path, calls):
    for chosen in ({"arms": {"a": {"calls": calls}}}, {"calls": calls}):
        with pytest.raises(InputError, match=f"has a budget of {calls} calls; give at least 1") as told:
            isostep.compare("rings-and-stars", out=tmp_path, **chosen)
        assert "\n" not in str(told.value)


def test_baseline_is_the_first_arm_of_the_same_budget(toy_plan):
    arms = product_arms(["uniform", "dvs"], [], [10, 20], None)
    plan = toy_plan.model_copy(update={"arms": arms})
    assert plan.baselines == (0, 0, 2, 2)


class Late(torch.nn.Module):
    """A network that takes half a second for its first call, as one that is compiled then."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.first = inner, True

    def forward(self, *inputs):
        time.sleep(0.5 * self.first)
        self.first = False
        return self.inner(*inputs)


def test_seconds_are_without_the_start(toy_plan, tmp_path):
    plan = toy_plan.model_copy(update={"arms": toy_plan.arms[:1], "seeds": (0,), "record": False})
    model = analytic_model()
    study = run_study(plan, tmp_path, replace(model, network=Late(model.network)), reuse=False)
    assert study.cells[0][0].seconds < 0.4
