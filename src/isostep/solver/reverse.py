"""Reverse diffusion, GDSS' default on molecules:  mean = x - F + G^2 score,  x' = mean + G z.

    VP   F = (sqrt(1 - beta_i) - 1) x,  G = sqrt(beta_i)
    VE   F = 0,                         G = sqrt(sigma_i^2 - sigma_(i-1)^2),  sigma_(-1) = 0

with i = floor(s (N - 1)) and N = 1/dt: made for GDSS' own grid, where every step has the same length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from isostep.process.score_sde import ScoreSde
from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import Advance, NoiseSource, OneStep, Span, add_noise, need_processes
from isostep.state import GraphState, expand


@dataclass(frozen=True)
class ReverseDiffusion(OneStep):
    calls_per_step: int = field(default=1, init=False)

    def check(self, sde: Sde) -> None:
        need_processes(sde, "reverse", ScoreSde)

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        assert here.estimate is not None
        mean: dict[str, Tensor] = {}
        spread: dict[str, Tensor] = {}
        for name, process in sde.processes.items():
            assert isinstance(process, ScoreSde)
            shrink, spread[name] = process.reverse_step(span.t0, span.dt)
            x, score = state[name], here.estimate[name]
            mean[name] = x - expand(shrink, x) * x + expand(spread[name].square(), x) * score
        return Advance(add_noise(state, mean, spread, source.normal(state, span.t0, span.t1)), mean)
