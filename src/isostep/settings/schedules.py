"""The schedules by name. A new one is a function `(steps, **options) -> Controller` in `control/`, and an entry here.

The command line's help and the list in docs/usage.md come from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from isostep.base.registry import Entry


class Knob(NamedTuple):
    """The option by which an adaptive schedule spends more or less: more of it, longer steps, fewer calls."""

    table: Literal["schedule_options", "solver_options"]
    name: str
    low: float
    usual: float
    high: float


@dataclass(frozen=True)
class Schedule(Entry):
    """How a schedule's controller is made, and what it asks of the rest of the settings."""

    given: Entry | None = None  # a function of the options that makes the option `times` of them
    pilot: Entry | None = None  # a class whose `times(pilot, N)` fill in the option `times`
    budget_knob: Knob | None = None  # without one, the steps are what a budget of calls sets
    usual_solver: str = ""  # else the preset's
    usual_clock: Literal["batch", "graph"] = "graph"
    clock_field: str = ""  # the field that takes the clock
    proposal: Entry | None = None  # a function from a pilot to constants for it
    candidates: tuple[Mapping[str, Any], ...] = ()  # options with which `isostep tune` tries it

    @property
    def needs_pilot(self) -> bool:
        return self.pilot is not None


RELEASED = "released"  # the solver that the model's own program samples with
GRID, FISHER, DVS = "isostep.control.grid", "isostep.control.fisher", "isostep.control.dvs"
ARCLENGTH, DECISIONS = "isostep.control.arclength", "isostep.control.decisions"
ERROR = "isostep.control.error"

SCHEDULES: dict[str, Schedule] = {
    "uniform": Schedule(f"{GRID}:uniform", "equal steps", candidates=({},)),
    "quadratic": Schedule(f"{GRID}:quadratic", "1 - (1 - i/N)^2, dense near the data", candidates=({},)),
    "power": Schedule(
        f"{GRID}:power", "1 - (1 - (i/N)^p)^rho", candidates=({"p": 0.7}, {"p": 1.3}, {"p": 1.5}, {"p": 2.0})
    ),
    "karras": Schedule(f"{GRID}:karras", "even in the 1/rho-th power of the time left, down to a floor"),
    "cosine": Schedule(f"{GRID}:cosine", "sin(pi i / 2N), dense near the data", candidates=({},)),
    "fisher": Schedule(
        f"{FISHER}:fisher",
        "equal Fisher-Rao steps of a decision that starts with chance a",
        candidates=({"a": 0.1}, {"a": 0.3}),
    ),
    "ranges": Schedule(f"{GRID}:ranges", "even steps, shorter ones inside given ranges (--set active=[[.5,1]])"),
    "gdss": Schedule(f"{GRID}:gdss", "the grid of GDSS' own samplers, with their solver", usual_solver=RELEASED),
    "times": Schedule(
        f"{GRID}:explicit", "the times in a file (--set file=times.txt)", given=Entry(f"{GRID}:given_times")
    ),
    "dvs": Schedule(
        f"{DVS}:dvs",
        "Drift Variation Score: every step covers the same information; base step 1/N",
        settings=f"{DVS}:Dvs",
        derived=("dt_base", "reduction"),
        budget_knob=Knob("schedule_options", "kappa", 1e-6, 1.0, 1e12),
        usual_clock="batch",  # the paper's form; per-graph clocks are a choice
        clock_field="reduction",
        proposal=Entry("isostep.control.propose:propose"),
    ),
    "arclength": Schedule(
        f"{GRID}:calibrated",
        "equal information with exactly N steps, measured once on a pilot",
        pilot=Entry(f"{ARCLENGTH}:Density"),
        candidates=({},),
    ),
    "decisions": Schedule(
        f"{GRID}:calibrated",
        "N steps where the predicted graph is decided, the last call once it is; measured once on a pilot",
        pilot=Entry(f"{DECISIONS}:Decisions"),
        candidates=({},),
    ),
    "error": Schedule(
        f"{ERROR}:error_control",
        "local error control with rejected steps; first try 1/N",
        settings=f"{ERROR}:ErrorControl",
        derived=("dt_first",),
        budget_knob=Knob("solver_options", "tolerance", 1e-6, 0.02, 1e3),
        usual_solver="heun-error",
    ),
}

AUTO = "auto"  # not a schedule: the model's preset names one
PLAIN = "uniform"  # of a model whose program has no grid of its own
PAPER = "dvs"  # where other settings are chosen but no schedule: such a run compares with the paper
COMPARED = (PLAIN, "quadratic", PAPER)  # by a comparison that names none; the first one is the baseline
CHOICES = {AUTO: "what does best per network call on this model"} | {name: s.help for name, s in SCHEDULES.items()}
