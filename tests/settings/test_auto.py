"""`auto`: the nearest measured choice, and one line where there is none."""

from __future__ import annotations

import logging

import pytest

from isostep.model.analytic import analytic_model
from isostep.sampling.run import sample
from isostep.settings.resolve import CAREFUL, auto_advice, auto_choice, resolve
from isostep.settings.schema import AutoChoice, CorrectorPreset, SamplerPreset

FEW = AutoChoice(calls=5, schedule="uniform", origin="a test")
SOME = AutoChoice(calls=20, schedule="power", schedule_options={"p": 1.5}, origin="a test")
MANY = AutoChoice(calls=100, solver="heun", origin="a test")
MEASURED = SamplerPreset(auto=(SOME, MANY, FEW))


@pytest.mark.parametrize(
    ("calls", "choice"), [(1, FEW), (9, FEW), (11, SOME), (44, SOME), (45, MANY), (9999, MANY), (None, MANY)]
)
def test_the_measured_choice_nearest_by_ratio_or_that_of_most_calls(calls, choice):
    assert auto_choice(MEASURED, calls) == choice
    settings = resolve(MEASURED, calls)
    assert (settings.schedule, settings.solver) == (choice.schedule, choice.solver)
    if calls is None:
        assert settings.steps == 50  # two calls a step
    else:
        assert resolve(MEASURED, steps=calls).schedule == choice.schedule


def test_a_model_that_nobody_measured_keeps_its_own_sampler():
    released = SamplerPreset(steps=700, released_solver="reverse", corrector=CorrectorPreset(snr=0.2, scale=0.7))
    own = resolve(released)
    assert own == resolve(released, schedule="gdss")
    assert (own.steps, own.solver, own.corrector) == (700, "reverse", "langevin")
    assert resolve(SamplerPreset(steps=300)) == resolve(SamplerPreset(), schedule="uniform", steps=300)
    few = resolve(released, 20)
    assert (few.schedule, few.solver, few.corrector) == (CAREFUL.schedule, CAREFUL.solver, "langevin")
    assert resolve(released, solver_options={"eta": 2.0}).solver == CAREFUL.solver


def test_what_is_not_measured_is_said_in_one_line():
    for preset, calls in ((SamplerPreset(), None), (SamplerPreset(), 20), (MEASURED, 1000), (MEASURED, 1)):
        line = auto_advice(preset, calls)
        assert "isostep tune" in line
        assert "\n" not in line
    for calls in (None, 4, 20, 45, 200):
        assert not auto_advice(MEASURED, calls)
    assert not auto_advice(SamplerPreset(), 20, schedule="uniform")


def test_sampling_says_it_once(caplog):
    model = analytic_model()
    bare = model.with_sampler(model.info.sampler.model_copy(update={"auto": ()}))
    with caplog.at_level(logging.WARNING, "isostep"):
        sample(model, 2)
        assert not caplog.messages
        sample(bare, 2, calls=4)
    assert len(caplog.messages) == 1
    assert "isostep tune" in caplog.messages[0]
