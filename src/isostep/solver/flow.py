"""Probability flow: integrate the ODE with the same marginals,  dx = (f_linear + g^2 score / 2) dt,  without noise.

Wraps a solver that steps by the drift alone; g stays known, so that V is still measured in the metric of the SDE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from isostep.base.errors import InputError
from isostep.noise import ZeroNoise
from isostep.process.score_sde import ScoreSde
from isostep.process.sde import Evaluation, FlowSde, Sde
from isostep.solver.base import Advance, NoiseSource, Span, Wrapped, need_processes
from isostep.solver.euler import Euler
from isostep.solver.heun import Heun
from isostep.state import GraphState


@dataclass(frozen=True)
class ProbabilityFlow(Wrapped):
    def check(self, sde: Sde) -> None:
        if not isinstance(self.solver, Euler | Heun):
            raise InputError(f"the probability flow is stepped by Euler or Heun, not by {type(self.solver).__name__}")
        need_processes(sde, "probability-flow", ScoreSde)

    def evaluate(self, sde: Sde, state: GraphState, t: Tensor, source: NoiseSource) -> tuple[GraphState, Evaluation]:
        return self.solver.evaluate(FlowSde(sde), state, t, _quiet(source))

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        return self.solver.advance(FlowSde(sde), state, here, span, _quiet(source), memory)


def flow_euler() -> ProbabilityFlow:
    return ProbabilityFlow(Euler())


def flow_heun() -> ProbabilityFlow:
    return ProbabilityFlow(Heun())


def _quiet(source: NoiseSource) -> NoiseSource:
    return replace(source, noise=ZeroNoise())
