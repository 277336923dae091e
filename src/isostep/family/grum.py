"""GruM: a graph transformer that predicts the clean graph of a mixture of bridges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from torch import nn

from isostep.base.errors import InputError
from isostep.base.schema import Frozen
from isostep.dataset.examples import EIGENVECTOR_SCALE, DataConfig, TrainingData, load_examples
from isostep.family.base import Family, ReleasedFormat, Training
from isostep.network.fast import FastPath
from isostep.network.grum.fast import fold
from isostep.network.grum.reference import GrumNetwork
from isostep.process.matching import BRIDGE_MATCHING


class GrumConfig(Frozen):
    """Widths of the graph transformer; `mlp` and `ff` are the hidden widths of the input/output and inner blocks."""

    layers: int = Field(gt=0)
    dx: int = Field(gt=0)
    de: int = Field(gt=0)
    dy: int = Field(gt=0)
    heads: int = Field(gt=0)
    ff_x: int = Field(gt=0)
    ff_e: int = Field(gt=0)
    ff_y: int = Field(default=2048, gt=0)
    mlp_x: int = Field(gt=0)
    mlp_e: int = Field(gt=0)
    mlp_y: int = Field(gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)


def params(c: GrumConfig, config: DataConfig, data: TrainingData) -> dict[str, Any]:
    """Settings of the network as its authors name them."""
    width, spec = data.widths["X"], data.spec
    shared: dict[str, Any] = {
        "model_type": "transformer" if spec is None else "transformer_mol",
        "n_layers": c.layers,
        "input_dims": {"X": width, "E": 2, "y": 1},
        "output_dims": {"X": width, "E": 1 if spec is None else 2},
        "hidden_dims": {
            **{"dx": c.dx, "de": c.de, "dy": c.dy, "n_head": c.heads},
            **{"dim_ffX": c.ff_x, "dim_ffE": c.ff_e, "dim_ffy": c.ff_y},
        },
        "hidden_mlp_dims": {"X": c.mlp_x, "E": c.mlp_e, "y": c.mlp_y},
        "ffy": c.ff_y,
        "dropout": c.dropout,
    }
    if spec is not None:
        return {**shared, "scale": spec.scale}
    eigenvectors = config.features == "eigenvectors"
    types, dims = (["eig1", "eig2"], [1, 1]) if eigenvectors else (["deg"], [width])
    return {**shared, "feat_dict": {"type": types, "dim": dims, "scale": EIGENVECTOR_SCALE}}


def fused(network: GrumNetwork, half: bool) -> nn.Module | None:
    """The faster way through the network for training on a CPU; it needs Numba."""
    try:
        from isostep.network.grum.fused import FusedGrum
    except ImportError:
        return None
    return FusedGrum(network, half) if FusedGrum.fits(network) else None


def released_process(settings: Mapping[str, Any]) -> dict[str, Any]:
    kind = settings["type"]
    if kind not in ("OU", "BB"):
        raise InputError(f"unknown process {str(kind)[:60]!r} in a released file; known: OU, BB")
    pull = settings["drift_coeff"] if kind == "OU" else 0.0
    return {"type": "bridge", "drift_coeff": pull, "sigma_0": settings["sigma_0"], "sigma_1": settings["sigma_1"]}


FAMILY = Family(
    name="grum",
    title="GruM",
    components={"X": "node", "A": "edge"},
    network=GrumNetwork,
    processes=("bridge",),
    training=Training(
        loss=BRIDGE_MATCHING,
        data=DataConfig,
        load=load_examples,
        network=GrumConfig,
        params=params,
        fused=fused,
        repeated=lambda network: network.tf_layers,
    ),
    fast=FastPath(fold, "isostep.network.grum.kernels"),
    released=ReleasedFormat(
        params={"": "params"},
        weights={"": ("state_dict", "ema")},
        config="config",
        processes="mix",
        components={"X": "x", "A": "adj"},
        process=released_process,
    ),
)
