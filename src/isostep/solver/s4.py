"""S4 (GDSS): symmetric splitting with one evaluation a step.

(1) Langevin correction with the scores at t, (2) half a step of the forward SDE's exact linear part, backwards,
(3) x += g^2 score dt with the same scores, (4) the other half step; its mean is the denoised output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isostep.noise import FIRST_HALF, SECOND_HALF
from isostep.process.score_sde import ScoreSde
from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import Advance, NoiseSource, OneStep, Span, add_noise, need_processes
from isostep.solver.langevin import Langevin
from isostep.state import GraphState, expand


@dataclass(frozen=True)
class S4(OneStep):
    corrector: Langevin = field(default_factory=Langevin)
    calls_per_step: int = field(default=1, init=False)

    @property
    def couples_graphs(self) -> bool:
        return self.corrector.norms == "batch"

    def check(self, sde: Sde) -> None:
        for process in need_processes(sde, "s4", ScoreSde).values():
            assert isinstance(process, ScoreSde)
            process.half_step(torch.ones(1), -torch.ones(1) / 2)

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        assert here.estimate is not None
        s, h = 1 - span.t0, -span.dt / 2
        state = self.corrector.correct(sde, state, here.estimate, span.t0, source)
        state, _ = self._half(sde, state, s, h, span, source, FIRST_HALF)
        pushed: dict[str, Tensor] = {}
        for name, x in state.components.items():
            weight = here.diffusion[name].square() * span.dt
            pushed[name] = x + expand(weight, x) * here.estimate[name]
        state, mean = self._half(sde, state.replace(pushed), s + h, h, span, source, SECOND_HALF)
        return Advance(state, mean)

    def _half(
        self, sde: Sde, state: GraphState, s: Tensor, h: Tensor, span: Span, source: NoiseSource, stream: int
    ) -> tuple[GraphState, dict[str, Tensor]]:
        mean: dict[str, Tensor] = {}
        spread: dict[str, Tensor] = {}
        for name, process in sde.processes.items():
            assert isinstance(process, ScoreSde)
            factor, spread[name] = process.half_step(s, h)
            mean[name] = expand(factor, state[name]) * state[name]
        return add_noise(state, mean, spread, source.normal(state, span.t0, span.t1, stream)), mean
