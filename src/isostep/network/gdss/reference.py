"""GDSS' two score networks: nodes from (x, adj) and edges from (x, adj); neither takes the time.

    GCN(x, A)  = (d A1 d) (x W) + b       A1 = A with a unit diagonal, d = max(row sum, 1)^(-1/2)
    score_j    = mean over heads of tanh(Q_j K_j^T / sqrt(width of V_j)), symmetrised      Q_j, K_j, V_j = GCN(x, A_j)
    x'         = tanh( MLP(concat_j V_j) )
    A'         = M + M^T,   M = MLP(concat of scores and old channels A_1..A_C), node pair by node pair

The edge network runs attention layers on the channels A, A^2, ..., A^c_init; the node network is a stack of GCN layers,
or of the same attention layers. Both feed everything they computed to a final MLP. Parameter names are those of the
released files. Outputs of real nodes do not depend on padding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from isostep.base.errors import InputError
from isostep.network.settings import MAX_LAYERS, choice, whole

MAX_CHANNELS = 256
NODE_NETWORKS = ("ScoreNetworkX", "ScoreNetworkX_GMH")


class GdssNetwork(nn.Module):
    """The pair of released networks; `forward` returns their raw outputs (the process turns them into scores)."""

    def __init__(self, params_x: Mapping[str, Any], params_adj: Mapping[str, Any]) -> None:
        super().__init__()
        choice(params_adj, "model_type", ("ScoreNetworkA",))
        if choice(params_x, "model_type", NODE_NETWORKS) == "ScoreNetworkX":
            self.x = ScoreNetworkX(params_x)
        else:
            self.x = ScoreNetworkXGMH(params_x)
        self.adj = ScoreNetworkA(params_adj)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor, t: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, N, F), adj (B, N, N), mask (B, N); the time `t` is accepted and not used."""
        mask = mask.to(x.dtype)
        return self.x(x, adj, mask), self.adj(x, adj, mask)


class ScoreNetworkX(nn.Module):
    """Node network: GCN layers with tanh."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        features, depth, nhid = whole(params, "max_feat_num"), whole(params, "depth", MAX_LAYERS), whole(params, "nhid")
        self.layers = nn.ModuleList(DenseGCN(nhid if i else features, nhid) for i in range(depth))
        self.final = _final_mlp(features + depth * nhid, features)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        normalized = normalize(adj)
        hidden = [x]
        for layer in self.layers:
            hidden.append(layer(hidden[-1], normalized).tanh())
        return _mask_nodes(self.final(torch.cat(hidden, dim=-1)), mask)


class ScoreNetworkXGMH(nn.Module):
    """Node network: attention layers, which pass adjacency channels on; another tanh on top of each layer's own."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        features, depth = whole(params, "max_feat_num"), whole(params, "depth", MAX_LAYERS)
        self.c_init = whole(params, "c_init", MAX_CHANNELS)
        self.layers = _attention_layers(params, depth)
        self.final = _final_mlp(features + depth * whole(params, "nhid"), features)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        channels = powers(adj, self.c_init)
        hidden = [x]
        for layer in self.layers:
            new_x, channels = layer(hidden[-1], channels, mask)
            hidden.append(new_x.tanh())
        return _mask_nodes(self.final(torch.cat(hidden, dim=-1)), mask)


