"""Score SDEs, run backwards. Forward time is s = 1 - t, and only this file knows about it.

    forward   dx = -b(s)/2 x ds + g(s) dw,     x_s = m(s) D + std(s) z
    VP        b = b0 + s (b1 - b0), g = sqrt(b),  m = exp(-B/2), std = sqrt(1 - exp(-B)),  B(s) = int_0^s b
    subVP     as VP with g^2 = b (1 - exp(-2B)), std = 1 - exp(-B)
    VE        b = 0, sigma = smin (smax/smin)^s, g = sigma sqrt(2 ln(smax/smin)), m = 1, std = sigma
    generative drift   f = b/2 x + g^2 score

The exact step t -> t' uses the Gaussian posterior of x_s' given x_s and D = (x + std^2 score) / m (Tweedie).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.process.base import LinearStep, Marginal
from isostep.state import expand


class ReverseStep(NamedTuple):
    """Reverse diffusion's discrete coefficients: F = shrink * x and G."""

    shrink: Tensor
    spread: Tensor


@dataclass(frozen=True, kw_only=True)
class ScoreSde:
    """What VP, subVP and VE share; `eps` keeps the end away from s = 0, where VP's std vanishes."""

    eps: float = 1e-4
    estimates: Literal["score"] = field(default="score", init=False)
    singular_end: bool = field(default=False, init=False)
    prior_std: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.eps < 1:
            raise InputError(f"eps must lie in (0, 1), got {self.eps}: it is the forward time where sampling ends")
        if not 0 < self.prior_std < math.inf:
            raise InputError(f"prior_std must be a positive number, got {self.prior_std}")

    @property
    def t_end(self) -> float:
        return 1.0 - self.eps

    # -- what each SDE defines, in forward time --------------------------------------------------------------------
    def _rate(self, s: Tensor) -> Tensor:
        """b(s)."""
        raise NotImplementedError

    def _diffusion(self, s: Tensor) -> Tensor:
        raise NotImplementedError

    def _kernel(self, s: Tensor) -> Marginal:
        raise NotImplementedError

    def _output_scale(self, s: Tensor) -> Tensor:
        """score = scale * network output."""
        raise NotImplementedError

    # -- what the rest of the library sees, in generative time -----------------------------------------------------
    def diffusion(self, t: Tensor) -> Tensor:
        return self._diffusion(1 - t)

    def marginal(self, t: Tensor) -> Marginal:
        return self._kernel(1 - t)

    def estimate(self, output: Tensor, t: Tensor) -> Tensor:
        return output * expand(self._output_scale(1 - t), output)

    def drift(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        s = 1 - t
        return expand(self._rate(s) / 2, x) * x + expand(self._diffusion(s).square(), x) * estimate

    def score(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        return estimate

    def flow_drift(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        """Drift of the probability-flow ODE: the same marginals without noise."""
        s = 1 - t
        return expand(self._rate(s) / 2, x) * x + expand(self._diffusion(s).square() / 2, x) * estimate

    def clean(self, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
        mean, std = self.marginal(t)
        return (x + expand(std.square(), x) * estimate) / expand(mean, x)

    def linear_step(self, t: Tensor, s: Tensor) -> LinearStep:
        here, there = self._kernel(1 - t), self._kernel((1 - s).clamp_min(0.0))
        ratio = here.mean / there.mean
        gap = (here.std.square() - (ratio * there.std).square()).clamp_min(0.0)
        variance = here.std.square()
        return LinearStep(
            x=ratio * there.std.square() / variance,
            clean=there.mean * gap / variance,
            std=there.std * (gap / variance).sqrt(),
        )

    def langevin_factor(self, t: Tensor, scales: int) -> Tensor:
        return torch.ones_like(t)

    # -- GDSS' own discrete steps ------------------------------------------------------------------------------------
    def reverse_step(self, t: Tensor, dt: Tensor) -> ReverseStep:
        """Coefficients of one reverse-diffusion step of size dt at t."""
        raise NotImplementedError

    def half_step(self, s: Tensor, h: Tensor) -> Marginal:
        """Forward transition taken backwards over h < 0 from forward time s, for S4."""
        raise InputError(f"the S4 solver has no half step for {type(self).__name__}; use VP or VE, or another solver")


def _index(t: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """GDSS' grid index i = floor(s (N - 1)) and N = 1 / dt. The small shift undoes rounding in 1 - t."""
    scales = (1 / dt).round()
    return ((1 - t) * (scales - 1) + 1e-9).floor(), scales


@dataclass(frozen=True, kw_only=True)
class VP(ScoreSde):
    """Variance preserving.

    `single_std` computes std as GDSS' programs do, in single precision, where 1 - exp(-B) loses digits near s = 0: for
    comparisons with their output only.
    """

    settings: ClassVar[tuple[str, ...]] = ("beta_min", "beta_max")
    beta_min: float = 0.1
    beta_max: float = 1.0
    single_std: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range("beta", self.beta_min, self.beta_max)

    def _rate(self, s: Tensor) -> Tensor:
        return self.beta_min + s * (self.beta_max - self.beta_min)

    def _integral(self, s: Tensor) -> Tensor:
        return s.square() * (self.beta_max - self.beta_min) / 2 + s * self.beta_min

    def _diffusion(self, s: Tensor) -> Tensor:
        return self._rate(s).sqrt()

    def _kernel(self, s: Tensor) -> Marginal:
        integral = self._integral(s)
        variance = (1 - torch.exp(-integral.float())).to(s.dtype) if self.single_std else -torch.expm1(-integral)
        return Marginal(torch.exp(-integral / 2), variance.sqrt())

    def _output_scale(self, s: Tensor) -> Tensor:
        return -1 / self._kernel(s).std

    def langevin_factor(self, t: Tensor, scales: int) -> Tensor:
        return (1 - self._discrete_beta(t, torch.full_like(t, 1 / scales))).clamp_min(0.0)

    def _discrete_beta(self, t: Tensor, dt: Tensor) -> Tensor:
        """beta_i = beta(i) / N; above 1 where N < beta, so 1 - beta_i must be kept from becoming negative."""
        index, count = _index(t, dt)
        return self._rate(index / (count - 1).clamp_min(1)) / count

    def reverse_step(self, t: Tensor, dt: Tensor) -> ReverseStep:
        beta = self._discrete_beta(t, dt)
        return ReverseStep((1 - beta).clamp_min(0.0).sqrt() - 1, beta.sqrt())

    def half_step(self, s: Tensor, h: Tensor) -> Marginal:
        c = h * (2 * self.beta_min + (2 * s + h) * (self.beta_max - self.beta_min)) / 4
        # With few steps the last half step starts beyond s = 0, where the variance would be negative.
        return Marginal(torch.exp(-c), (-torch.expm1(2 * c)).clamp_min(0.0).sqrt())


@dataclass(frozen=True, kw_only=True)
class SubVP(VP):
    """Sub-variance preserving: VP's drift with less noise."""

    def _diffusion(self, s: Tensor) -> Tensor:
        return (self._rate(s) * -torch.expm1(-2 * self._integral(s))).sqrt()

    def _kernel(self, s: Tensor) -> Marginal:
        integral = self._integral(s)
        return Marginal(torch.exp(-integral / 2), -torch.expm1(-integral))

    def reverse_step(self, t: Tensor, dt: Tensor) -> ReverseStep:
        return ReverseStep(-self._rate(1 - t) * dt / 2, self.diffusion(t) * dt.sqrt())

    def half_step(self, s: Tensor, h: Tensor) -> Marginal:
        return ScoreSde.half_step(self, s, h)


@dataclass(frozen=True, kw_only=True)
class VE(ScoreSde):
    """Variance exploding."""

    settings: ClassVar[tuple[str, ...]] = ("sigma_min", "sigma_max")
    sigma_min: float = 0.1
    sigma_max: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range("sigma", self.sigma_min, self.sigma_max)

    @property
    def _log_ratio(self) -> float:
        return math.log(self.sigma_max / self.sigma_min)

    def _sigma(self, s: Tensor) -> Tensor:
        return self.sigma_min * torch.exp(s * self._log_ratio)

    def _rate(self, s: Tensor) -> Tensor:
        return torch.zeros_like(s)

    def _diffusion(self, s: Tensor) -> Tensor:
        return self._sigma(s) * math.sqrt(2 * self._log_ratio)

    def _kernel(self, s: Tensor) -> Marginal:
        return Marginal(torch.ones_like(s), self._sigma(s))

    def _output_scale(self, s: Tensor) -> Tensor:
        return torch.ones_like(s)

    def reverse_step(self, t: Tensor, dt: Tensor) -> ReverseStep:
        index, count = _index(t, dt)
        gaps = (count - 1).clamp_min(1)
        before = torch.where(index > 0, self._sigma((index - 1) / gaps), torch.zeros_like(t))
        return ReverseStep(torch.zeros_like(t), (self._sigma(index / gaps).square() - before.square()).sqrt())

    def half_step(self, s: Tensor, h: Tensor) -> Marginal:
        gap = self._sigma(s).square() - self._sigma(s + h).square()
        return Marginal(torch.ones_like(s), gap.sqrt())


def _check_range(name: str, low: float, high: float) -> None:
    if not 0 < low < high < math.inf:
        raise InputError(f"need 0 < {name}_min < {name}_max, got {low} and {high}")
