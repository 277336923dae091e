"""Tiny configurations and data for the training tests."""

from __future__ import annotations

import json
from typing import Any

import torch

from isostep.dataset.examples import DataConfig, TrainingData, graph_examples
from isostep.item.graph import Graph
from isostep.training.config import TrainConfig, check_config

GRUM = {"layers": 2, "dx": 32, "de": 16, "dy": 16, "heads": 4, "ff_x": 32, "ff_e": 16, "ff_y": 16}
GRUM |= {"mlp_x": 32, "mlp_e": 16, "mlp_y": 16, "dropout": 0.0}
GDSS = {"depth": 2, "nhid": 16, "adim": 16, "num_heads": 4, "num_layers": 2, "num_linears": 2}
GDSS |= {"c_init": 2, "c_hid": 4, "c_final": 2}


def values(family: str, **changes: Any) -> dict[str, Any]:
    """A valid configuration as plain data; `changes` replace whole tables."""
    grum = family == "grum"
    process = {"type": "bridge", "sigma_0": 0.4, "sigma_1": 0.2, "drift_coeff": 1.0}
    if not grum:
        process = {"type": "VP", "beta_min": 0.1, "beta_max": 5.0}
    base: dict[str, Any] = {
        "name": "tiny",
        "family": family,
        "data": {"name": "community-small", "features": "eigenvectors" if grum else "degree", "degree_classes": 4},
        "process": {"X": {**process, "weight": "const"}, "A": {**process, "cap": 20.0}}
        if grum
        else dict.fromkeys("XA", process),
        family: GRUM if grum else GDSS,
        "loss": {"eps": 2e-3, "edges": 5.0},
        "optimizer": {"lr": 3e-3, "warmup_steps": 10},
        "run": {"steps": 20, "batch": 8, "validate_every": 5, "validation_graphs": 8, "checkpoint_every": 5},
    }
    return {**base, **changes}


def toml(family: str, **changes: Any) -> str:
    """The test configuration as a file."""
    lines = []

    def walk(table: dict, path: str) -> None:
        lines.extend([f"[{path}]"] if path else [])
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict))
        for key, value in table.items():
            if isinstance(value, dict):
                walk(value, f"{path}.{key}".lstrip("."))

    walk(values(family, **changes), "")
    return "\n".join(lines) + "\n"


def config(family: str, **changes: Any) -> TrainConfig:
    return check_config(values(family, **changes), "test")


def data(family: str, graphs: list[Graph], nodes: int) -> TrainingData:
    """The same graphs for training and validation, padded to `nodes`."""
    settings = DataConfig(**{**values(family)["data"], "max_nodes": nodes})
    counts = torch.bincount(torch.tensor([graph.n for graph in graphs])).tolist()
    return graph_examples(graphs, graphs, settings, counts)


PATH = Graph.of(3, [(0, 1), (1, 2)])
COMPLETE = Graph.of(4, [(i, j) for j in range(4) for i in range(j)])
LOLLIPOP = Graph.of(6, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5)])
STAR = Graph.of(4, [(0, 1), (0, 2), (0, 3)])
