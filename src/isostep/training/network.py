"""The network of a configuration, and the settings that rebuild it from a model folder."""

from __future__ import annotations

from typing import Any

from torch import nn

from isostep.network.gdss.reference import GdssNetwork
from isostep.network.grum.reference import GrumNetwork
from isostep.training.config import GdssConfig, GrumConfig, TrainConfig
from isostep.training.data import EIGENVECTOR_SCALE, TrainData


def network_params(config: TrainConfig, data: TrainData) -> dict[str, Any]:
    """Settings of the network as a model folder's card holds them."""
    if config.grum is not None:
        return _grum_params(config.grum, data)
    assert config.gdss is not None
    return _gdss_params(config.gdss, data)


def build_network(config: TrainConfig, data: TrainData) -> nn.Module:
    """The untrained network of a configuration."""
    params = network_params(config, data)
    return GrumNetwork(params) if config.family == "grum" else GdssNetwork(params["x"], params["adj"])


def _grum_params(c: GrumConfig, data: TrainData) -> dict[str, Any]:
    params: dict[str, Any] = {
        "model_type": "transformer" if data.spec is None else "transformer_mol",
        "n_layers": c.layers,
        "input_dims": {"X": data.features, "E": 2, "y": 1},
        "output_dims": {"X": data.features, "E": 1 if data.spec is None else 2},
        "hidden_dims": {
            **{"dx": c.dx, "de": c.de, "dy": c.dy, "n_head": c.heads},
            **{"dim_ffX": c.ff_x, "dim_ffE": c.ff_e, "dim_ffy": c.ff_y},
        },
        "hidden_mlp_dims": {"X": c.mlp_x, "E": c.mlp_e, "y": c.mlp_y},
        "ffy": c.ff_y,
        "dropout": c.dropout,
    }
    if data.spec is not None:
        return {**params, "scale": data.spec.scale}
    types = ["eig1", "eig2"] if data.signs else ["deg"]
    dims = [1, 1] if data.signs else [data.features]
    return {**params, "feat_dict": {"type": types, "dim": dims, "scale": EIGENVECTOR_SCALE}}


def _gdss_params(c: GdssConfig, data: TrainData) -> dict[str, Any]:
    shared = {"num_linears": c.num_linears, "c_init": c.c_init, "c_hid": c.c_hid, "c_final": c.c_final}
    attention = {**shared, "adim": c.adim, "num_heads": c.num_heads, "conv": "GCN"}
    params_x: dict[str, Any] = {
        "model_type": c.node_network,
        "max_feat_num": data.features,
        "depth": c.depth,
        "nhid": c.nhid,
    }
    if c.node_network == "ScoreNetworkX_GMH":
        params_x |= attention
    params_adj = {
        "model_type": "ScoreNetworkA",
        "max_feat_num": data.features,
        "max_node_num": data.max_nodes,
        "nhid": c.nhid,
        "num_layers": c.num_layers,
        **attention,
    }
    return {"x": params_x, "adj": params_adj}
