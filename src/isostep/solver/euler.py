"""Euler-Maruyama:  mean = x + f dt,  x' = mean + g sqrt(dt) z. Strong order 1, because the noise is additive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import Advance, NoiseSource, OneStep, Span, add_noise
from isostep.state import GraphState, expand


@dataclass(frozen=True)
class Euler(OneStep):
    calls_per_step: int = field(default=1, init=False)

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        mean = {n: x + here.drift[n] * expand(span.dt, x) for n, x in state.components.items()}
        scale = {n: g * span.dt.sqrt() for n, g in here.diffusion.items()}
        return Advance(add_noise(state, mean, scale, source.normal(state, span.t0, span.t1)), mean)
