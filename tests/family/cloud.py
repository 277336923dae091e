"""A family of three components, as another package would bring it: kinds X, links A and positions P of points in space.

The data are rings and open chains of points on a circle, turned in space at random.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from isostep.base.schema import Frozen
from isostep.dataset.examples import Examples, Normal, TrainingData
from isostep.family import Family, Training
from isostep.item import Graph
from isostep.item.decoding import GraphDecoder
from isostep.network.fast import FastPath, Unpadded
from isostep.network.settings import whole
from isostep.process.matching import BRIDGE_MATCHING
from isostep.state import GraphState

NODES, KINDS = 6, 2  # a point is an end of a chain or not
COMPONENTS = {"X": "node", "A": "edge", "P": "node"}


class CloudNetwork(nn.Module):
    """Distances go in, pushes along the differences of positions come out: turned points give turned answers."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        width = whole(params, "width")
        self.pair = nn.Sequential(nn.Linear(KINDS + 3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.kind, self.link, self.push = (nn.Linear(width, out) for out in (KINDS, 1, 1))

    def forward(self, x: Tensor, a: Tensor, p: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        nodes = mask.to(x.dtype).unsqueeze(-1)
        pairs = nodes * nodes.mT * (1 - torch.eye(x.shape[1]))
        gap = p[:, :, None] - p[:, None]
        time = t.to(x.dtype)[:, None, None].expand_as(a)
        seen = torch.cat((x[:, :, None] + x[:, None], torch.stack((a, gap.square().sum(-1), time), -1)), -1)
        h = self.pair(seen) * pairs.unsqueeze(-1)
        count = nodes.sum(1, keepdim=True)
        moved = p + (gap * self.push(h) * pairs.unsqueeze(-1)).sum(2) / count
        centred = moved - (moved * nodes).sum(1, keepdim=True) / count
        return self.kind(h.sum(2)).softmax(-1) * nodes, self.link(h).sigmoid().squeeze(-1) * pairs, centred * nodes


@dataclass(frozen=True, eq=False)
class Cloud(Graph):
    """A graph whose nodes are somewhere."""

    kind = "cloud"
    file = "clouds.jsonl"

    positions: list[list[float]]

    @classmethod
    def from_line(cls, line: str, index: int | None = None) -> Cloud:
        graph = Graph.from_line(line)
        return cls(graph.n, graph.edges, json.loads(line)["positions"])

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "positions": self.positions}


class CloudDecoder(GraphDecoder):
    item = Cloud  # type: ignore[assignment]

    def __call__(self, mean: GraphState) -> list[Graph]:
        return [_cloud(mean, k, int(n)) for k, n in enumerate(mean.masks.sizes)]


def _cloud(mean: GraphState, k: int, n: int) -> Cloud:
    edges = Graph.from_adjacency((mean["A"][k, :n, :n] >= 0.5).numpy()).edges
    return Cloud(n, edges, mean["P"][k, :n].tolist())


class CloudData(Frozen):
    name: str
    graphs: int = Field(default=64, ge=4)


class CloudConfig(Frozen):
    width: int = Field(gt=0)


def load(config: CloudData) -> TrainingData:
    """Rings and chains of 3 to 6 points, by turns."""
    sizes = 3 + torch.arange(config.graphs) % (NODES - 2)
    mask = torch.arange(NODES) < sizes[:, None]
    state = GraphState.zeros(mask, COMPONENTS, {"X": KINDS, "P": 3})  # type: ignore[arg-type]
    for k, n in enumerate(sizes.tolist()):
        angle = torch.arange(n) * 2 * math.pi / n
        state["P"][k, :n] = torch.stack((angle.cos(), angle.sin(), torch.zeros(n)), -1)
        last = n if k // 4 % 2 else n - 1  # rings close
        i, j = torch.arange(last), (torch.arange(last) + 1) % n
        state["A"][k, i, j] = state["A"][k, j, i] = 1.0
        ends = (state["A"][k, :n].sum(1) == 1).long()
        state["X"][k, torch.arange(n), ends] = 1.0
    GraphState.of(mask, COMPONENTS, **state.components)  # type: ignore[arg-type]
    examples = Examples.of(state)
    counts = torch.bincount(sizes).tolist()
    return TrainingData(examples, examples, NODES, {"X": KINDS, "P": 3}, counts, vary=turned)


def turned(state: GraphState, normal: Normal) -> GraphState:
    like = GraphState.of(state.mask, {"frame": "graph"}, frame=torch.zeros(state.batch, 9))
    frame, _ = torch.linalg.qr(normal(like)["frame"].view(-1, 3, 3))
    return state.replace({**state.components, "P": state["P"] @ frame})


FAMILY = Family(
    name="cloud",
    title="Cloud",
    components=COMPONENTS,  # type: ignore[arg-type]
    network=CloudNetwork,
    processes=("bridge",),
    decoder=lambda card: CloudDecoder(),
    fast=FastPath(lambda network, dtype, ops: Unpadded(network, overhead=10, cells=10_000)),
    training=Training(
        loss=BRIDGE_MATCHING,
        data=CloudData,
        load=load,
        network=CloudConfig,
        params=lambda config, data_config, data: {"width": config.width},
    ),
)
NOT_A_FAMILY = "cloud"
