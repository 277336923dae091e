"""Equal arc length with exactly N steps: measure once on a pilot, then sample on a static grid.

V is driven by noise, so it grows with the step before it: E||df||^2 = g^2 tr(J^T J) dt + O(dt^2). The rate that does
not depend on the grid is

    j_c(t) = V_c / dt_previous

and ds2 = V dt is the same for every step when dt is proportional to j^(-1/2). So integrate rho = (sum_c j_c)^(1/2)
over t and cut the curve into N equal parts. No feedback, no host synchronisation, no coupling of graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isostep.base.errors import InputError
from isostep.control.pilot import Pilot


@dataclass(frozen=True)
class Density:
    """How the rate becomes a density of steps: rho = j^power, over the components' sum, their largest, or one of them.

    `smooth` is the width in t of a moving average over the pilot; `floor` keeps rho above this share of its mean, so
    that no stretch of time is left without steps.
    """

    power: float = 0.5
    combine: str = "sum"
    smooth: float = 0.03
    floor: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.power <= 2 and 0 <= self.smooth < 1 and 0 <= self.floor < 1):
            raise InputError(f"need 0 < power <= 2, 0 <= smooth < 1 and 0 <= floor < 1, got {self}")

    def times(self, pilot: Pilot, steps: int) -> tuple[float, ...]:
        """N + 1 times from 0 to 1 between which the integral of rho is the same."""
        rho = self.rho(pilot)
        t: NDArray[np.float64] = np.concatenate([[0.0], np.asarray(pilot.t), [1.0]])
        rho = np.concatenate([rho[:1], rho, rho[-1:]])
        length: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum((rho[1:] + rho[:-1]) / 2 * np.diff(t))])
        times: NDArray[np.float64] = np.interp(np.linspace(0.0, float(length[-1]), steps + 1), length, t)
        times[0], times[-1] = 0.0, 1.0
        return tuple(times.tolist())

    def rates(self, pilot: Pilot) -> Mapping[str, tuple[float, ...]]:
        """The rate that counts here, by component."""
        return pilot.rate

    def rho(self, pilot: Pilot) -> NDArray[np.float64]:
        """rho at the pilot's times, mean 1."""
        rates = {name: np.asarray(values) for name, values in self.rates(pilot).items()}
        if self.combine in ("sum", "max"):
            stacked = np.stack(list(rates.values()))
            rate = stacked.sum(0) if self.combine == "sum" else stacked.max(0)
        elif self.combine in rates:
            rate = rates[self.combine]
        else:
            raise InputError(f"combine must be sum, max or one of {sorted(rates)}, got {self.combine!r}")
        width = max(1, round(self.smooth * len(rate))) | 1
        padded = np.pad(rate, width // 2, mode="edge")
        rho = np.convolve(padded, np.ones(width) / width, mode="valid") ** self.power
        if not rho.sum() > 0:
            return np.ones_like(rho)
        return np.maximum(rho / rho.mean(), self.floor)
