"""Tuning: known answers on the analytic model, resumed searches, budgets, what must not be lost, one-line errors."""

from __future__ import annotations

import json
import math
import random
import shutil
from statistics import fmean

import pytest

import isostep
from isostep.base.errors import InputError
from isostep.model.analytic import analytic_model
from isostep.model.folder import add_choices, read_card, save_model, store_choices
from isostep.model.lookup import load_model
from isostep.reporting.tables import number
from isostep.reporting.tuning import FAR, tables, write_tuning_report
from isostep.sampling.run import sample
from isostep.settings.resolve import auto_choice, make_solver, resolve
from isostep.settings.schema import AutoChoice, CorrectorPreset
from isostep.study.objective import NOISE, Objective, phi
from isostep.study.reference import analytic_reference
from isostep.study.space import Space, chosen, fits, label
from isostep.study.tune import decide, tune
from isostep.study.tune_record import AUTO, LONG, LOSS, TunePlan, TuneTest, read_tuning
from tests.model.test_own import drift_model

BAD = AutoChoice(calls=4, schedule="quadratic", solver="heun", origin="a test")


def model_with(*choices: AutoChoice):
    model = analytic_model()
    return model.with_sampler(model.info.sampler.model_copy(update={"auto": choices, "steps": 40}))


def plan(**fields) -> TunePlan:
    usual = {
        "model": "toy", "calls": 4, "reference": str(analytic_reference()), "n": 16, "generations": 0, "confirm": 2,
        "only": ("uniform", "quadratic", "heun", "exponential"), "metrics": ("degree", "spectral"),
    }  # fmt: skip
    return TunePlan(**{**usual, **fields})


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A search from a bad baseline: two Heun steps leave noise in the graphs, exponential steps end clean."""
    folder = tmp_path_factory.mktemp("tune")
    shutil.copy(analytic_reference(), folder / "rings.npz")
    return folder, tune(whole(folder), folder / "tuned.toml", model_with(BAD), reuse=False)


def whole(folder) -> TunePlan:
    return plan(generations=1, confirm=3, reference=str(folder / "rings.npz"))


def test_a_clearly_better_sampler_is_found_and_confirmed(found):
    folder, record = found
    assert record.kept
    assert record.result.solver == "exponential"
    loss = next(test for test in record.tests if (test.against, test.metric) == (AUTO, LOSS))
    assert loss.verdict == "better"
    assert "; confirmed on seeds 2000-2002" in (folder / "tuned.toml").read_text()
    assert loss.value < loss.first - 1
    result = sample(load_model(analytic_model(), preset=folder / "tuned.toml"), 3)
    assert (result.settings.solver, result.solution.calls.tolist()) == ("exponential", [4, 4, 4])


def test_search_and_confirmation_share_no_seed_and_budgets_are_exact(found):
    _, record = found
    assert not set(record.plan.search_seeds) & set(record.plan.confirm_seeds)
    other = record.plan.model_copy(update={"seed": 1})
    assert not {*other.search_seeds, *other.confirm_seeds} & {*record.plan.search_seeds, *record.plan.confirm_seeds}
    assert len(record.candidates) > 6
    assert {candidate.calls for candidate in record.candidates} == {4.0}


def test_an_equal_set_keeps_the_baseline(tmp_path):
    usual = AutoChoice(calls=20, origin="a test")
    record = tune(
        plan(calls=20, only=("cosine", "uniform", "exponential-2")), tmp_path / "t.toml",
        model_with(usual), reuse=False,
    )  # fmt: skip
    assert not record.kept
    assert "kept" in record.reason
    assert "confirmed on seeds" not in (tmp_path / "t.toml").read_text()
    assert label(record.result) == label(usual)


def test_an_interrupted_search_goes_on_to_the_same_result(found, tmp_path):
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if text.startswith("generation"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(whole(found[0]), tmp_path / "tuned.toml", model_with(BAD), tell=interrupt, reuse=False)
    assert not (tmp_path / "tuned.toml").exists()
    assert read_tuning(tmp_path / "tuned").winner is None
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "tuned" / "cells").iterdir()}
    record = tune(whole(found[0]), tmp_path / "tuned.toml", model_with(BAD), reuse=False)
    ignored = {"seconds"}
    assert record.model_dump(exclude=ignored) == found[1].model_dump(exclude=ignored)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert (tmp_path / "tuned.toml").read_text() == (found[0] / "tuned.toml").read_text()


def test_what_is_to_be_kept_ranks_before_the_loss(found, tmp_path):
    record = tune(plan(keep=("degree",), metrics=("spectral",)), tmp_path / "t.toml", model_with(BAD), reuse=False)
    objective = record.objective
    for candidate in record.candidates:
        beyond = objective.loss("degree", candidate.values["degree"]) > NOISE / math.sqrt(candidate.seeds)
        assert candidate.forbidden == beyond
    assert {candidate.forbidden for candidate in record.candidates} == {True, False}
    assert not next(c for c in record.candidates if c.name == record.winner).forbidden


def test_a_confirmed_winner_that_loses_what_is_kept_is_refused():
    def test(against, metric, verdict):
        return TuneTest(
            against=against, metric=metric, first=1, value=0, difference=-1, low=-2, high=0, p=0.01, p_holm=0.01,
            verdict=verdict,
        )  # fmt: skip

    tests = [test(LONG, "novel", "worse"), test(AUTO, LOSS, "better")]
    assert decide((), tests, same=False)[0]
    assert not decide(("novel",), tests, same=False)[0]
    assert decide(("unique",), tests, same=False)[0]
    assert not decide((), [test(AUTO, LOSS, "not distinguishable")], same=False)[0]
    assert not decide((), tests, same=True)[0]


def test_without_data_the_long_run_is_the_reference(tmp_path):
    record = tune(
        plan(reference=None, own=True, only=("uniform", "exponential")), tmp_path / "t.toml",
        model_with(BAD), reuse=False,
    )  # fmt: skip
    assert record.kept
    assert "novel" not in record.objective.better
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "t" / "self").rglob("*")}
    assert any(path.suffix == ".npz" for path in files)
    tune(plan(reference=None, own=True, only=("uniform", "exponential")), tmp_path / "t.toml",
         model_with(BAD), reuse=False)  # fmt: skip
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_drift_of_ones_own_is_tuned_too(tmp_path):
    fields = {
        "own": True,
        "reference": None,
        "yardstick_steps": 12,
        "n": 8,
        "only": ("uniform", "decisions"),
        "calls": 3,
    }
    record = tune(plan(**fields), tmp_path / "t.toml", drift_model(), reuse=False)
    assert {candidate.choice.solver for candidate in record.candidates} <= {"euler", "heun"}
    assert max(candidate.calls for candidate in record.candidates) <= 3


def test_the_record_becomes_tables_and_a_page(found):
    folder, record = found
    assert read_tuning(folder / "tuned") == record
    confirmation, candidates = tables(record)
    assert any(record.winner in row[0] for row in candidates.rows)
    assert {row[1] for row in confirmation.rows} == {LONG, AUTO}
    write_tuning_report(folder / "page.html", folder / "tuned")
    text = (folder / "page.html").read_text()
    assert record.reason in text
    assert text.count('class="plot"') == len(record.yardstick)  # one panel a metric
    assert all(
        f"{name} " in text and f", {LONG} {number(fmean(values))}" in text for name, values in record.yardstick.items()
    )
    known = [c.loss for c in record.candidates if c.name in (record.baseline, record.winner)]
    near = [c for c in record.candidates if c.loss <= max(known) + FAR]
    assert text.count('class="mark"') == len(record.yardstick) * (len(near) + 2)  # auto and winner once more
    assert ("are not drawn" in text) == (len(near) < len(record.candidates))


def test_time_that_is_spent_ends_the_search_but_not_the_confirmation(tmp_path):
    said: list[str] = []
    record = tune(plan(minutes=1e-6), tmp_path / "t.toml", model_with(BAD), tell=said.append, reuse=False)
    assert record.winner is not None
    assert not any(text.startswith("generation") for text in said)
    assert len(record.candidates) < 10


def test_moves_change_one_thing_and_stay_inside_the_budget():
    model = analytic_model()
    corrected = model.info.sampler.model_copy(update={"corrector": CorrectorPreset(snr=0.1, scale=0.7)})
    space = Space(model.with_sampler(corrected), 5)
    start = space.normal(AutoChoice(calls=5))
    for choice in [*space.starts(start, random.Random(0)), *space.moves(start)]:
        settings = resolve(corrected, **chosen(choice))
        assert make_solver(settings).calls_per_step <= 5
        assert choice.calls == 5
    parts = ("schedule", "schedule_options", "solver", "solver_options", "corrector")
    for move in space.moves(start):
        changed = {name for name in parts if getattr(move, name) != getattr(start, name)}
        assert changed in (
            {"schedule"},
            {"schedule", "schedule_options"},
            {"solver"},
            {"solver_options"},
            {"corrector"},
        )
    up = next(m for m in space.moves(start) if m.solver_options == {"eta": 1.5})
    assert start in space.moves(up)
    assert len({label(move) for move in space.moves(start)}) == len(space.moves(start))
    assert not fits(model.with_sampler(corrected), start.model_copy(update={"calls": 1, "corrector": "langevin"}))
    assert not fits(model, start.model_copy(update={"solver": "s4"}))


def test_a_temperature_that_runs_from_one_value_to_another_is_searched_end_by_end():
    space = Space(analytic_model(), 5)
    options = {"temperature": {"X": 0.5, "A": [0.85, 0.75]}}
    start = space.normal(AutoChoice(calls=5, schedule="uniform", solver="exponential-2", solver_options=options))
    assert label(start) == "uniform, exponential-2 temperature X 0.5 A 0.85 to 0.75"
    found = [move.solver_options["temperature"] for move in space.moves(start) if "temperature" in move.solver_options]
    ranges = [each["A"] for each in found if each["X"] == 0.5 and each["A"] != [0.85, 0.75]]
    assert ranges == [[0.75, 0.75], [0.9, 0.75], [0.85, 0.6], [0.85, 0.85]]


def test_the_loss_is_in_units_of_spread_and_a_gain_counts_half():
    rows = [{"a": 1.0, "b": 0.5}, {"a": 1.2, "b": 0.7}]
    objective = Objective.of(("a", "b"), {"a": "lower", "b": "higher"}, rows, rows)
    sd = math.sqrt(0.02)
    assert objective.unit == pytest.approx({"a": sd, "b": sd})
    assert objective({"a": 1.1, "b": 0.6}) == pytest.approx(0)
    assert objective({"a": 1.1 + sd, "b": 0.6}) == pytest.approx(math.log(2) / 2)
    assert objective({"a": 1.1 - sd, "b": 0.6}) == pytest.approx(-math.log(2) / 4)
    assert objective({"a": 1.1, "b": 0.6 - sd}) == pytest.approx(math.log(2) / 2)
    assert objective({"a": None, "b": 0.6}) > 3
    same = Objective.of(("a",), {"a": "lower"}, [{"a": 1.0}] * 2, [{"a": 1.0}] * 2)
    assert same.unit["a"] == pytest.approx(0.01)
    assert phi(1.0) == -2 * phi(-1.0)
    assert Objective.of(("a", "c"), {"a": "lower", "c": "lower"}, [{"a": 1.0, "c": None}], rows).metrics == ("a",)


def test_a_folder_stores_choices_by_calls(tmp_path):
    with pytest.raises(InputError, match="isostep import"):
        store_choices(analytic_model(), ())
    with pytest.raises(InputError, match="belongs to the package"):
        store_choices(load_model("grum-planar-small"), ())
    small = load_model("grum-planar-small")
    save_model(tmp_path / "m", small.info, small.network.state_dict())
    ten, twenty = AutoChoice(calls=10, schedule="uniform"), AutoChoice(calls=20)
    for choices in ((twenty,), (ten,), (ten.model_copy(update={"schedule": "quadratic"}),)):
        add_choices(tmp_path / "m", choices)
    stored = read_card(tmp_path / "m").sampler
    assert [choice.calls for choice in stored.auto if choice.calls < 50] == [10, 20]
    assert auto_choice(stored, 9).schedule == "quadratic"  # type: ignore[union-attr]
    assert json.loads((tmp_path / "m" / "model.json").read_text())["sha256"] is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"keep": ("beauty",)}, "beauty"),
        ({"metrics": ("fcd",)}, "fcd"),
        ({"reference": "nowhere"}, "nowhere"),
        ({"only": ("cosin",)}, "cosin"),
        ({"only": ("uniform", "dvs")}, "--only dvs: not tried on this model; choose from .*uniform"),
        ({"only": ("uniform", "s4")}, "--only s4: not tried on this model"),  # which takes score models
        ({"own": True, "reference": None, "keep": ("novelty",)}, "training data"),
    ],
)
def test_bad_input_is_refused_before_any_work(fields, message, tmp_path):
    with pytest.raises(InputError, match=message):
        tune(plan(**fields), tmp_path / "t.toml", model_with(BAD))
    assert not (tmp_path / "t").exists()
    with pytest.raises(InputError, match="toml"):
        tune(plan(), tmp_path / "folder", model_with(BAD))


def test_a_reference_beside_the_models_own_long_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="exclude each other; give one of them"):
        isostep.tune("rings-and-stars", 4, "ego-small", own=True, out=tmp_path / "t.toml")
