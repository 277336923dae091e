"""Both families learn from one noisy look at a clean graph D at a random time t ~ U(0, 1 - eps):

    x_t = m(t) D + std(t) z                                   marginal of the component's process, z ~ N(0, 1)
    bridge matching (GruM)            1/2 sum (c(t) (net - D))^2,   c = pull / sigma, or 1
    denoising score matching (GDSS)   1/2 sum (std(t) score + z)^2

Sums run over all entries of one graph (the adjacency's full matrix), means over graphs; the total is
loss_X + `edges` * loss_A. Noise for edges is drawn for i < j and mirrored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from isostep.process import Bridge, Process
from isostep.state import expand
from isostep.training.config import ProcessConfig, TrainConfig
from isostep.training.data import Batch

PARTS = ("X", "A")


class Draw(NamedTuple):
    """One time per graph (B,), float64, and noise per component."""

    t: Tensor
    x: Tensor
    adj: Tensor

    def to(self, device: torch.device) -> Draw:
        return Draw(*(value.to(device) for value in self))

    def rows(self, rows: slice) -> Draw:
        return Draw(*(value[rows] for value in self))


class Losses(NamedTuple):
    """Mean over graphs of each component's loss."""

    x: Tensor
    adj: Tensor


def draw_noise(batch: Batch, eps: float, generator: torch.Generator, strata: bool = False) -> Draw:
    t = torch.rand(len(batch.mask), generator=generator, dtype=torch.float64)
    if strata:
        t = (torch.arange(len(t)) + t) / len(t)
    t = t * (1 - eps)
    x = torch.randn(batch.x.shape, generator=generator) * batch.mask[..., None]
    upper = torch.randn(batch.adj.shape, generator=generator).triu(1)
    return Draw(t, x, (upper + upper.mT) * batch.mask[:, :, None] * batch.mask[:, None, :])


class Objective:
    """The training loss of one configuration."""

    def __init__(self, config: TrainConfig) -> None:
        self.processes: dict[str, Process] = {part: getattr(config.process, part).build() for part in PARTS}
        self.settings: Mapping[str, ProcessConfig] = {part: getattr(config.process, part) for part in PARTS}
        self.edges = config.loss.edges

    def total(self, losses: Losses) -> Tensor:
        return losses.x + self.edges * losses.adj

    def __call__(self, network: nn.Module, batch: Batch, draw: Draw) -> Losses:
        noisy = [
            _noisy(self.processes[part], clean, noise, draw.t)
            for part, clean, noise in (("X", batch.x, draw.x), ("A", batch.adj, draw.adj))
        ]
        outputs = network(*noisy, batch.mask, draw.t)
        return Losses(
            self._loss("X", outputs[0], batch.x, draw.x, draw.t),
            self._loss("A", outputs[1], batch.adj, draw.adj, draw.t),
        )

    def _loss(self, part: str, output: Tensor, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        process = self.processes[part]
        if process.estimates == "clean":
            error = expand(self.coefficient(part, t), output) * (output - clean)
        else:
            error = expand(process.marginal(t).std, output) * process.estimate(output, t) + noise
        return error.square().flatten(1).sum(1).mean() / 2

    def coefficient(self, part: str, t: Tensor) -> Tensor:
        """c(t) of bridge matching, at most `cap`."""
        process, settings = self.processes[part], self.settings[part]
        if settings.weight == "const" or not isinstance(process, Bridge):
            return torch.ones_like(t)
        weight = process.loss_weight(t)
        return weight if settings.cap is None else weight.clamp(max=settings.cap)


def _noisy(process: Process, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    mean, std = process.marginal(t)
    return expand(mean, clean) * clean + expand(std, clean) * noise
