"""Settings that need the model itself: measure on a pilot batch, once, and keep the answer.

    arclength    the information rate along a pilot run, cut into N equal parts
    decisions    the same of the speed at which the graph is decided
    calls        a budget of network calls per graph: a grid's step count; by search, kappa of DVS or
                 the tolerance of error control

A pilot is stored as a small JSON file: beside the model where it is a folder of its own, else in the cache.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from isostep.base.cache import cache_folder
from isostep.base.errors import InputError
from isostep.base.files import PACKAGE, read_json, write_json
from isostep.base.progress import Task, log, progress, warn_once
from isostep.control.pilot import Pilot
from isostep.loop import integrate
from isostep.model.model import Model
from isostep.sampling.batch import sample_batch
from isostep.sampling.watch import Watched
from isostep.settings.resolve import budget_knob, build, make_solver, needs_pilot, pilot_times
from isostep.settings.schedules import Knob
from isostep.settings.schema import SamplerSettings

PILOT_FORMAT = 2  # 2: decisions too
KNOB_FORMAT = 2  # 2: kappa is stated at 1000 base steps
PILOT_SEED = 0x150_57E9  # pilot graphs are nobody's samples


@dataclass(frozen=True)
class PilotPlan:
    """How a pilot is run."""

    graphs: int = 32
    steps: int = 200

    def __post_init__(self) -> None:
        if not (1 <= self.graphs <= 100_000 and 10 <= self.steps <= 100_000):
            raise InputError(f"a pilot needs 1 or more graphs and 10 or more steps, got {self.graphs}, {self.steps}")


def measure_pilot(model: Model, settings: SamplerSettings, plan: PilotPlan | None = None) -> Pilot:
    """The information rate along uniform steps with the settings' solver and corrector."""
    plan = plan or PilotPlan()
    uniform = settings.model_copy(update={"schedule": "uniform", "steps": plan.steps, "schedule_options": {}})
    index, sampler = torch.arange(plan.graphs), build(uniform)
    watched = Watched(model.sde, getattr(model.decoder, "levels", {}))  # another package's decoder may decide nothing
    with progress(f"calibrating {model.info.name}", plan.graphs, "graphs") as task:
        solution = integrate(
            watched, model.prior(index, PILOT_SEED), sampler.controller, sampler.solver, sampler.noise(PILOT_SEED),
            index, trace=1, progress=task.upto,
        )  # fmt: skip
    assert solution.trace is not None
    return Pilot.from_trace(solution.trace, watched.t_end, plan.graphs, solution.batch_calls, **watched.seen())


def pilot_for(
    model: Model,
    settings: SamplerSettings,
    plan: PilotPlan | None = None,
    fresh: bool = False,
) -> Pilot:
    """The stored pilot of this model, solver and corrector, or a new one, stored."""
    plan = plan or PilotPlan()
    key = [_physics(settings), plan.graphs, plan.steps, PILOT_FORMAT]

    def measure() -> dict[str, Any]:
        return {"settings": _physics(settings), **measure_pilot(model, settings, plan).to_dict()}

    return Pilot.from_dict(_stored(model, "pilot", key, measure, fresh))


def _stored(model: Model, what: str, key: Any, measure: Callable[[], dict[str, Any]], fresh: bool = False) -> Any:
    """A measured record, filed under the model's fingerprint and `key`: in the model's folder, else in the cache.

    An embedded model's folder belongs to the package: records may ship there, but none is written.
    """
    digest = hashlib.sha256(json.dumps([model.fingerprint(), key], sort_keys=True).encode()).hexdigest()
    name = f"{what}-{digest[:16]}.json"
    places = [folder / name for folder in (model.home, cache_folder() / "calibration") if folder is not None]
    found = next((place for place in places if place.is_file()), None)
    if found is not None and not fresh:
        return read_json(found)
    record = {"model": model.info.name, **measure()}
    for place in places:
        if PACKAGE in place.parents:
            continue
        try:
            write_json(place, record, indent=None)
            break
        except InputError as error:  # a folder that cannot be written: the next place
            if place == places[-1]:
                log.warning("%s; what was measured is not kept for the next time", error)
    return record


