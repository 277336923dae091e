"""Sampler settings: which schedule, solver and corrector, with which numbers. Frozen, checked, and plain data in JSON.

They come from three layers, later ones winning: the library's defaults, the model's preset, the user's choice.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from isostep.base.errors import InputError
from isostep.base.schema import Frozen, one_line
from isostep.control.base import Controller, own_clocks
from isostep.control.registry import SCHEDULES, make_schedule, option_names
from isostep.solver.base import Solver
from isostep.solver.langevin import Langevin
from isostep.solver.registry import make_solver


class DvsPreset(Frozen):
    """DVS constants of one (model, dataset) row; gamma depends on the solver."""

    kappa: float = 1.0
    gamma: float = 0.22
    gamma_heun: float | None = None
    active: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    ema_start: Literal["zero", "first"] = "zero"

    def options(self, solver: str) -> dict[str, Any]:
        heun = solver.startswith("heun") and self.gamma_heun is not None
        return {
            "kappa": self.kappa,
            "gamma": self.gamma_heun if heun else self.gamma,
            "active": self.active,
            "ema_start": self.ema_start,
        }


class CorrectorPreset(Frozen):
    snr: float = Field(gt=0)
    scale: float = Field(ge=0)


class AutoPreset(Frozen):
    """What `auto` stands for: the combination that did best per network call (docs/frontier.md)."""

    schedule: str = "cosine"
    solver: str = "exponential-2"
    steps: int = Field(default=50, ge=1, le=10_000_000)
    eta: float = Field(default=1.0, ge=0, le=1000)  # noise of an exponential solver
    corrector: Literal["none", "langevin"] | None = None  # None: as in the rest of the preset


class SamplerPreset(Frozen):
    """What a model's card says about sampling from it."""

    steps: int = Field(default=1000, ge=1, le=10_000_000)
    solver: str = "euler"
    corrector: CorrectorPreset | None = None
    weights: Literal["raw", "ema"] = "ema"
    released_solver: str | None = None  # what the released program samples with, on its own grid
    dvs: DvsPreset = DvsPreset()
    auto: AutoPreset = AutoPreset()


class SamplerSettings(Frozen):
    """Everything that decides a graph besides model, seed and index (and, with `clock="batch"`, its batch)."""

    schedule: str = "uniform"
    steps: int = Field(default=1000, ge=1, le=10_000_000)
    solver: str = "euler"
    corrector: Literal["none", "langevin"] = "none"
    snr: float = Field(default=0.1, gt=0)
    scale: float = Field(default=0.7, ge=0)
    clock: Literal["batch", "graph"] = "graph"
    schedule_options: dict[str, Any] = Field(default_factory=dict)
    solver_options: dict[str, Any] = Field(default_factory=dict)
    max_steps: int = Field(default=100_000, ge=1)

    @property
    def couples_graphs(self) -> bool:
        """Whether a graph depends on its batch mates."""
        solver = self.make_solver()
        return solver.couples_graphs or (self.schedule != "arclength" and self.controller().couples_graphs)

    @property
    def own_clocks(self) -> bool:
        """Whether graphs of one batch can be at different times."""
        if self.schedule == "arclength":
            return False
        return own_clocks(self.controller()) and not self.make_solver().couples_graphs

    def controller(self) -> Controller:
        options = dict(self.schedule_options)
        if self.schedule in SCHEDULES and "reduction" in option_names(SCHEDULES[self.schedule]):
            options.setdefault("reduction", self.clock)
        return make_schedule(self.schedule, self.steps, options)

    def make_solver(self) -> Solver:
        langevin = None
        if self.corrector == "langevin" or self.solver == "s4":  # s4 has its Langevin step inside
            langevin = Langevin(self.snr, self.scale, scales=max(2, self.steps), norms=self.clock)
        return make_solver(self.solver, langevin, self.solver_options)


def resolve(preset: SamplerPreset, **chosen: Any) -> SamplerSettings:
    """Settings from a preset and the user's choices; a choice that is None falls back to the preset.

    Without a schedule, `auto` if nothing but steps or its solver's options are chosen, else `dvs`: who turns another
    knob compares with the paper.
    """
    given = {key: value for key, value in chosen.items() if value is not None and value != {}}
    schedule = given.pop("schedule", "dvs" if given.keys() - {"steps", "max_steps", "solver_options"} else "auto")
    if schedule == "auto":
        given = {"solver": preset.auto.solver, "steps": preset.auto.steps} | given
        if given["solver"] == preset.auto.solver:
            given = preset.auto.model_dump(include={"corrector"}, exclude_none=True) | given
            if preset.auto.eta != 1:
                given["solver_options"] = {"eta": preset.auto.eta, **given.get("solver_options", {})}
        schedule = preset.auto.schedule
    usual = {"gdss": preset.released_solver, "error": "heun-error"}.get(schedule)
    solver = given.get("solver") or usual or preset.solver
    values: dict[str, Any] = {"schedule": schedule, "solver": solver, "steps": preset.steps}
    if preset.corrector is not None:
        values |= {"corrector": "langevin", "snr": preset.corrector.snr, "scale": preset.corrector.scale}
    options = dict(given.pop("schedule_options", {}))
    if schedule == "dvs":
        options = {**preset.dvs.options(solver), **options}
        values["clock"] = "batch"  # the paper's form; per-graph clocks are a choice
    values |= given
    try:
        settings = SamplerSettings(**{**values, "schedule_options": options, "solver": solver})
    except ValidationError as error:
        raise InputError(one_line(error, "sampler settings")) from error
    settings.make_solver()  # refuse bad names and options before any work
    if schedule != "arclength":  # its times are measured later
        settings.controller()
    return settings
