"""GDSS: two score networks, one for nodes and one for edges, with VP, subVP and VE processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from torch import nn

from isostep.base.errors import InputError
from isostep.base.schema import Frozen
from isostep.dataset.examples import DataConfig, TrainingData, load_examples
from isostep.family.base import Family, ReleasedFormat, Training
from isostep.network.fast import FastPath
from isostep.network.gdss.fast import fold
from isostep.network.gdss.reference import GdssNetwork
from isostep.network.settings import entry
from isostep.process.matching import SCORE_MATCHING


class GdssConfig(Frozen):
    """Settings of the two score networks, named as in the released files."""

    node_network: Literal["ScoreNetworkX", "ScoreNetworkX_GMH"] = "ScoreNetworkX"
    depth: int = Field(gt=0)
    nhid: int = Field(gt=0)
    adim: int = Field(gt=0)
    num_heads: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    num_linears: int = Field(gt=0)
    c_init: int = Field(gt=0)
    c_hid: int = Field(gt=0)
    c_final: int = Field(gt=0)


def params(c: GdssConfig, config: DataConfig, data: TrainingData) -> dict[str, Any]:
    """Settings of the two networks as their authors name them."""
    shared = {"num_linears": c.num_linears, "c_init": c.c_init, "c_hid": c.c_hid, "c_final": c.c_final}
    attention = {**shared, "adim": c.adim, "num_heads": c.num_heads, "conv": "GCN"}
    params_x: dict[str, Any] = {
        "model_type": c.node_network,
        "max_feat_num": data.widths["X"],
        "depth": c.depth,
        "nhid": c.nhid,
    }
    if c.node_network == "ScoreNetworkX_GMH":
        params_x |= attention
    params_adj = {
        "model_type": "ScoreNetworkA",
        "max_feat_num": data.widths["X"],
        "max_node_num": data.max_nodes,
        "nhid": c.nhid,
        "num_layers": c.num_layers,
        **attention,
    }
    return {"x": params_x, "adj": params_adj}


def network(params: Mapping[str, Any]) -> GdssNetwork:
    return GdssNetwork(entry(params, "x"), entry(params, "adj"))


def released_process(settings: Mapping[str, Any]) -> dict[str, Any]:
    """For VE, `beta_min` and `beta_max` hold the noise levels."""
    kind, low, high = settings["type"], settings["beta_min"], settings["beta_max"]
    if kind not in FAMILY.processes:
        raise InputError(f"unknown process {str(kind)[:60]!r} in a released file; known: {', '.join(FAMILY.processes)}")
    return (
        {"type": kind, "sigma_min": low, "sigma_max": high}
        if kind == "VE"
        else {"type": kind, "beta_min": low, "beta_max": high}
    )


FAMILY = Family(
    name="gdss",
    title="GDSS",
    components={"X": "node", "A": "edge"},
    network=network,
    processes=("VP", "subVP", "VE"),
    training=Training(
        loss=SCORE_MATCHING,
        data=DataConfig,
        load=load_examples,
        network=GdssConfig,
        params=params,
        apart=nn.Module.children,
    ),
    fast=FastPath(fold, "isostep.network.gdss.kernels"),
    released=ReleasedFormat(
        params={"x": "params_x", "adj": "params_adj"},
        weights={"x.": ("x_state_dict", "ema_x"), "adj.": ("adj_state_dict", "ema_adj")},
        config="model_config",
        processes="sde",
        components={"X": "x", "A": "adj"},
        process=released_process,
    ),
)
