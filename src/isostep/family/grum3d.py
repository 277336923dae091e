"""GruM in space: atoms, bonds and positions, each the end of a bridge from noise; the network is E(3)-equivariant."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isostep.base.errors import InputError
from isostep.base.schema import Frozen
from isostep.dataset import Dataset, load
from isostep.dataset.examples import Examples, TrainingData, training_rows
from isostep.family.base import Family, Training
from isostep.item.decoding import ConformerDecoder
from isostep.item.encoding import MoleculeSpec, flat_rows
from isostep.network.fast import FastPath, Unpadded
from isostep.network.grum3d.reference import Grum3dNetwork
from isostep.process.matching import BRIDGE_MATCHING
from isostep.state import GraphState, Kind

COMPONENTS: dict[str, Kind] = {"X": "node", "A": "edge", "P": "position"}


class DataConfig(Frozen):
    """A dataset with positions; `holdout` is the share of training molecules kept for validation."""

    name: str
    holdout: float = Field(default=0.02, gt=0, lt=1)


class NetworkConfig(Frozen):
    """Widths of node states, pair states, and the number of layers and heads."""

    layers: int = Field(gt=0)
    dx: int = Field(gt=0)
    de: int = Field(gt=0)
    heads: int = Field(gt=0)


def load_conformers(config: DataConfig) -> TrainingData:
    dataset = load(config.name)
    spec = dataset.spec
    if spec is None:
        raise InputError(f"{config.name} holds no molecules; a model of positions needs qm9-3d")
    train, validation = (_states(dataset, spec, rows) for rows in training_rows(dataset, config.holdout))
    widths = {"X": len(spec.atoms), "P": 3}
    return TrainingData(train, validation, spec.max_nodes, widths, dataset.node_counts("train").tolist(), spec)


def _states(dataset: Dataset, spec: MoleculeSpec, rows: np.ndarray) -> Examples:
    whole, points = dataset.encoded("all"), dataset.positions("all")
    molecules, points = whole.take(rows), points[flat_rows(whole.atom_ends, rows)[0]]

    def take(chosen: Tensor) -> GraphState:
        x, a, mask = molecules.tensors(spec, chosen.numpy())
        p = torch.zeros(*mask.shape, 3)
        p[mask.bool()] = torch.from_numpy(points[flat_rows(molecules.atom_ends, chosen.numpy())[0]])
        return GraphState.of(mask, COMPONENTS, X=x, A=a, P=p)

    return Examples(len(molecules), take)


def params(network: NetworkConfig, config: DataConfig, data: TrainingData) -> dict[str, Any]:
    assert data.spec is not None
    return {**network.model_dump(), "atoms": data.widths["X"], "scale": data.spec.scale}


FAMILY = Family(
    name="grum3d",
    title="GruM-3D",
    components=COMPONENTS,
    network=Grum3dNetwork,
    processes=("bridge",),
    decoder=lambda card: ConformerDecoder(MoleculeSpec(card.atoms, max_nodes=card.max_nodes, scale=card.scale)),
    training=Training(
        loss=BRIDGE_MATCHING,
        data=DataConfig,
        load=load_conformers,
        network=NetworkConfig,
        params=params,
        repeated=lambda network: network.layers,
    ),
    fast=FastPath(lambda network, dtype, ops: Unpadded(network) if dtype == torch.float32 else None),
)
