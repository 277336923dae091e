"""Steps for a budget of network calls per graph.

A grid has calls = steps x calls per step, so its steps are budget // calls per step. An adaptive schedule decides its
steps on the way: a pilot of a few graphs scales its base step until the mean number of calls is at most the budget.
"""

from __future__ import annotations

from isostep.errors import InputError
from isostep.model.model import Model
from isostep.sampler import SamplerSettings
from isostep.sampling.run import sample
from isostep.study.path import BrownianPath

PILOT_GRAPHS, PILOT_SEED, ROUNDS, CLOSE = 16, 2**32 - 1, 6, 0.02


def with_budget(model: Model, settings: SamplerSettings, calls: int) -> tuple[SamplerSettings, str]:
    """The settings with as many steps as the budget pays for, and a note that says how they were found."""
    each = settings.make_solver().calls_per_step
    steps = calls // each
    if steps < 1:
        raise InputError(f"{calls} calls do not pay for one step of {settings.solver} ({each} calls); raise --calls")
    settings = settings.model_copy(update={"steps": steps})
    if settings.schedule == "arclength" or not _adaptive(settings):  # arclength's times are measured later
        return settings, f"{steps} steps of {each} calls"
    best = _scaled(model, settings, calls)
    return best, f"base step 1/{best.steps}, scaled on a pilot of {PILOT_GRAPHS} graphs to at most {calls} calls"


def _adaptive(settings: SamplerSettings) -> bool:
    controller = settings.controller()
    return controller.needs_variation or controller.reviews


def _scaled(model: Model, settings: SamplerSettings, calls: int) -> SamplerSettings:
    """The largest step count tried whose pilot stays inside the budget."""
    steps, inside = settings.steps, 0
    for _ in range(ROUNDS):
        trial = settings.model_copy(update={"steps": steps})
        pilot = sample(model, PILOT_GRAPHS, settings=trial, seed=PILOT_SEED, noise=BrownianPath(PILOT_SEED))
        spent = float(pilot.solution.calls.double().mean())
        if spent <= calls:
            inside = max(inside, steps)
            if spent >= (1 - CLOSE) * calls:
                break
        following = max(1, int(steps * calls / spent)) if spent > calls else max(steps + 1, int(steps * calls / spent))
        if following == steps:
            break
        steps = following
    if not inside:
        raise InputError(f"schedule {settings.schedule} does not stay within {calls} calls; raise --calls")
    return settings.model_copy(update={"steps": inside})
