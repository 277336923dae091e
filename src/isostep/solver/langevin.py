"""Langevin corrector: before the predictor, move along the score r at the same t, all components from one evaluation.

    eps = 2 a (snr ||z|| / ||r||)^2,   x <- x + eps r + scale sqrt(2 eps) z

a = 1, for VP and subVP 1 - beta_i. Norms are averaged over the batch (`norms="batch"`, the authors' programs) or taken
per graph (`"graph"`, so that a graph does not depend on its batch mates). One extra network call per corrector step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.geometry import squared_norm
from isostep.noise import CORRECTOR
from isostep.process.sde import Evaluation, Sde
from isostep.solver.base import NoiseSource, Wrapped, need_processes
from isostep.state import GraphState, expand


@dataclass(frozen=True)
class Langevin:
    """Settings of one corrector step."""

    snr: float = 0.1
    scale: float = 0.7
    scales: int = 1000  # N in beta_i = beta(i)/N
    norms: Literal["batch", "graph"] = "graph"

    def __post_init__(self) -> None:
        if not (self.snr > 0 and self.scale >= 0 and self.scales >= 2):
            raise InputError(f"Langevin needs snr > 0, scale >= 0, scales >= 2, got {self}")
        if self.norms not in ("batch", "graph"):
            raise InputError(f"Langevin norms must be 'batch' or 'graph', got {self.norms!r}")

    def correct(
        self, sde: Sde, state: GraphState, estimate: Mapping[str, Tensor], t: Tensor, source: NoiseSource
    ) -> GraphState:
        """The corrected state, from an evaluation at (state, t)."""
        z = source.normal(state, t, t, CORRECTOR)
        moved: dict[str, Tensor] = {}
        for name, process in sde.processes.items():
            x = state[name]
            r = process.score(x, estimate[name], t)
            ratio = self._norm(z[name], source.running) / self._norm(r, source.running).clamp_min(1e-12)
            eps = 2 * process.langevin_factor(t, self.scales) * (self.snr * ratio).square()
            moved[name] = x + expand(eps, x) * r + expand(self.scale * (2 * eps).sqrt(), x) * z[name]
        return state.replace(moved)

    def _norm(self, value: Tensor, running: Tensor) -> Tensor:
        """(B,) norms, or their mean over the running graphs that are finite."""
        norm = squared_norm(value).sqrt().double()
        if self.norms == "graph":
            return norm
        counted = running & norm.isfinite()
        total = torch.where(counted, norm, torch.zeros_like(norm)).sum()
        return (total / counted.sum().clamp_min(1)).expand_as(norm)


@dataclass(frozen=True)
class Corrected(Wrapped):
    """Any solver with a Langevin step in front."""

    corrector: Langevin

    @property
    def calls_per_step(self) -> int:
        return self.solver.calls_per_step + 1

    @property
    def couples_graphs(self) -> bool:
        return self.corrector.norms == "batch" or self.solver.couples_graphs

    def check(self, sde: Sde) -> None:
        need_processes(sde, "Langevin-corrected")
        self.solver.check(sde)

    def evaluate(self, sde: Sde, state: GraphState, t: Tensor, source: NoiseSource) -> tuple[GraphState, Evaluation]:
        here = sde.evaluate(state, t)
        assert here.estimate is not None
        return self.solver.evaluate(sde, self.corrector.correct(sde, state, here.estimate, t, source), t, source)
