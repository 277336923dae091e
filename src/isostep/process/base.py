"""What the SDE of one component is. One clock for all: t = 0 is noise, t = 1 is data.

    dx = f(x, t) dt + g(t) dw

A process turns the network's *estimate* (the score, or the clean graph D) into the drift, and knows the two laws that
are Gaussian in closed form: the marginal given the clean graph, and the transition t -> s with the clean graph fixed.
Times are float64 tensors of shape (B,), one per graph; coefficients come back in the same shape.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor


class Marginal(NamedTuple):
    """x_t = mean * D + std * z, z ~ N(0, 1)."""

    mean: Tensor
    std: Tensor


class LinearStep(NamedTuple):
    """x_s = x * x_t + clean * D + std * z: the exact transition from t to s while D is held fixed."""

    x: Tensor
    clean: Tensor
    std: Tensor


class Process(Protocol):
    """One component's SDE."""

    @property
    def estimates(self) -> Literal["score", "clean"]:
        """What the network's estimate is."""
        ...

    @property
    def t_end(self) -> float:
        """Where integration ends."""
        ...

    @property
    def singular_end(self) -> bool:
        """Whether the drift has a pole at t = 1, so that it must not be evaluated there."""
        ...

    @property
    def prior_std(self) -> float: ...

    def diffusion(self, t: Tensor) -> Tensor:
        """g(t)."""
        ...

    def estimate(self, output: Tensor, t: Tensor) -> Tensor:
        """The estimate, from what the network returns."""
        ...

    def drift(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        """f(x, t)."""
        ...

    def score(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        """The direction of the Langevin corrector."""
        ...

    def clean(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        """The estimate of the clean graph D."""
        ...

    def marginal(self, t: Tensor) -> Marginal: ...

    def linear_step(self, t: Tensor, s: Tensor) -> LinearStep: ...

    def langevin_factor(self, t: Tensor, scales: int) -> Tensor:
        """The factor `a` of the Langevin step size."""
        ...


def noisier_step(process: Process, t: Tensor, s: Tensor, eta: float) -> LinearStep:
    """The exact transition, D fixed, of the SDE with `eta` times the noise and the same marginals m D + v^(1/2) z:

        dx = (f + (eta^2 - 1)/2 g^2 (m D - x)/v) dt + eta g dw

    If r is the correlation of x_t and x_s given D in the process itself, it is r^(eta^2) here: 1 without noise
    (eta = 0, the probability flow), towards 0 for much of it (x_s is drawn afresh around D).
    """
    step = process.linear_step(t, s)
    if eta == 1:
        return step
    here, there = process.marginal(t), process.marginal(s)
    ratio = there.std / here.std
    log_r = torch.where(ratio > 0, eta**2 * (step.x / ratio).clamp(0.0, 1.0).log(), -torch.inf)  # a bridge ends in D
    x = ratio * log_r.exp()
    return LinearStep(x, there.mean - x * here.mean, there.std * (-torch.expm1(2 * log_r)).sqrt())
