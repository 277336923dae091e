"""A model that needs no training: rings and stars of eight nodes, with the exact estimate of the clean graph.

It serves the demonstration where no model is embedded, and quick checks of studies: its law is known, so a study's
answer is, too.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from isostep.dataset.cache import cache_folder
from isostep.graph import Graph
from isostep.metric.graph_reference import GraphReference
from isostep.model.info import ModelInfo
from isostep.model.model import Model
from isostep.network.analytic import Mixture, rings_and_stars
from isostep.state import GraphState

NAME, NODES = "rings-and-stars", 8


class _Exact(nn.Module):
    """The mixture's posterior mean in the place of a trained network."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.mixture = mixture
        self.stds = nn.Parameter(torch.stack(list(mixture.stds.values())), requires_grad=False)

    def forward(self, x: Tensor, a: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        state = GraphState.of(mask, X=x, A=a)
        clean = self.mixture(state, t)
        return clean["X"], clean["A"]


def toy_model() -> Model:
    bridge = {"type": "bridge", "drift_coeff": 0.0, "sigma_0": 1.0, "sigma_1": 0.4}
    info = ModelInfo.parse(
        {
            "name": NAME,
            "family": "grum",
            "dataset": NAME,
            "network": {},
            "process": {"X": bridge, "A": bridge},
            "max_nodes": NODES,
            "features": 1,
            "node_counts": [[NODES, 1]],
            "sampler": {"steps": 200, "dvs": {"kappa": 1.0, "gamma": 0.3}},
            "provenance": {"source": "analytic: two Gaussian patterns", "licence": "Apache-2.0"},
        },
        NAME,
    )
    return Model(info, _Exact(rings_and_stars(info.processes(), NODES)))


def toy_reference() -> Path:
    """The law's own graphs, half of each kind, as a reference file."""
    ring = Graph.of(NODES, [(i, (i + 1) % NODES) for i in range(NODES)])
    star = Graph.of(NODES, [(0, i) for i in range(1, NODES)])
    path = cache_folder() / "reference" / f"{NAME}.npz"
    if not path.is_file():
        GraphReference.fit([ring, star] * 20, [ring, star] * 20).save(path)
    return path
