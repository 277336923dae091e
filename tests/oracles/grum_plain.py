"""GruM's graph transformer written down layer by layer from its definition (evaluation mode), padding included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]


def grum_plain(
    params: Mapping[str, Any], weights: Weights, x: Tensor, adj: Tensor, mask: Tensor, t: Tensor
) -> tuple[Tensor, Tensor]:
    """Predicted clean x and adj."""
    mask_x, mask_e = mask[:, :, None], (mask[:, :, None] * mask[:, None, :])[..., None]
    off_diagonal = (1 - torch.eye(x.shape[1]))[None, :, :, None]
    d = adj.abs().sum(-1).clamp(min=1) ** -0.5
    two_steps = adj @ (d[:, :, None] * adj * d[:, None, :])
    pairs = torch.stack([adj, two_steps * off_diagonal[..., 0]], -1)

    X = _relu_linear(weights, "mlp_in_X.2", _relu_linear(weights, "mlp_in_X.0", x)) * mask_x
    E = _relu_linear(weights, "mlp_in_E.2", _relu_linear(weights, "mlp_in_E.0", pairs))
    E = (E + E.transpose(1, 2)) / 2 * mask_e
    y = _relu_linear(weights, "mlp_in_y.2", _relu_linear(weights, "mlp_in_y.0", t[:, None]))
    for i in range(params["n_layers"]):
        X, E, y = _layer(params, weights, f"tf_layers.{i}", X, E, y, mask_x, mask_e)

    out_x, out_e = params["output_dims"]["X"], params["output_dims"]["E"]
    X = _linear(weights, "mlp_out_X.2", _relu_linear(weights, "mlp_out_X.0", X)) + x[..., :out_x]
    E = _linear(weights, "mlp_out_E.2", _relu_linear(weights, "mlp_out_E.0", E)) + pairs[..., :out_e]
    E = E * off_diagonal
    E = (E + E.transpose(1, 2)) / 2
    if params["model_type"] == "transformer_mol":
        pred_x = X.softmax(-1)
        pred_adj = (E[..., 0].sigmoid() + 2 * E[..., 1].sigmoid()) / params["scale"]
    else:
        features = params["feat_dict"]
        slices = zip(features["type"], X.split(features["dim"], -1), strict=True)
        pred_x = torch.cat([_feature(kind, h, features["scale"]) for kind, h in slices], -1)
        pred_adj = E[..., 0].sigmoid()
    return pred_x * mask_x, pred_adj * mask_e[..., 0] * off_diagonal[..., 0]


def _layer(
    params: Mapping[str, Any],
    weights: Weights,
    name: str,
    X: Tensor,
    E: Tensor,
    y: Tensor,
    mask_x: Tensor,
    mask_e: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    new_X, new_E, new_y = _attention(params, weights, f"{name}.self_attn", X, E, y, mask_x, mask_e)
    X, E, y = (
        _norm(weights, f"{name}.norm{c}1", h + new)
        for c, h, new in (("X", X, new_X), ("E", E, new_E), ("_y", y, new_y))
    )
    X, E, y = (
        _norm(
            weights,
            f"{name}.norm{c}2",
            h + _linear(weights, f"{name}.lin{c}2", _relu_linear(weights, f"{name}.lin{c}1", h)),
        )
        for c, h in (("X", X), ("E", E), ("_y", y))
    )
    return X, E, y


def _attention(
    params: Mapping[str, Any],
    weights: Weights,
    name: str,
    X: Tensor,
    E: Tensor,
    y: Tensor,
    mask_x: Tensor,
    mask_e: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    hidden = params["hidden_dims"]
    q, k, v = (_linear(weights, f"{name}.{part}", X) * mask_x for part in "qkv")
    Y = q[:, :, None, :] * k[:, None, :, :] / (hidden["dx"] / hidden["n_head"]) ** 0.5
    Y = Y * (_linear(weights, f"{name}.e_mul", E) * mask_e + 1) + _linear(weights, f"{name}.e_add", E) * mask_e
    e_add, e_mul, x_add, x_mul = (
        _linear(weights, f"{name}.y_{part}", y) for part in ("e_add", "e_mul", "x_add", "x_mul")
    )
    new_E = _linear(weights, f"{name}.e_out", e_add[:, None, None] + (e_mul[:, None, None] + 1) * Y) * mask_e
    attended = (Y.softmax(2) * v[:, None, :, :]).sum(2)
    new_X = _linear(weights, f"{name}.x_out", x_add[:, None] + (x_mul[:, None] + 1) * attended) * mask_x
    pooled = _pool(weights, f"{name}.x_y.lin", X) + _pool(weights, f"{name}.e_y.lin", E.flatten(1, 2))
    new_y = _relu_linear(weights, f"{name}.y_out.0", _linear(weights, f"{name}.y_y", y) + pooled)
    return new_X, new_E, _linear(weights, f"{name}.y_out.2", new_y)


def _pool(weights: Weights, name: str, rows: Tensor) -> Tensor:
    return _linear(weights, name, torch.cat([rows.mean(1), rows.amin(1), rows.amax(1), rows.std(1)], -1))


def _feature(kind: str, h: Tensor, scale: float) -> Tensor:
    return h / (h.norm(dim=1, keepdim=True) / scale) if kind.startswith("eig") else h.softmax(-1)


def _linear(weights: Weights, name: str, h: Tensor) -> Tensor:
    return functional.linear(h, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _relu_linear(weights: Weights, name: str, h: Tensor) -> Tensor:
    return _linear(weights, name, h).relu()


def _norm(weights: Weights, name: str, h: Tensor) -> Tensor:
    return functional.layer_norm(h, h.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])
