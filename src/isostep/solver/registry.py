"""Solvers by name. A new one is a class with `evaluate` and `advance`, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from isostep.control.registry import make
from isostep.solver.base import Solver
from isostep.solver.euler import Euler
from isostep.solver.exponential import Exponential
from isostep.solver.flow import ProbabilityFlow
from isostep.solver.heun import Heun
from isostep.solver.langevin import Corrected, Langevin
from isostep.solver.reverse import ReverseDiffusion
from isostep.solver.s4 import S4

SOLVERS: dict[str, Callable[..., Solver]] = {
    "euler": Euler,
    "heun": Heun,
    "heun-noisy": partial(Heun, predictor="noisy"),
    "heun-error": partial(Heun, predictor="noisy", tolerance=0.02),
    "exponential": Exponential,
    "exponential-2": partial(Exponential, order=2),
    "reverse": ReverseDiffusion,
    "s4": S4,
    "flow-euler": lambda: ProbabilityFlow(Euler()),
    "flow-heun": lambda: ProbabilityFlow(Heun()),
}


def make_solver(name: str, corrector: Langevin | None = None, options: Mapping[str, Any] | None = None) -> Solver:
    """The solver called `name`, with a Langevin step in front if one is given (S4 has its own inside)."""
    given = dict(options or {})
    if name == "s4":
        return make(SOLVERS, "solver", name, options={"corrector": corrector or Langevin(), **given})
    solver = make(SOLVERS, "solver", name, options=given)
    return solver if corrector is None else Corrected(solver, corrector)
