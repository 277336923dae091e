"""Models whose answer is known: data laws with an exact score and an exact clean-graph prediction.

Data law: a mixture of K Gaussians over all free entries of the graph, x | k ~ N(mu_k, s_k^2). Every process has
x_t = m D + v^(1/2) z, hence

    x_t | k ~ N(m mu_k, m^2 s_k^2 + v),   E[D | x_t, k] = mu_k + m s_k^2 / (m^2 s_k^2 + v) (x_t - m mu_k)

and the posterior weights of k couple all entries of a graph. K = 1 is the Gaussian law, whose SDE is linear.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.noise import standard_normal
from isostep.process.base import Process
from isostep.process.sde import ProcessSde
from isostep.state import GraphState, Kind, expand


@dataclass(frozen=True, eq=False)
class Mixture:
    """K patterns per component, graphs of N nodes: `means` (K, N, F) or (K, N, N), `stds` (K,), `weights` (K,)."""

    means: Mapping[str, Tensor]
    stds: Mapping[str, Tensor]
    weights: Tensor
    processes: Mapping[str, Process]
    kinds: Mapping[str, Kind]

    def __post_init__(self) -> None:
        for name, mean in self.means.items():
            if len(mean) != len(self.weights) or len(self.stds[name]) != len(self.weights):
                raise InputError(f"component {name} has {len(mean)} means for {len(self.weights)} weights")

    def __call__(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        """The exact estimate of each component: the score, or E[D | x_t]."""
        log_weight = self.weights.log().to(t.dtype).expand(state.batch, -1)
        posterior, marginals = {}, {}
        for name, process in self.processes.items():
            x = state[name].to(t.dtype)
            m, std = marginals[name] = process.marginal(t)
            mask = state.masks.of(state.kinds[name], x.ndim)
            mu = self.means[name].to(t)[None]  # (1 or B, K, ...)
            mu = mu if mask is None else mu * mask[:, None]
            gap = x[:, None] - expand(m, mu) * mu
            variance = (m[:, None] * self.stds[name].to(t.dtype)).square() + std.square()[:, None]  # (B, K)
            share = 0.5 if state.kinds[name] == "edge" else 1.0  # an edge stands twice
            squares = share * gap.flatten(2).square().sum(2)
            log_weight = log_weight - squares / (2 * variance) - state.free_entries(name)[:, None] * variance.log() / 2
            gain = m[:, None] * self.stds[name].to(t.dtype).square() / variance
            posterior[name] = mu + gain.view(*gain.shape, *(1,) * (x.ndim - 1)) * gap
        weight = log_weight.softmax(1)
        out = {}
        for name, process in self.processes.items():
            clean = (weight.view(*weight.shape, *(1,) * (state[name].ndim - 1)) * posterior[name]).sum(1)
            m, std = marginals[name]
            if process.estimates == "score":
                x = state[name].to(t.dtype)
                clean = (expand(m, x) * clean - x) / expand(std.square(), x)
            out[name] = state.project(name, clean.to(state[name].dtype))
        return out

    @property
    def sde(self) -> ProcessSde:
        return ProcessSde(self, self.processes, raw=False)

    def prior(self, count: int, seed: int = 0, mask: Tensor | None = None, dtype=torch.float32) -> GraphState:
        """Start states of graphs 0..count-1."""
        nodes = next(iter(self.means.values())).shape[1]
        mask = torch.ones(count, nodes) if mask is None else mask
        blank = {n: torch.zeros(count, *mean.shape[1:], dtype=dtype) for n, mean in self.means.items()}
        z = standard_normal(GraphState.of(mask, self.kinds, **blank), seed)
        return z.replace({n: x * self.processes[n].prior_std for n, x in z.components.items()})


def gaussian(processes: Mapping[str, Process], nodes: int = 4, features: int = 2, std: float = 0.3) -> Mixture:
    """A Gaussian law with a different mean at every entry."""
    x = torch.linspace(-1, 1, nodes * features, dtype=torch.float64).view(1, nodes, features)
    place = torch.arange(nodes, dtype=torch.float64)
    a = torch.cos(place[:, None] + place[None, :]) * (1 - torch.eye(nodes, dtype=torch.float64))
    stds = {n: torch.full((1,), std, dtype=torch.float64) for n in ("X", "A")}
    return Mixture({"X": x, "A": a[None]}, stds, torch.ones(1), processes, {"X": "node", "A": "edge"})


def rings_and_stars(processes: Mapping[str, Process], nodes: int = 8, std: float = 0.05) -> Mixture:
    """Two kinds of graph: a ring and a star, with the node degrees as features. A decision to crystallise."""
    ring, star = torch.zeros(nodes, nodes, dtype=torch.float64), torch.zeros(nodes, nodes, dtype=torch.float64)
    for i in range(nodes):
        ring[i, (i + 1) % nodes] = ring[(i + 1) % nodes, i] = 1
    star[0, 1:] = star[1:, 0] = 1
    a = torch.stack([ring, star])
    x = a.sum(2, keepdim=True) / math.sqrt(nodes)
    stds = {n: torch.full((2,), std, dtype=torch.float64) for n in ("X", "A")}
    return Mixture({"X": x, "A": a}, stds, torch.tensor([0.5, 0.5]), processes, {"X": "node", "A": "edge"})
