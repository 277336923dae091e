"""The Brownian path of `BrownianTree`, number for number, with all levels of the tree drawn in one call.

The nodes on the way down to t follow from the digits of t alone, so their normals need not wait for each other: on
small batches, where calls cost more than numbers, a step's noise takes a fraction of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isostep.noise import LEAF, PREDICTOR, BrownianTree, Draw, _entries, _entry_count
from isostep.state import GraphState

MOST = 2**22  # numbers drawn at once; beyond, the calls no longer matter and memory does


@dataclass(frozen=True)
class BrownianPath(BrownianTree):
    def _path(self, like: GraphState, draw: Draw, name: str, x: Tensor, t: Tensor) -> Tensor:
        """W(t), (B, entries)."""
        if len(t) * (self.depth + 1) * _entry_count(like.kinds[name], x.shape) > MOST:
            return super()._path(like, draw, name, x, t)
        nodes, uppers, low = self._way(t)
        index = draw.index.repeat(len(nodes))
        drawn = _entries(self.seed, draw._replace(index=index, step=torch.cat(nodes)), name, PREDICTOR, like, x)
        right, *middles = drawn.to(t.dtype).view(len(nodes), len(t), -1)
        left, width = torch.zeros_like(right), 1.0
        for z, upper in zip(middles, uppers, strict=True):
            middle = (left + right) / 2 + z * math.sqrt(width) / 2
            width /= 2
            left, right = torch.where(upper[:, None], middle, left), torch.where(upper[:, None], right, middle)
        u = ((t - low) / width).clamp(0, 1)[:, None]
        leaf = _entries(self.seed, draw._replace(step=(t * 2**32).long()), name, LEAF, like, x).to(t.dtype)
        return torch.lerp(left, right, u) + leaf * (width * u * (1 - u)).sqrt()

    def _way(self, t: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Node numbers from the top down, which half was taken at each, and the start of the last cell."""
        node = torch.zeros(len(t), dtype=torch.int64, device=t.device)
        nodes, uppers = [node], []
        node, low, width = node + 1, torch.zeros_like(t), 1.0
        for _ in range(self.depth):
            nodes.append(node)
            width /= 2
            upper = t >= low + width
            uppers.append(upper)
            low = torch.where(upper, low + width, low)
            node = 2 * node + upper
        return nodes, uppers, low
