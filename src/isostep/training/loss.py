"""A network learns from one noisy look at a clean graph D at a random time t ~ U(0, 1 - eps):

    x_t = m(t) D + std(t) z                      marginal of the component's process, z ~ N(0, 1)

Each component's loss is the one that its family has chosen (`process/matching.py`), summed over the entries of a graph,
averaged over graphs; the total is the sum over components of factor * loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from isostep.process import Process
from isostep.state import GraphState, expand
from isostep.training.config import TrainConfig

Losses: TypeAlias = dict[str, Tensor]  # mean over graphs of each component's loss


class Look(NamedTuple):
    """Clean graphs, the noise of every component and one time per graph (B,), float64."""

    clean: GraphState
    noise: Mapping[str, Tensor]
    t: Tensor

    def to(self, device: torch.device) -> Look:
        return Look(self.clean.to(device), {n: z.to(device) for n, z in self.noise.items()}, self.t.to(device))


class Objective:
    """The training loss of one configuration."""

    def __init__(self, config: TrainConfig) -> None:
        self.processes: Mapping[str, Process] = config.processes()
        self.matching, self.settings = config.training.loss, config.process
        kinds, edges = config.record.components, config.loss.edges
        self.factors = {
            name: one.factor or (edges if kinds[name] == "edge" else 1.0) for name, one in config.process.items()
        }

    def total(self, losses: Losses) -> Tensor:
        return torch.stack([self.factors[name] * loss for name, loss in losses.items()]).sum()

    def __call__(self, network: nn.Module, look: Look) -> Losses:
        clean, noise, t = look
        noisy = [_noisy(self.processes[name], x, noise[name], t) for name, x in clean.components.items()]
        outputs = dict(zip(clean.components, network(*noisy, clean.mask, t), strict=True))
        return {name: self._loss(name, output, clean[name], noise[name], t) for name, output in outputs.items()}

    def _loss(self, name: str, output: Tensor, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        error = self.matching.error(self.processes[name], output, clean, noise, t)
        return (expand(self.coefficient(name, t), error) * error).square().flatten(1).sum(1).mean() / 2

    def coefficient(self, name: str, t: Tensor) -> Tensor:
        """c(t), at most `cap`."""
        settings = self.settings[name]
        if settings.weight == "const":
            return torch.ones_like(t)
        weight = self.matching.weight(self.processes[name], t)
        return weight if settings.cap is None else weight.clamp(max=settings.cap)


def _noisy(process: Process, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    mean, std = process.marginal(t)
    return expand(mean, clean) * clean + expand(std, clean) * noise
