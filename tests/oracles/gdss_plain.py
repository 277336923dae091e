"""GDSS' networks written down layer by layer from their definition: padded, no fusion, no sharing of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]


def gdss_plain(
    params_x: Mapping[str, Any], params_adj: Mapping[str, Any], weights: Weights, x: Tensor, adj: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Raw outputs of both networks; `weights` has the names of GdssNetwork ("x....", "adj....")."""
    return node_network(params_x, _below(weights, "x"), x, adj, mask), edge_network(
        params_adj, _below(weights, "adj"), x, adj, mask
    )


def node_network(params: Mapping[str, Any], weights: Weights, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
    outputs = [x]
    channels = _powers(adj, params.get("c_init", 1))
    for i in range(params["depth"]):
        layer = _below(weights, f"layers.{i}")
        if params["model_type"] == "ScoreNetworkX":
            x = torch.tanh(_gcn(layer, x, adj))
        else:
            x, channels = _attention_layer(params, layer, x, channels, mask)
            x = torch.tanh(x)
        outputs.append(x)
    return _mlp(_below(weights, "final"), torch.cat(outputs, -1)) * mask[:, :, None]


def edge_network(params: Mapping[str, Any], weights: Weights, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
    channels = _powers(adj, params["c_init"])
    outputs = [channels]
    for i in range(params["num_layers"]):
        x, channels = _attention_layer(params, _below(weights, f"layers.{i}"), x, channels, mask)
        outputs.append(channels)
    score = _mlp(_below(weights, "final"), torch.cat(outputs, 1).permute(0, 2, 3, 1))[..., 0]
    score = score * (1 - torch.eye(adj.shape[-1]))
    return score * mask[:, :, None] * mask[:, None, :]


def _attention_layer(
    params: Mapping[str, Any], weights: Weights, x: Tensor, channels: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    values, scores = [], []
    for j in range(channels.shape[1]):
        attn, adj = _below(weights, f"attn.{j}"), channels[:, j]
        if params["conv"] == "GCN":
            q, k = (_gcn(_below(attn, name), x, adj) for name in ("gnn_q", "gnn_k"))
        else:
            q, k = (_mlp(_below(attn, name), x, torch.tanh) for name in ("gnn_q", "gnn_k"))
        v = _gcn(_below(attn, "gnn_v"), x, adj)
        width = q.shape[-1] // params["num_heads"]
        heads = [
            torch.tanh(a @ b.transpose(1, 2) / v.shape[-1] ** 0.5)
            for a, b in zip(q.split(width, -1), k.split(width, -1), strict=True)
        ]
        score = torch.stack(heads).mean(0)
        scores.append((score + score.transpose(1, 2)) / 2)
        values.append(v)
    x = torch.tanh(_mlp(_below(weights, "multi_channel"), torch.cat(values, -1)) * mask[:, :, None])
    pairs = torch.cat([torch.stack(scores, 1), channels], 1).permute(0, 2, 3, 1)
    new = _mlp(_below(weights, "mlp"), pairs).permute(0, 3, 1, 2)
    new = new + new.transpose(2, 3)
    return x, new * mask[:, None, :, None] * mask[:, None, None, :]


def _gcn(weights: Weights, x: Tensor, adj: Tensor) -> Tensor:
    eye = torch.eye(adj.shape[-1])
    adj = adj * (1 - eye) + eye
    d = adj.sum(-1).clamp(min=1) ** -0.5
    return (d[:, :, None] * adj * d[:, None, :]) @ (x @ weights["weight"]) + weights["bias"]


def _mlp(weights: Weights, h: Tensor, activation: Callable[[Tensor], Tensor] = functional.elu) -> Tensor:
    if "linear.weight" in weights:
        return functional.linear(h, weights["linear.weight"], weights["linear.bias"])
    count = len(weights) // 2
    for i in range(count):
        h = functional.linear(h, weights[f"linears.{i}.weight"], weights[f"linears.{i}.bias"])
        if i < count - 1:
            h = activation(h)
    return h


def _powers(adj: Tensor, count: int) -> Tensor:
    return torch.stack([torch.linalg.matrix_power(adj, c) for c in range(1, count + 1)], 1)


def _below(weights: Weights, prefix: str) -> Weights:
    return {name[len(prefix) + 1 :]: value for name, value in weights.items() if name.startswith(prefix + ".")}
