"""What a network learns from one noisy look at a clean graph D, x_t = m(t) D + std(t) z with z ~ N(0, 1):

loss = 1/2 sum (c(t) e)^2       over the entries of a component, the adjacency's full matrix
bridge matching                 e = output - D,           c = pull / sigma
denoising score matching        e = std(t) score + z,     c = 1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isostep.process.base import Process
from isostep.process.bridge import Bridge
from isostep.state import expand


class Matching(NamedTuple):
    """`error(process, output, clean, noise, t)` is e, `weight(process, t)` is c."""

    error: Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor]
    weight: Callable[[Any, Tensor], Tensor]


def _bridge_error(process: Bridge, output: Tensor, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    return output - clean


def _score_error(process: Process, output: Tensor, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    return expand(process.marginal(t).std, output) * process.estimate(output, t) + noise


def _score_weight(process: Process, t: Tensor) -> Tensor:
    return torch.ones_like(t)


BRIDGE_MATCHING = Matching(_bridge_error, Bridge.loss_weight)
SCORE_MATCHING = Matching(_score_error, _score_weight)
