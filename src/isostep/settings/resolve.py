"""From choices to settings, and from settings to a controller and a solver: the one place that interprets them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from isostep.base.errors import InputError
from isostep.base.registry import look_up
from isostep.base.schema import checked
from isostep.control.base import Controller, own_clocks
from isostep.control.grid import check_steps
from isostep.control.pilot import Pilot
from isostep.noise import BrownianTree, Noise, PhiloxNoise
from isostep.settings.schedules import AUTO, CHOICES, PAPER, PLAIN, RELEASED, SCHEDULES, Knob
from isostep.settings.schema import AutoChoice, SamplerPreset, SamplerSettings
from isostep.settings.solvers import SOLVERS
from isostep.solver.base import Solver
from isostep.solver.langevin import Corrected, Langevin

# For few calls on a model that nobody measured (`auto_advice` says so): the corrector of the preset stays.
CAREFUL = AutoChoice(calls=50)
Times = Callable[[Pilot, int], tuple[float, ...]]


class Sampler(NamedTuple):
    """What settings stand for: when to step, and how."""

    controller: Controller
    solver: Solver

    @property
    def couples_graphs(self) -> bool:
        """Whether a graph depends on its batch mates."""
        return self.solver.couples_graphs or self.controller.couples_graphs

    @property
    def own_clocks(self) -> bool:
        """Whether graphs of one batch can be at different times."""
        return own_clocks(self.controller) and not self.solver.couples_graphs

    def noise(self, seed: int) -> Noise:
        # A rejected step must meet the same Brownian path again.
        return BrownianTree(seed) if self.controller.reviews else PhiloxNoise(seed)


def resolve(preset: SamplerPreset, budget: int | None = None, **chosen: Any) -> SamplerSettings:
    """Settings from a preset and the user's choices; a choice that is None falls back to the preset.

    Without a schedule, `auto` if nothing but steps or its solver's options are chosen, else the paper's: who turns
    another knob compares with it. `budget`: the network calls that will be asked for, by which `auto` takes its pick.
    Bad names and options are refused here, before any work.
    """
    asked = given = _given(chosen)
    for name, count in (("calls", budget), ("steps", given.get("steps"))):
        if count is not None:
            check_steps(count, name)
    schedule = _schedule(given)
    look_up(CHOICES, "schedule", schedule)
    choice = _pick(preset, budget, given) if schedule == AUTO else None
    if schedule == AUTO:
        schedule, given = (choice.schedule, _auto(choice, given)) if choice else (whole_schedule(preset), given)
    given.pop("schedule", None)
    entry = look_up(SCHEDULES, "schedule", schedule)
    usual = preset.released_solver if entry.usual_solver == RELEASED else entry.usual_solver
    solver = given.get("solver") or usual or preset.solver
    values: dict[str, Any] = {"steps": preset.steps, "clock": entry.usual_clock}
    if preset.corrector is not None:
        values |= {"corrector": "langevin", "snr": preset.corrector.snr, "scale": preset.corrector.scale}
    options = {**preset.schedule_options(schedule, solver), **given.get("schedule_options", {})}
    if entry.given is not None:
        times = entry.given.make(f"schedule {schedule}", options=options)
        options, values["steps"] = {"times": times}, len(times) - 1
    values |= {**given, "schedule": schedule, "solver": solver, "schedule_options": options}
    settings = _with_knob(checked(SamplerSettings, values, "sampler settings"))
    made = make_solver(settings)
    idle = [name for name in ("snr", "scale") if name in asked and "corrector" not in asked]
    if idle and settings.corrector == "none" and not SOLVERS[solver].inner_corrector:
        raise InputError(
            f"{idle[0]} is the Langevin corrector's, and there is none here; choose corrector langevin, too"
        )
    if budget is not None and "steps" in asked and settings.steps != budget // made.calls_per_step:
        raise InputError(
            f"{settings.steps} steps of {made.calls_per_step} network calls are not a budget of {budget} calls; "
            "give steps or calls, not both"
        )
    if choice and "steps" not in given:
        settings = settings.model_copy(update={"steps": max(1, choice.calls // made.calls_per_step)})
    if needs_pilot(settings):
        pilot_times(settings)
    else:
        _make_controller(settings)
    return settings


def _given(chosen: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if value is not None and value != {}}


def _schedule(given: dict[str, Any]) -> str:
    usual = PAPER if given.keys() - {"schedule", "steps", "max_steps", "solver_options"} else AUTO
    return given.get("schedule", usual)


def _pick(preset: SamplerPreset, budget: int | None, given: dict[str, Any]) -> AutoChoice | None:
    """What `auto` stands for; options of its solver are those of an exponential one."""
    choice = auto_choice(preset, budget or given.get("steps"))
    return CAREFUL if choice is None and given.get("solver_options") else choice


def auto_choice(preset: SamplerPreset, calls: int | None = None) -> AutoChoice | None:
    """The measured choice nearest to a budget (by ratio), or without one that of most calls.

    Where nothing was measured: the model's own long run (None) or, with a budget, CAREFUL.
    """
    if not preset.auto:
        return CAREFUL if calls else None
    if not calls:
        return max(preset.auto, key=lambda choice: choice.calls)
    return min(preset.auto, key=lambda choice: (abs(math.log(choice.calls / calls)), choice.calls))


def auto_advice(preset: SamplerPreset, budget: int | None = None, **chosen: Any) -> str:
    """One line for a user of `auto` whose choice nobody measured on this model, or far from this budget; else none."""
    given = _given(chosen)
    if _schedule(given) != AUTO:
        return ""
    calls, choice = budget or given.get("steps"), _pick(preset, budget, given)
    tune = "`isostep tune` finds a measured choice"
    if choice is None:
        return f"auto is not measured on this model: its own sampler with {preset.steps} steps is used; {tune}"
    if not choice.origin:
        return f"auto is not measured on this model: {choice.schedule}, {choice.solver} is used; {tune}"
    if calls and not 0.4 <= calls / choice.calls <= 2.5:
        return f"auto was measured at {choice.calls} calls, not near {calls}; {tune}"
    return ""


def whole_schedule(preset: SamplerPreset) -> str:
    """The schedule of the model's own long run: that of its released program, or equal steps."""
    released = (name for name, entry in SCHEDULES.items() if entry.usual_solver == RELEASED)
    return next(released) if preset.released_solver else PLAIN


