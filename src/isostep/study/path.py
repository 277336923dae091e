"""The Brownian path of `BrownianTree`, number for number, at a fraction of the cost along a trajectory.

The nodes on the way down to t follow from the digits of t alone, so their normals are drawn in one call. Steps go on
where the last one ended: W(t1) of a step is W(t0) of the next, and only those levels of the tree are drawn anew whose
node has changed, about five of fifteen for steps of 1/1000.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from isostep.noise import LEAF, PREDICTOR, BrownianTree, Draw, _entries, _entry_count, _spread
from isostep.state import GraphState, expand

MOST = 2**22  # numbers kept per component; beyond, memory matters more than time


class _Last(NamedTuple):
    """The last point read, for the graphs `index`: nodes (L, B) and their normals (L, B, entries), W (B, entries)."""

    index: Tensor
    t: Tensor
    nodes: Tensor
    normals: Tensor
    w: Tensor


@dataclass(frozen=True)
class BrownianPath(BrownianTree):
    _last: dict[str, _Last] = field(default_factory=dict, init=False, repr=False, compare=False)

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        most = max(_entry_count(like.kinds[name], x.shape) for name, x in like.components.items())
        if stream != PREDICTOR or len(draw.t0) * (self.depth + 1) * most > MOST:
            return super().normal(like, draw, stream)
        scale, out = (draw.t1 - draw.t0).clamp_min(1e-300).rsqrt(), {}
        for name, x in like.components.items():
            start, end = (self._read(like, draw, name, t) for t in (draw.t0, draw.t1))
            z = ((end - start) * expand(scale, end)).to(x.dtype)
            out[name] = like.project(name, _spread(z, like.kinds[name], x))
        return out

    def _read(self, like: GraphState, draw: Draw, name: str, t: Tensor) -> Tensor:
        """W(t), (B, entries)."""
        entries = _entry_count(like.kinds[name], like[name].shape)
        last = self._last.get(name)
        if last is not None and (last.w.shape[1] != entries or not torch.equal(last.index, draw.index)):
            last = None
        if last is not None and torch.equal(last.t, t):
            return last.w
        nodes, uppers, low = self._way(t)
        normals = self._normals(like, draw, name, nodes, last)
        left, right, width = self._descend(normals, uppers, t)
        u = ((t - low) / width).clamp(0, 1)[:, None]
        leaf = self._draw(like, draw._replace(step=(t * 2**32).long()), name, LEAF).to(t.dtype)
        value = torch.lerp(left, right, u) + leaf * (width * u * (1 - u)).sqrt()
        self._last[name] = _Last(draw.index, t, nodes, normals, value)
        return value

    def _normals(self, like: GraphState, draw: Draw, name: str, nodes: Tensor, last: _Last | None) -> Tensor:
        """(L, B, entries) normals of the nodes; those of unchanged levels are kept."""
        new = torch.ones(len(nodes), dtype=torch.bool) if last is None else (nodes != last.nodes).any(1)
        index = draw.index.repeat(int(new.sum()))
        drawn = self._draw(like, draw._replace(index=index, step=nodes[new].flatten()), name, PREDICTOR)
        drawn = drawn.view(-1, nodes.shape[1], drawn.shape[1])
        if last is None:
            return drawn
        normals = last.normals.clone()
        normals[new] = drawn
        return normals

    def _draw(self, like: GraphState, draw: Draw, name: str, stream: int) -> Tensor:
        return _entries(self.seed, draw, stream, like, (name,))[name]

    def _descend(self, normals: Tensor, uppers: list[Tensor], t: Tensor) -> tuple[Tensor, Tensor, float]:
        """W at both ends of the last cell, and the cell's width."""
        right, *middles = normals.to(t.dtype)
        left, width = torch.zeros_like(right), 1.0
        for z, upper in zip(middles, uppers, strict=True):
            middle = (left + right) / 2 + z * math.sqrt(width) / 2
            width /= 2
            left, right = torch.where(upper[:, None], middle, left), torch.where(upper[:, None], right, middle)
        return left, right, width

    def _way(self, t: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Node numbers (L, B) from the top down, which half was taken at each, and the start of the last cell."""
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
        return torch.stack(nodes), uppers, low
