"""What the SDE of one component is. One clock for all: t = 0 is noise, t = 1 is data.

    dx = f(x, t) dt + g(t) dw

A process turns the network's *estimate* (the score, or the clean graph D) into the drift, and knows the two laws that
are Gaussian in closed form: the marginal given the clean graph, and the transition t -> s with the clean graph fixed.
Times are float64 tensors of shape (B,), one per graph; coefficients come back in the same shape.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

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
