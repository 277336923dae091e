"""The solvers by name. A new one is a class with `advance` in `solver/`, and an entry here.

The command line's help and the list in docs/usage.md come from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from isostep.base.registry import Entry


@dataclass(frozen=True)
class SolverEntry(Entry):
    inner_corrector: bool = False  # its first argument is a Langevin step, and it needs none in front


HEUN, EXPONENTIAL, FLOW = "isostep.solver.heun:Heun", "isostep.solver.exponential:Exponential", "isostep.solver.flow"

SOLVERS: dict[str, SolverEntry] = {
    "euler": SolverEntry("isostep.solver.euler:Euler", "Euler-Maruyama"),
    "heun": SolverEntry(HEUN, "two calls a step, predicted without noise, as in the authors' program"),
    "heun-noisy": SolverEntry(HEUN, "Heun, predicted with the step's noise, as in the paper", {"predictor": "noisy"}),
    "heun-error": SolverEntry(
        HEUN, "Heun that estimates its error, for the schedule error", {"predictor": "noisy", "tolerance": 0.02}
    ),
    "exponential": SolverEntry(EXPONENTIAL, "the linear part exactly, the predicted clean graph held"),
    "exponential-2": SolverEntry(EXPONENTIAL, "the same, second order by the previous step's prediction", {"order": 2}),
    "reverse": SolverEntry("isostep.solver.reverse:ReverseDiffusion", "GDSS' reverse diffusion (score SDEs)"),
    "s4": SolverEntry(
        "isostep.solver.s4:S4", "GDSS' splitting with a Langevin step inside (score SDEs)", inner_corrector=True
    ),
    "flow-euler": SolverEntry(f"{FLOW}:flow_euler", "probability flow, no noise, Euler steps (score SDEs)"),
    "flow-heun": SolverEntry(f"{FLOW}:flow_heun", "probability flow, no noise, Heun steps (score SDEs)"),
}
