"""Exponential step: the linear part of the SDE exactly, the clean graph D held over the step.

    x_s = c_x x_t + c_D D + std z            (coefficients: Process.linear_step)

First order: D is the estimate at t0. Second order, multistep: D is extrapolated to the middle of the step from this
estimate and the previous one, at no extra call:

    D' = D + w (D - D_prev),   w = (t1 - t0) / (2 (t0 - t_prev)), at most 1

On a Gaussian law the terminal variance then errs by O(dt^2) instead of O(dt).
One step with D fixed equals a thousand; at the end of a bridge the step returns D itself.

`eta` is the amount of noise: the step of the SDE with eta times the noise and the same marginals (noisier_step). An
exact network gives the same law with any eta. A trained one errs, and noise makes the path forget earlier errors: on
models whose own SDE has little noise (bridges), more of it gives better graphs (docs/frontier.md).

`temperature` multiplies the noise of the step and nothing else: one number, or one per component. Below 1 the path has
another law than the model's, narrower around the predicted graph (docs/theory.md). A pair (a, b) goes from a at t = 0
to b at t = 1, linearly in the time at which a step starts.

`clean_end`: the result is the last predicted graph itself. VE ends at sigma_min, and its mean keeps that much noise;
the others end in the prediction anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isostep.base.checks import is_mapping
from isostep.base.errors import InputError
from isostep.process.base import noisier_step
from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import Advance, NoiseSource, OneStep, Span, add_noise, need_processes
from isostep.state import GraphState, expand

MAX_TEMPERATURE = 100.0
Temperature = float | tuple[float, float]


class Previous(NamedTuple):
    """The last estimate of the clean graph, and when it was made; a negative time means none yet."""

    clean: dict[str, Tensor]
    t: Tensor


@dataclass(frozen=True)
class Exponential(OneStep):
    order: float = 1.0
    eta: float = 1.0
    temperature: Temperature | Mapping[str, Temperature] = 1.0  # by component; one that is not named has 1
    clean_end: bool = False
    calls_per_step: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise InputError(f"the exponential solver has order 1 or 2, got {self.order}")
        if not 0 <= self.eta <= 1000:
            raise InputError(f"the exponential solver's eta is between 0 and 1000, got {self.eta}")
        given: Any = self.temperature
        for tau in given.values() if is_mapping(given) else [given]:
            ends: Any = tau if isinstance(tau, list | tuple) else [tau, tau]  # pyright: ignore[reportUnknownVariableType]
            if len(ends) != 2 or not all(_is_temperature(end) for end in ends):
                raise InputError(
                    f"a temperature is a number between 0 and {MAX_TEMPERATURE:g}, or two, at t = 0 and 1, got {tau!r}"
                )

    def check(self, sde: Sde) -> None:
        components = need_processes(sde, "exponential")
        if isinstance(self.temperature, Mapping) and (strange := sorted(self.temperature.keys() - components)):
            raise InputError(
                f"a temperature for {strange[0]!r}, but the model's components are {', '.join(components)}"
            )

    def _temperature(self, name: str, t: Tensor) -> Tensor | float:
        tau = self.temperature.get(name, 1.0) if isinstance(self.temperature, Mapping) else self.temperature
        return tau if isinstance(tau, int | float) else tau[0] + (tau[1] - tau[0]) * t

    def start(self, state: GraphState) -> Previous | None:
        if self.order == 1:
            return None
        zeros = {n: torch.zeros_like(x) for n, x in state.components.items()}
        return Previous(zeros, torch.full((state.batch,), -1.0, dtype=torch.float64, device=state.device))

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Previous | None
    ) -> Advance:
        assert here.estimate is not None
        clean = {n: p.clean(state[n], here.estimate[n], span.t0) for n, p in sde.processes.items()}
        target = clean if memory is None else self._extrapolate(clean, memory, span)
        mean: dict[str, Tensor] = {}
        spread: dict[str, Tensor] = {}
        for name, process in sde.processes.items():
            c_x, c_clean, std = noisier_step(process, span.t0, span.t1, self.eta)
            spread[name] = std * self._temperature(name, span.t0)
            x = state[name]
            mean[name] = expand(c_x, x) * x + expand(c_clean, x) * target[name]
        new = add_noise(state, mean, spread, source.normal(state, span.t0, span.t1))
        if self.clean_end:
            mean = clean
        return Advance(new, mean, memory if memory is None else Previous(clean, span.t0))

    def _extrapolate(self, clean: dict[str, Tensor], before: Previous, span: Span) -> dict[str, Tensor]:
        # D - D_prev carries noise, which a step much longer than the last one must not amplify.
        weight = ((span.t1 - span.t0) / (2 * (span.t0 - before.t))).clamp(max=1.0)
        weight = torch.where(before.t >= 0, weight, torch.zeros_like(weight))
        return {n: d + expand(weight, d) * (d - before.clean[n]) for n, d in clean.items()}


def _is_temperature(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TEMPERATURE
