"""Heun:  mean = x + (f1 + f2) dt / 2 with f2 at (predictor, t1),  x' = mean + g(t0) sqrt(dt) z.

The predictor is `mean` (x + f1 dt, as the authors' program does) or `noisy` (with the step's own noise, as in the
paper's Algorithm 3). Deterministic order 2. A bridge's drift has a pole at t = 1: a step that ends there is an Euler
step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from isostep.errors import InputError
from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import Advance, NoiseSource, OneStep, Span, add_noise
from isostep.state import GraphState, expand


@dataclass(frozen=True)
class Heun(OneStep):
    predictor: Literal["mean", "noisy"] = "mean"
    order: float = 1.0
    calls_per_step: int = 2

    def __post_init__(self) -> None:
        if self.predictor not in ("mean", "noisy"):
            raise InputError(f"Heun's predictor must be 'mean' or 'noisy', got {self.predictor!r}")

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        mean, there_drift = heun_slopes(self.predictor, sde, state, here, span, source)
        half = {n: (here.drift[n] + there_drift[n]) / 2 for n in mean}
        mean = {n: x + half[n] * expand(span.dt, x) for n, x in state.components.items()}
        scale = {n: g * span.dt.sqrt() for n, g in here.diffusion.items()}
        return Advance(add_noise(state, mean, scale, source.normal(state, span.t0, span.t1)), mean)


def heun_slopes(predictor: str, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource):
    """Euler's mean, and the drift at the step's end (at its start for graphs whose step ends on a pole)."""
    mean = {n: x + here.drift[n] * expand(span.dt, x) for n, x in state.components.items()}
    guess = state.replace(mean)
    if predictor == "noisy":
        scale = {n: g * span.dt.sqrt() for n, g in here.diffusion.items()}
        guess = add_noise(state, mean, scale, source.normal(state, span.t0, span.t1))
    if not sde.singular_end:
        # GDSS' own grid goes past the model's end, where VP's score is undefined.
        return mean, sde.evaluate(guess, span.t1.clamp(max=sde.t_end)).drift
    pole = span.t1 >= sde.t_end - 0.02 * span.dt
    there = sde.evaluate(guess, torch.where(pole, span.t0, span.t1)).drift
    return mean, {n: torch.where(expand(pole, f).bool(), here.drift[n], f) for n, f in there.items()}
