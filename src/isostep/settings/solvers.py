"""The solvers by name. A new one is a class with `advance` in `solver/`, and an entry here.

The command line's help and the list in docs/usage.md come from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from isostep.base.registry import Entry


class Ladder(NamedTuple):
    """Values of an option that tuning tries, in order; for all components together or for each by itself."""

    values: tuple[float, ...]
    usual: float = 1.0
    by_component: bool = False


@dataclass(frozen=True)
class SolverEntry(Entry):
    inner_corrector: bool = False  # its first argument is a Langevin step, and it needs none in front
    ladders: Mapping[str, Ladder] | None = None  # options that `isostep tune` turns; None: it does not try the solver


NOISE = {
    "eta": Ladder((1.0, 1.5, 2.0, 3.0, 4.0, 8.0)),
    "temperature": Ladder((0.3, 0.45, 0.6, 0.75, 0.85, 0.9, 0.95, 1.0), by_component=True),
}
HEUN, EXPONENTIAL, FLOW = "isostep.solver.heun:Heun", "isostep.solver.exponential:Exponential", "isostep.solver.flow"

SOLVERS: dict[str, SolverEntry] = {
    "euler": SolverEntry("isostep.solver.euler:Euler", "Euler-Maruyama", ladders={}),
    "heun": SolverEntry(HEUN, "two calls a step, predicted without noise, as in the authors' program", ladders={}),
    "heun-noisy": SolverEntry(HEUN, "Heun, predicted with the step's noise, as in the paper", {"predictor": "noisy"}),
    "heun-error": SolverEntry(
        HEUN, "Heun that estimates its error, for the schedule error", {"predictor": "noisy", "tolerance": 0.02}
    ),
    "exponential": SolverEntry(EXPONENTIAL, "the linear part exactly, the predicted clean graph held", ladders=NOISE),
    "exponential-2": SolverEntry(
        EXPONENTIAL, "the same, second order by the previous step's prediction", {"order": 2}, ladders=NOISE
    ),
    "reverse": SolverEntry("isostep.solver.reverse:ReverseDiffusion", "GDSS' reverse diffusion (score SDEs)"),
    "s4": SolverEntry(
        "isostep.solver.s4:S4",
        "GDSS' splitting with a Langevin step inside (score SDEs)",
        inner_corrector=True,
        ladders={},
    ),
    "flow-euler": SolverEntry(f"{FLOW}:flow_euler", "probability flow, no noise, Euler steps (score SDEs)"),
    "flow-heun": SolverEntry(f"{FLOW}:flow_heun", "probability flow, no noise, Heun steps (score SDEs)"),
}
