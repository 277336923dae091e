"""Settings measured on a pilot: stored, reused, and what they promise about network calls."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from isostep.base.errors import InputError
from isostep.model.lookup import load_model
from isostep.model.own import wrap
from isostep.sampling.calibrate import PilotPlan, fit_budget, pilot_for, prepare
from isostep.sampling.run import sample
from isostep.settings.resolve import build, resolve
from isostep.settings.schema import AutoChoice, CorrectorPreset
from tests.conftest import FIXTURES

PLAN = PilotPlan(graphs=4, steps=20)


@pytest.fixture(scope="module")
def model():
    return load_model(FIXTURES / "grum" / "mol.pth", weights="raw")


@pytest.mark.parametrize("schedule", ["arclength", "decisions"])
def test_a_calibrated_grid_has_exactly_the_steps_asked_for(model, schedule):
    settings = resolve(model.info.sampler, schedule=schedule, steps=9)
    ready = prepare(model, settings, plan=PLAN)
    times = ready.schedule_options["times"]
    assert len(times) == 10
    assert build(ready).controller.steps == 9
    result = sample(model, 3, settings=ready)
    assert result.solution.calls.tolist() == [9, 9, 9]
    assert not build(result.settings).couples_graphs


def test_the_pilot_sees_where_the_graph_is_decided(model):
    """A bridge's prediction ends at the graph: entries are open at the start, and the last call waits for them."""
    settings = resolve(model.info.sampler, schedule="decisions", steps=4, solver="exponential-2")
    pilot = pilot_for(model, settings, PLAN)
    assert pilot.decisions.keys() == {"X", "A"}
    assert len(pilot.undecided) == len(pilot.t) == PLAN.steps - 1
    lenient = resolve(
        model.info.sampler, schedule="decisions", steps=4, solver="exponential-2", schedule_options={"open": 1e6}
    )
    strict, early = (prepare(model, s, plan=PLAN).schedule_options["times"] for s in (settings, lenient))
    assert strict[-2] >= early[-2]
    whole, parts = (sample(model, 5, settings=prepare(model, settings, plan=PLAN), batch_size=b) for b in (5, 2))
    assert torch.allclose(whole.tensors["A"], parts.tensors["A"], atol=1e-5)


@pytest.mark.parametrize(
    ("solver", "corrector"), [("euler", "langevin"), ("heun", "none"), ("flow-euler", "none"), ("flow-heun", "none")]
)
def test_further_calls_of_a_step_do_not_confuse_the_pilot(solver, corrector):
    """The corrector's call is at the same time as the predictor's, Heun's last one at the end: one note a step."""
    gdss = load_model("gdss-community-small")
    settings = resolve(gdss.info.sampler, schedule="decisions", solver=solver, corrector=corrector, steps=3)
    plan = PilotPlan(graphs=2, steps=10)
    pilot = pilot_for(gdss, settings, plan)
    assert len(pilot.decisions["A"]) == len(pilot.t) == 9
    assert len(sample(gdss, 2, settings=prepare(gdss, settings, plan=plan))) == 2


class Drift:
    """A drift says nothing of the clean graph."""

    def drift(self, state, t):
        return {name: -x for name, x in state.components.items()}

    def diffusion(self, t):
        return 1.0


def test_a_model_that_predicts_no_graph_is_told_so():
    own = wrap(Drift(), nodes=4)
    settings = resolve(own.info.sampler, schedule="decisions", steps=3)
    with pytest.raises(InputError, match="predicts no graph"):
        prepare(own, settings, plan=PLAN)


def test_a_calibration_is_stored_beside_the_model_and_reused(model, tmp_path):
    plan = PilotPlan(graphs=3, steps=21)  # no other test has stored this one in the cache
    at_home = replace(model, home=tmp_path)
    settings = resolve(model.info.sampler, schedule="arclength", steps=5)
    first = pilot_for(at_home, settings, plan)
    [stored] = tmp_path.glob("pilot-*.json")
    record = json.loads(stored.read_text())
    record["calls"] = 12345
    stored.write_text(json.dumps(record))
    assert first.calls == plan.steps
    assert pilot_for(at_home, settings, plan).calls == 12345  # read back, not measured again
    assert pilot_for(at_home, settings, plan, fresh=True).calls == plan.steps
    stored.write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        pilot_for(at_home, settings, plan)


