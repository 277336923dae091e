"""The classical rival: local error control, per graph, with rejection.

The solver compares Euler with Heun, err = rms((f2 - f1) dt / 2 / tol); a step with err > 1 is rejected, and the next
one has  dt <- dt clip(safety err^(-1/2), 1/5, 5).  A rejected step must see the same Brownian path again, so the noise
has to be a `BrownianTree`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.control.base import Measured, Proposal, Review, Silent


class ErrorMemory(NamedTuple):
    dt: Tensor  # (B,) the step to try
    t_end: Tensor


@dataclass(frozen=True)
class ErrorControl(Silent):
    """Steps as long as the solver's error estimate allows; `dt_first` is the first try."""

    dt_first: float = 1e-2
    dt_min: float = 1e-3
    dt_max: float = 0.25
    safety: float = 0.9
    eps_bound: float = 1e-9
    needs_variation: bool = field(default=False, init=False)
    couples_graphs: bool = field(default=False, init=False)
    reviews: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not (0 < self.dt_min <= self.dt_first <= self.dt_max and 0 < self.safety <= 1):
            raise InputError(f"need 0 < dt_min <= dt_first <= dt_max and 0 < safety <= 1, got {self}")
        if not 0 <= self.eps_bound <= self.dt_min:  # what is left at the end
            raise InputError(f"eps_bound must be from 0 to dt_min, which is {self.dt_min:g}, got {self.eps_bound}")

    def start(self, t: Tensor, components: int, t_end: float) -> ErrorMemory:
        return ErrorMemory(torch.full_like(t, self.dt_first), torch.full_like(t, t_end))

    def propose(self, memory: ErrorMemory, now: Measured) -> Proposal:
        left = memory.t_end - now.t
        reaches = memory.dt >= left
        return Proposal(torch.where(reaches, memory.t_end, now.t + memory.dt), torch.minimum(memory.dt, left), memory)

    def review(self, memory: ErrorMemory, now: Measured, proposal: Proposal, error: Tensor | None) -> Review:
        if error is None:
            raise InputError("error control needs a solver that estimates its error: use heun-error")
        tried = proposal.dt
        accepted = (error <= 1) | (tried <= self.dt_min * (1 + 1e-9))
        factor = (self.safety / error.clamp_min(1e-12).sqrt()).clamp(0.2, 5.0)
        factor = torch.where(factor.isfinite(), factor, torch.full_like(factor, 0.2))
        return Review(accepted, memory._replace(dt=(tried * factor).clamp(self.dt_min, self.dt_max)))

    def finished(self, memory: ErrorMemory, t: Tensor, step: Tensor) -> Tensor:
        return t >= memory.t_end - self.eps_bound

    def least_left(self, memory: ErrorMemory, t: Tensor, step: Tensor) -> Tensor:
        return ((memory.t_end - t) / self.dt_max).ceil().clamp_min(1).long()


def error_control(steps: int, **options: float) -> ErrorControl:
    """Error control whose first try is one of `steps` equal steps."""
    first = 1 / steps
    bounds = {"dt_min": min(1e-3, first), "dt_max": max(0.25, first)}
    return ErrorControl(**{"dt_first": first, **bounds, **options})