def _auto(auto: AutoChoice, given: dict[str, Any]) -> dict[str, Any]:
    """The choices with what `auto` adds; what it says of its solver holds for no other one."""
    given = {"solver": auto.solver, **given}
    given["schedule_options"] = {**auto.schedule_options, **given.get("schedule_options", {})}
    if given["solver"] != auto.solver:
        return given
    given["solver_options"] = {**auto.solver_options, **given.get("solver_options", {})}
    return auto.model_dump(include={"corrector"}, exclude_none=True) | given


def _with_knob(settings: SamplerSettings) -> SamplerSettings:
    """With the option of the solver that the schedule turns; a solver without it cannot serve the schedule."""
    entry, serving = SCHEDULES[settings.schedule], look_up(SOLVERS, "solver", settings.solver)
    knob = entry.budget_knob
    if knob is None or knob.table != "solver_options":
        return settings
    if knob.name not in serving.options(int(serving.inner_corrector)):
        raise InputError(
            f"schedule {settings.schedule} needs a solver with a {knob.name}, {settings.solver} has none; "
            f"use {entry.usual_solver}"
        )
    if {**serving.usual, **settings.solver_options}.get(knob.name) is not None:
        return settings
    return settings.model_copy(update={"solver_options": {**settings.solver_options, knob.name: knob.usual}})


def build(settings: SamplerSettings) -> Sampler:
    """Controller and solver of settings that wait for nothing (`needs_pilot`)."""
    return Sampler(_make_controller(settings), make_solver(settings))


def _make_controller(settings: SamplerSettings) -> Controller:
    entry = look_up(SCHEDULES, "schedule", settings.schedule)
    clock = {entry.clock_field: settings.clock} if entry.clock_field else {}
    return entry.make(f"schedule {settings.schedule}", settings.steps, options=settings.schedule_options, **clock)


def make_solver(settings: SamplerSettings) -> Solver:
    entry = look_up(SOLVERS, "solver", settings.solver)
    langevin = Langevin(settings.snr, settings.scale, scales=max(2, settings.steps), norms=settings.clock)
    inside = (langevin,) if entry.inner_corrector else ()
    solver: Solver = entry.make(f"solver {settings.solver}", *inside, options=settings.solver_options)
    return Corrected(solver, langevin) if settings.corrector == "langevin" and not inside else solver


def needs_pilot(settings: SamplerSettings) -> bool:
    """Whether the schedule's times must still be measured on the model (`sampling/calibrate.py`)."""
    return SCHEDULES[settings.schedule].needs_pilot and "times" not in settings.schedule_options


def pilot_times(settings: SamplerSettings) -> Times:
    """How the schedule makes N steps of a pilot."""
    pilot = SCHEDULES[settings.schedule].pilot
    assert pilot is not None
    return pilot.make(f"schedule {settings.schedule}", options=settings.schedule_options).times


def budget_knob(settings: SamplerSettings) -> Knob | None:
    """What a budget of calls turns, where it is not the step count."""
    return SCHEDULES[settings.schedule].budget_knob