def test_a_budget_is_kept_by_grids_and_met_by_dvs(model):
    heun = resolve(model.info.sampler, schedule="uniform", solver="heun")
    assert fit_budget(model, heun, 31).steps == 15  # two calls a step
    with pytest.raises(InputError, match="less than one step"):
        fit_budget(model, heun, 1)
    dvs = resolve(model.info.sampler, schedule="dvs", clock="graph")
    result = sample(model, 8, settings=fit_budget(model, dvs, 40, PLAN))
    assert float(result.solution.calls.double().mean()) == pytest.approx(40, rel=0.1)


def test_error_control_meets_a_budget_by_its_tolerance(model):
    settings = resolve(model.info.sampler, schedule="error")
    assert settings.solver == "heun-error"
    fitted = fit_budget(model, settings, 60, PLAN)
    calls = sample(model, 8, settings=fitted).solution.calls.double()
    assert float(calls.mean()) == pytest.approx(60, rel=0.15)
    looser = fit_budget(model, settings, 30, PLAN)
    assert looser.solver_options["tolerance"] > fitted.solver_options["tolerance"]


def test_refilled_slots_give_the_same_graphs_with_fewer_idle_rows(model):
    settings = resolve(model.info.sampler, schedule="dvs", clock="graph", steps=15)
    queue = sample(model, 7, settings=settings, batch_size=3)
    whole = sample(model, 7, settings=settings, batch_size=7)
    assert torch.allclose(queue.tensors["A"], whole.tensors["A"], atol=1e-5)
    assert queue.solution.steps.tolist() == whole.solution.steps.tolist()
    assert queue.solution.index.tolist() == list(range(7))
    # Three slots never wait for the slowest of three: less than ceil(7/3) batches of the slowest graph.
    assert queue.batch_calls < 3 * int(whole.solution.steps.max())


def test_auto_is_the_presets_best_combination_and_gives_way_to_any_other_choice(model):
    best = AutoChoice(calls=24, schedule="karras", solver="heun")  # two calls a step
    preset = model.info.sampler.model_copy(update={"auto": (best,)})
    for chosen in ({}, {"schedule": "auto"}, {"schedule_options": {}}):
        settings = resolve(preset, **chosen)
        assert (settings.schedule, settings.solver, settings.steps) == ("karras", "heun", 12)
        assert not build(settings).couples_graphs
    assert resolve(preset, steps=7).steps == 7
    assert resolve(preset, schedule="auto", solver="euler").solver == "euler"
    assert resolve(preset, solver="euler").schedule == "dvs"
    assert resolve(preset, schedule="uniform").steps == preset.steps


def test_auto_may_leave_out_the_corrector_that_the_solver_of_the_preset_needs(model):
    both = {"corrector": CorrectorPreset(snr=0.1, scale=1.0), "auto": (AutoChoice(calls=50, corrector="none"),)}
    preset = model.info.sampler.model_copy(update=both)
    assert resolve(preset).corrector == "none"
    assert resolve(preset, schedule="auto", corrector="langevin").corrector == "langevin"
    assert resolve(preset, schedule="auto", solver="euler").corrector == "langevin"
    assert resolve(preset, schedule="uniform").corrector == "langevin"


def test_auto_knows_the_models_noise_and_the_user_may_set_it(model):
    preset = model.info.sampler.model_copy(update={"auto": (AutoChoice(calls=50, solver_options={"eta": 4.0}),)})
    for chosen in ({}, {"schedule": "auto", "steps": 9}):
        assert resolve(preset, **chosen).solver_options == {"eta": 4.0}
    chosen = resolve(preset, solver_options={"eta": 2.0})
    assert (chosen.schedule, chosen.solver_options) == ("cosine", {"eta": 2.0})
    for chosen in ({"schedule": "auto", "solver": "euler"}, {"schedule": "cosine", "solver": "exponential-2"}):
        assert resolve(preset, **chosen).solver_options == {}
    graphs = {eta: sample(model, 3, steps=6, solver_options={"eta": eta}).tensors["A"] for eta in (1.0, 4.0)}
    assert torch.equal(graphs[1.0], sample(model, 3, schedule="cosine", solver="exponential-2", steps=6).tensors["A"])
    assert not torch.allclose(graphs[1.0], graphs[4.0])
