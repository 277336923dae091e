"""Heun:  mean = x + (f1 + f2) dt / 2 with f2 at (predictor, t1),  x' = mean + g(t0) sqrt(dt) z.

The predictor is `mean` (x + f1 dt, as the authors' program does) or `noisy` (with the step's own noise, as in the
paper's Algorithm 3). Deterministic order 2. A bridge's drift has a pole at t = 1: a step that ends there is an Euler
step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.geometry import squared_norm
from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import Advance, NoiseSource, OneStep, Span, add_noise
from isostep.state import GraphState, expand


@dataclass(frozen=True)
class Heun(OneStep):
    predictor: Literal["mean", "noisy"] = "mean"
    tolerance: float | None = None  # report Euler's error in these units, for error control
    calls_per_step: int = field(default=2, init=False)

    def __post_init__(self) -> None:
        if self.predictor not in ("mean", "noisy"):
            raise InputError(f"Heun's predictor must be 'mean' or 'noisy', got {self.predictor!r}")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"Heun's tolerance must be positive, got {self.tolerance}")

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        z = source.normal(state, span.t0, span.t1)
        scale = {n: g * span.dt.sqrt() for n, g in here.diffusion.items()}
        guess = {n: x + here.drift[n] * expand(span.dt, x) for n, x in state.components.items()}
        guess = add_noise(state, guess, scale, z) if self.predictor == "noisy" else state.replace(guess)
        there_drift = _slope_at_end(sde, guess, here, span)
        half = {n: (f + there_drift[n]) / 2 for n, f in here.drift.items()}
        mean = {n: x + half[n] * expand(span.dt, x) for n, x in state.components.items()}
        new = add_noise(state, mean, scale, z)
        return Advance(new, mean, error=self._error(state, here.drift, there_drift, span))

    def _error(
        self, state: GraphState, f1: Mapping[str, Tensor], f2: Mapping[str, Tensor], span: Span
    ) -> Tensor | None:
        """(B,) rms over all entries of (f2 - f1) dt / 2, in units of the tolerance."""
        if self.tolerance is None:
            return None
        squares = torch.stack([squared_norm(f2[n] - f1[n]).to(span.dt.dtype) for n in f1]).sum(0)
        stored = torch.stack([state.free_entries(n) * (2 if state.kinds[n] == "edge" else 1) for n in f1]).sum(0)
        return (squares / stored.clamp_min(1)).sqrt() * span.dt / (2 * self.tolerance)


def _slope_at_end(sde: Sde, guess: GraphState, here: Evaluation, span: Span) -> Mapping[str, Tensor]:
    """The drift at the step's end; at its start for graphs whose step ends on a pole."""
    if not sde.singular_end:
        # GDSS' own grid goes past the model's end, where VP's score is undefined.
        return sde.evaluate(guess, span.t1.clamp(max=sde.t_end)).drift
    pole = span.t1 >= sde.t_end - 0.02 * span.dt
    there = sde.evaluate(guess, torch.where(pole, span.t0, span.t1)).drift
    return {n: torch.where(expand(pole, f).bool(), here.drift[n], f) for n, f in there.items()}
