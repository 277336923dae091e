"""Mixtures of bridges: every path starts at noise z0 ~ N(0, 1) and is pulled to the network's clean graph D.

    sigma(t)^2 = (1 - t) s0^2 + t s1^2,   beta(t) = int_0^t sigma^2,   phi = a (beta(1) - beta(t))
    OU bridge        f = sigma^2 a (D - x cosh(phi)) / sinh(phi),   g = sigma
    Brownian bridge  its limit a -> 0:  f = sigma^2 (D - x) / (beta(1) - beta(t))

Step t -> s with D fixed, exactly:  x_s = c0 x_t + c1 D + std z  with

    c0 = sinh(phi_s)/sinh(phi_t),  c1 = sinh(phi_t - phi_s)/sinh(phi_t),  var = c0 sinh(phi_t - phi_s)/a

so at s = 1 it returns D itself. `drift_coeff` k of the released configurations gives a = -k/2; every formula is even
in a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.process.base import LinearStep, Marginal
from isostep.state import expand


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """Ornstein-Uhlenbeck bridge mixture; `drift_coeff` = 0 is the Brownian bridge."""

    settings: ClassVar[tuple[str, ...]] = ("sigma_0", "sigma_1", "drift_coeff")
    sigma_0: float = 0.4
    sigma_1: float = 0.2
    drift_coeff: float = 0.0
    prior_std: float = 1.0
    estimates: Literal["clean"] = field(default="clean", init=False)
    singular_end: bool = field(default=True, init=False)
    t_end: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        if not (0 < self.sigma_0 < math.inf and 0 < self.sigma_1 < math.inf):
            raise InputError(f"bridge noise must be positive, got sigma_0={self.sigma_0}, sigma_1={self.sigma_1}")
        if not (math.isfinite(self.drift_coeff) and 0 < self.prior_std < math.inf):
            raise InputError(
                f"drift_coeff must be finite and prior_std positive, got {self.drift_coeff} and {self.prior_std}"
            )

    @property
    def a(self) -> float:
        return -self.drift_coeff / 2

    def _variance(self, t: Tensor) -> Tensor:
        """sigma(t)^2."""
        return (1 - t) * self.sigma_0**2 + t * self.sigma_1**2

    def _left(self, t: Tensor) -> Tensor:
        """beta(1) - beta(t), without cancellation near t = 1."""
        u = 1 - t
        return u * self.sigma_1**2 + u.square() * (self.sigma_0**2 - self.sigma_1**2) / 2

    def _sinh(self, gap: Tensor) -> Tensor:
        """sinh(a gap) / a, which is gap itself in the Brownian limit."""
        return torch.sinh(self.a * gap) / self.a if self.a else gap

    def diffusion(self, t: Tensor) -> Tensor:
        return self._variance(t).sqrt()

    def estimate(self, output: Tensor, t: Tensor) -> Tensor:
        return output

    def pull(self, t: Tensor) -> Tensor:
        """Weight of D in the drift: sigma^2 a / sinh(phi)."""
        return self._variance(t) / self._sinh(self._left(t))

    def drift(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        pull, cosh = self.pull(t), torch.cosh(self.a * self._left(t))
        return expand(pull, x) * (estimate - expand(cosh, x) * x)

    def score(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        return self.drift(x, estimate, t) / expand(self._variance(t), x)

    def clean(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        return estimate

    def loss_weight(self, t: Tensor) -> Tensor:
        """Coefficient of (prediction - clean) in the bridge-matching loss: pull / sigma."""
        return self.pull(t) / self.diffusion(t)

    def linear_step(self, t: Tensor, s: Tensor) -> LinearStep:
        left_t, left_s = self._left(t), self._left(s)
        whole, part = self._sinh(left_t), self._sinh(left_t - left_s)
        c0 = self._sinh(left_s) / whole
        return LinearStep(x=c0, clean=part / whole, std=(c0 * part).clamp_min(0.0).sqrt())

    def marginal(self, t: Tensor) -> Marginal:
        c0, c1, std = self.linear_step(torch.zeros_like(t), t)
        return Marginal(c1, ((c0 * self.prior_std).square() + std.square()).sqrt())

    def langevin_factor(self, t: Tensor, scales: int) -> Tensor:
        return torch.ones_like(t)