def _physics(settings: SamplerSettings) -> dict[str, Any]:
    """What of the settings moves the pilot: solver and corrector, not the schedule."""
    return settings.model_dump(include={"solver", "solver_options", "corrector", "snr", "scale"})


def prepare(
    model: Model,
    settings: SamplerSettings,
    calls: int | None = None,
    plan: PilotPlan | None = None,
) -> SamplerSettings:
    """Settings with everything measured filled in: a step count or kappa for a budget, times for a calibrated grid."""
    if calls is not None:
        settings = fit_budget(model, settings, calls, plan)
    if needs_pilot(settings):
        times = pilot_times(settings)(pilot_for(model, settings, plan), settings.steps)
        settings = settings.model_copy(update={"schedule_options": {"times": times}})
    for line in build(settings).controller.warnings(len(model.sde.processes)):
        warn_once(line)
    return settings


def fit_budget(
    model: Model,
    settings: SamplerSettings,
    calls: int,
    plan: PilotPlan | None = None,
) -> SamplerSettings:
    """Settings that make `calls` network calls per graph (on average, where every graph decides for itself)."""
    per_step = make_solver(settings).calls_per_step
    steps = int(calls) // per_step
    if steps < 1:
        raise InputError(f"{calls} calls are less than one step of this solver, which takes {per_step}")
    settings = settings.model_copy(update={"steps": steps})
    knob = budget_knob(settings)
    if knob is None:
        return settings

    def search() -> dict[str, Any]:
        with progress(f"{knob.name} for {calls} calls of {model.info.name}", unit="pilots") as task:
            return {"calls": calls, knob.name: _search(model, settings, calls, knob, plan or PilotPlan(), task)}

    record = _stored(model, knob.name, [settings.model_dump(mode="json"), calls, KNOB_FORMAT], search)
    try:
        return _turned(settings, knob, float(record[knob.name]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"a stored {knob.name} is damaged: {error}; delete the {knob.name}-*.json files beside the model"
        ) from error


def _turned(settings: SamplerSettings, knob: Knob, value: float) -> SamplerSettings:
    return settings.model_copy(update={knob.table: {**getattr(settings, knob.table), knob.name: value}})


def _search(model: Model, settings: SamplerSettings, calls: int, knob: Knob, plan: PilotPlan, task: Task) -> float:
    """The knob's value whose pilot comes closest to the budget, by false position in logarithms (Illinois).

    The calls fall as the knob rises, so a bracket is walked out from the start in steps that double.
    """
    index = torch.arange(plan.graphs)
    tried: dict[float, float] = {}

    def excess(x: float) -> float:
        """log(calls / budget) at exp(x); 0 where it is close enough."""
        solution = sample_batch(model, _turned(settings, knob, math.exp(x)), index, PILOT_SEED)
        count = float(solution.calls.double().mean())
        tried[x] = abs(count - calls)
        task(note=f"{knob.name} {math.exp(x):.4g} makes {count:.4g} calls")
        return 0.0 if tried[x] <= max(0.5, 0.005 * calls) else math.log(count / calls)

    low, high = math.log(knob.low), math.log(knob.high)
    a = min(max(math.log(getattr(settings, knob.table).get(knob.name, knob.usual)), low), high)
    fa, width = excess(a), 1.0
    b, fb = a, fa
    while fa and fa * fb > 0 and low < b < high:
        a, fa = b, fb
        b = min(max(a + math.copysign(width, fa), low), high)
        fb, width = excess(b), 2 * width
    for _ in range(12):
        if fa * fb >= 0:  # found, or out of reach
            break
        c = (a * fb - b * fa) / (fb - fa)
        fc = excess(c)
        if fc * fb < 0:
            a, fa = b, fb
        else:
            fa /= 2  # the same end moved twice: let the other one move
        b, fb = c, fc
    return math.exp(min(tried, key=tried.__getitem__))