class ScoreNetworkA(nn.Module):
    """Edge network: every adjacency channel of every attention layer, node pair by node pair, through one MLP."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        num_layers = whole(params, "num_layers", MAX_LAYERS)
        self.c_init = whole(params, "c_init", MAX_CHANNELS)
        self.layers = _attention_layers(params, num_layers)
        self.final = _final_mlp(sum(_channel_counts(params, num_layers)), 1)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        channels = [powers(adj, self.c_init)]
        for layer in self.layers:
            x, new_channels = layer(x, channels[-1], mask)
            channels.append(new_channels)
        out = self.final(torch.cat(channels, dim=1).movedim(1, -1)).squeeze(-1)
        return _mask_pairs(_set_diagonal(out, 0), mask)


class AttentionLayer(nn.Module):
    """(x, channels) -> (x', channels') as the module's equations say."""

    def __init__(
        self, in_dim: int, attn_dim: int, out_dim: int, c_in: int, c_out: int, num_linears: int, heads: int, conv: str
    ) -> None:
        super().__init__()
        self.attn = nn.ModuleList(Attention(in_dim, attn_dim, out_dim, heads, conv) for _ in range(c_in))
        hidden = 2 * max(c_in, c_out)
        self.mlp = MLP(num_linears, 2 * c_in, hidden, c_out)
        self.multi_channel = MLP(2, c_in * out_dim, hidden, out_dim)

    def forward(self, x: Tensor, channels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, F), channels (B, C, N, N), mask (B, N)."""
        normalized = normalize(channels)
        attended = [attn(x, normalized[:, j]) for j, attn in enumerate(self.attn)]
        values, scores = zip(*attended, strict=True)
        new_x = _mask_nodes(self.multi_channel(torch.cat(values, dim=-1)), mask).tanh()
        pairs = torch.cat((torch.stack(scores, dim=1), channels), dim=1).movedim(1, -1)  # (B, N, N, 2C)
        new_channels = self.mlp(pairs).movedim(-1, 1)
        return new_x, _mask_pairs(new_channels + new_channels.mT, mask.unsqueeze(1))


class Attention(nn.Module):
    """One adjacency channel: values (B, N, out_dim) and symmetric scores (B, N, N)."""

    def __init__(self, in_dim: int, attn_dim: int, out_dim: int, heads: int, conv: str) -> None:
        super().__init__()
        if attn_dim % heads:
            raise InputError(f"attention width {attn_dim} is not a multiple of num_heads = {heads}")
        self.heads, self.conv, self.scale = heads, conv, 1 / math.sqrt(out_dim)
        if conv == "GCN":
            self.gnn_q, self.gnn_k = DenseGCN(in_dim, attn_dim), DenseGCN(in_dim, attn_dim)
        else:
            self.gnn_q, self.gnn_k = (MLP(2, in_dim, 2 * attn_dim, attn_dim, torch.tanh) for _ in range(2))
        self.gnn_v = DenseGCN(in_dim, out_dim)

    def forward(self, x: Tensor, normalized: Tensor) -> tuple[Tensor, Tensor]:
        inputs = (x, normalized) if self.conv == "GCN" else (x,)
        q = self._split(self.gnn_q(*inputs)) * self.scale
        k = self._split(self.gnn_k(*inputs))
        scores = (q @ k.mT).tanh().mean(dim=1)
        return self.gnn_v(x, normalized), (scores + scores.mT) / 2

    def _split(self, h: Tensor) -> Tensor:
        """(B, N, attn_dim) -> (B, heads, N, attn_dim / heads)."""
        return h.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class DenseGCN(nn.Module):
    """Graph convolution on an adjacency that is already normalized."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, normalized: Tensor) -> Tensor:
        return normalized @ (x @ self.weight) + self.bias


class MLP(nn.Module):
    """`k` linear maps with an activation between them: `linears.0..k-1`, or `linear` if there is one only."""

    def __init__(
        self, k: int, in_dim: int, hidden: int, out_dim: int, activation: Callable[[Tensor], Tensor] = functional.elu
    ) -> None:
        super().__init__()
        self.k, self.activation = k, activation
        if k == 1:
            self.linear = nn.Linear(in_dim, out_dim)
        else:
            widths = [in_dim] + [hidden] * (k - 1) + [out_dim]
            self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, h: Tensor) -> Tensor:
        if self.k == 1:
            return self.linear(h)
        for linear in self.linears[:-1]:
            h = self.activation(linear(h))
        return self.linears[-1](h)


def normalize(adj: Tensor) -> Tensor:
    """d A1 d of the module's equations, for any number of leading dimensions."""
    adj = _set_diagonal(adj, 1)
    d = adj.sum(dim=-1).clamp(min=1).rsqrt()
    return d.unsqueeze(-1) * adj * d.unsqueeze(-2)


def powers(adj: Tensor, count: int) -> Tensor:
    """A, A^2, ..., A^count as channels: (B, count, N, N)."""
    channels = [adj]
    for _ in range(count - 1):
        channels.append(channels[-1] @ adj)
    return torch.stack(channels, dim=1)


def _attention_layers(params: Mapping[str, Any], count: int) -> nn.ModuleList:
    nhid, adim, heads = whole(params, "nhid"), whole(params, "adim"), whole(params, "num_heads")
    num_linears, conv = whole(params, "num_linears", MAX_LAYERS), choice(params, "conv", ("GCN", "MLP"))
    channels = _channel_counts(params, count)
    return nn.ModuleList(
        AttentionLayer(
            in_dim=nhid if i else whole(params, "max_feat_num"),
            attn_dim=adim if i else nhid,
            out_dim=nhid,
            c_in=channels[i],
            c_out=channels[i + 1],
            num_linears=num_linears,
            heads=heads,
            conv=conv,
        )
        for i in range(count)
    )


def _channel_counts(params: Mapping[str, Any], layers: int) -> list[int]:
    c_init, c_hid, c_final = (whole(params, key, MAX_CHANNELS) for key in ("c_init", "c_hid", "c_final"))
    return [c_init, *[c_hid] * (layers - 1), c_final]


def _final_mlp(in_dim: int, out_dim: int) -> MLP:
    return MLP(3, in_dim, 2 * in_dim, out_dim)


def _set_diagonal(adj: Tensor, value: float) -> Tensor:
    diagonal = adj.new_full((), value).expand(adj.shape[:-1])
    return adj.diagonal_scatter(diagonal, dim1=-2, dim2=-1)


def _mask_nodes(h: Tensor, mask: Tensor) -> Tensor:
    return h * mask.unsqueeze(-1)


def _mask_pairs(h: Tensor, mask: Tensor) -> Tensor:
    return h * mask.unsqueeze(-1) * mask.unsqueeze(-2)
