"""A model that needs no training: rings and stars of eight nodes, with the exact estimate of the clean graph.

Its law is known, so a study's answer is, too; and a step costs next to nothing, so everything around it can be tried.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isostep.model.card import ModelInfo
from isostep.model.model import Model
from isostep.network.analytic import Mixture, rings_and_stars
from isostep.state import GraphState

NAME, NODES = "rings-and-stars", 8


class Exact(nn.Module):
    """The mixture's posterior mean in the place of a trained network."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.mixture = mixture
        self.stds = nn.Parameter(torch.stack(list(mixture.stds.values())), requires_grad=False)

    def forward(self, x: Tensor, a: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        clean = self.mixture(GraphState.of(mask, X=x, A=a), t)
        return clean["X"], clean["A"]


def analytic_model() -> Model:
    bridge = {"type": "bridge", "drift_coeff": 0.0, "sigma_0": 1.0, "sigma_1": 0.4}
    record = {
        "name": NAME,
        "family": "grum",
        "dataset": NAME,
        "network": {},
        "process": {"X": bridge, "A": bridge},
        "max_nodes": NODES,
        "features": 1,
        "node_counts": [[NODES, 1]],
        "sampler": {
            "steps": 200,
            "dvs": {"kappa": 1.0, "gamma": 0.3},
            "auto": [{"calls": 50, "origin": "an exact network: any fine grid will do"}],
        },
        "provenance": {"source": "analytic: two Gaussian patterns", "licence": "Apache-2.0"},
    }
    info = ModelInfo.parse(record, NAME)
    return Model(info, Exact(rings_and_stars(info.processes(), NODES)))
