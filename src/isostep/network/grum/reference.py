"""GruM's graph transformer: predicts the clean graph D(z_t, t) that a bridge mixture is heading for.

Node states X (B, N, dx), pair states E (B, N, N, de) and one graph state y (B, dy) pass through layers of

    Y_ij = (Q_i * K_j / sqrt(dx / heads)) * (1 + e_mul(E_ij)) + e_add(E_ij)        one value per pair and feature
    E'   = e_out( FiLM_e(y; Y) ),   X'_i = x_out( FiLM_x(y; sum_j softmax_j(Y_ij) * V_j) )
    y'   = y_out( y_y(y) + x_y(X) + e_y(E) ),                FiLM(y; h) = add(y) + (1 + mul(y)) * h

each followed by residual + LayerNorm, a feed-forward block, residual + LayerNorm. Padding is masked where the released
networks mask it and nowhere else: softmax and pooled statistics run over padded nodes too. Parameter names are those of
the released files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from isostep.base.errors import InputError
from isostep.network.settings import MAX_LAYERS, choice, entry, positive, whole

RELEASED_FFY = 2048  # feed-forward width of y in every released file, whatever its `dim_ffy` says
RELEASED_DROPOUT = 0.1
RunLayer = Callable[..., tuple[Tensor, ...]]


class GrumNetwork(nn.Module):
    """`params` as released; two keys of our own are honoured: `ffy` (feed-forward width of y) and `dropout`."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        into, out = entry(params, "input_dims"), entry(params, "output_dims")
        hidden, mlp = entry(params, "hidden_dims"), entry(params, "hidden_mlp_dims")
        dx, de, dy = (whole(hidden, key) for key in ("dx", "de", "dy"))
        mlp_x, mlp_e, mlp_y = (whole(mlp, key) for key in ("X", "E", "y"))
        self.out_x, self.out_e = whole(out, "X"), whole(out, "E")
        self.head = _head(params, self.out_x, self.out_e)
        self.mlp_in_X = _input_mlp(whole(into, "X"), mlp_x, dx)
        self.mlp_in_E = _input_mlp(whole(into, "E"), mlp_e, de)
        self.mlp_in_y = _input_mlp(whole(into, "y"), mlp_y, dy)
        self.tf_layers = nn.ModuleList(
            TransformerLayer(
                (dx, de, dy),
                (whole(hidden, "dim_ffX"), whole(hidden, "dim_ffE"), whole({"ffy": RELEASED_FFY, **params}, "ffy")),
                heads=whole(hidden, "n_head"),
                dropout=_dropout(params),
            )
            for _ in range(whole(params, "n_layers", MAX_LAYERS))
        )
        self.mlp_out_X = nn.Sequential(nn.Linear(dx, mlp_x), nn.ReLU(), nn.Linear(mlp_x, self.out_x))
        self.mlp_out_E = nn.Sequential(nn.Linear(de, mlp_e), nn.ReLU(), nn.Linear(mlp_e, self.out_e))

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, F), adj (B, N, N), mask (B, N), t (B,) -> predicted clean x and adj, masked, zero diagonal."""
        return self.run(x, adj, mask, t, lambda layer, X, E, y, mask_x, mask_e, _: layer(X, E, y, mask_x, mask_e))

    def run(self, x: Tensor, adj: Tensor, mask: Tensor, t: Tensor, run_layer: RunLayer) -> tuple[Tensor, Tensor]:
        """`forward`, with another way through a layer: run_layer(layer, X, E, y, mask_x, mask_e, last)."""
        mask_x = mask.to(x.dtype).unsqueeze(-1)  # (B, N, 1)
        mask_e = (mask_x * mask_x.mT).unsqueeze(-1)  # (B, N, N, 1)
        off_diagonal = 1 - torch.eye(x.shape[1], dtype=x.dtype, device=x.device).unsqueeze(-1)  # (N, N, 1)

        pairs = torch.stack((adj, two_step(adj)), dim=-1)
        X = self.mlp_in_X(x) * mask_x
        E = _symmetric(self.mlp_in_E(pairs)) * mask_e
        y = self.mlp_in_y(t.to(x.dtype).reshape(-1, 1))
        for i, layer in enumerate(self.tf_layers):
            X, E, y = run_layer(layer, X, E, y, mask_x, mask_e, i == len(self.tf_layers) - 1)

        X = self.mlp_out_X(X) + x[..., : self.out_x]
        E = _symmetric((self.mlp_out_E(E) + pairs[..., : self.out_e]) * off_diagonal)
        pred_x, pred_adj = self.head(X, E)
        return pred_x * mask_x, pred_adj * (mask_e * off_diagonal).squeeze(-1)


class TransformerLayer(nn.Module):
    """Attention and feed-forward block on (X, E, y), each with residual and LayerNorm."""

    def __init__(self, widths: tuple[int, int, int], ff: tuple[int, int, int], heads: int, dropout: float) -> None:
        super().__init__()
        (dx, de, dy), (ff_x, ff_e, ff_y) = widths, ff
        self.self_attn = NodeEdgeBlock(dx, de, dy, heads)
        self.linX1, self.linX2 = nn.Linear(dx, ff_x), nn.Linear(ff_x, dx)
        self.normX1, self.normX2 = nn.LayerNorm(dx), nn.LayerNorm(dx)
        self.linE1, self.linE2 = nn.Linear(de, ff_e), nn.Linear(ff_e, de)
        self.normE1, self.normE2 = nn.LayerNorm(de), nn.LayerNorm(de)
        self.lin_y1, self.lin_y2 = nn.Linear(dy, ff_y), nn.Linear(ff_y, dy)
        self.norm_y1, self.norm_y2 = nn.LayerNorm(dy), nn.LayerNorm(dy)
        self.dropout = nn.Dropout(dropout)

    def forward(self, X: Tensor, E: Tensor, y: Tensor, mask_x: Tensor, mask_e: Tensor) -> tuple[Tensor, ...]:
        new_X, new_E, new_y = self.self_attn(X, E, y, mask_x, mask_e)
        X = self.normX1(X + self.dropout(new_X))
        E = self.normE1(E + self.dropout(new_E))
        y = self.norm_y1(y + self.dropout(new_y))
        X = self.normX2(X + self._feed_forward(X, self.linX1, self.linX2))
        E = self.normE2(E + self._feed_forward(E, self.linE1, self.linE2))
        y = self.norm_y2(y + self._feed_forward(y, self.lin_y1, self.lin_y2))
        return X, E, y

    def _feed_forward(self, h: Tensor, first: nn.Linear, second: nn.Linear) -> Tensor:
        return self.dropout(second(self.dropout(first(h).relu())))


class NodeEdgeBlock(nn.Module):
    """Attention with one weight per pair and feature; pairs modulate it, the graph state modulates its results."""

    def __init__(self, dx: int, de: int, dy: int, heads: int) -> None:
        super().__init__()
        if dx % heads:
            raise InputError(f"node width dx = {dx} is not a multiple of n_head = {heads}")
        self.scale = 1 / math.sqrt(dx // heads)
        self.q, self.k, self.v = nn.Linear(dx, dx), nn.Linear(dx, dx), nn.Linear(dx, dx)
        self.e_add, self.e_mul = nn.Linear(de, dx), nn.Linear(de, dx)
        self.y_e_mul, self.y_e_add = nn.Linear(dy, dx), nn.Linear(dy, dx)
        self.y_x_mul, self.y_x_add = nn.Linear(dy, dx), nn.Linear(dy, dx)
        self.y_y = nn.Linear(dy, dy)
        self.x_y, self.e_y = Pooling(dx, dy), Pooling(de, dy)
        self.x_out, self.e_out = nn.Linear(dx, dx), nn.Linear(dx, de)
        self.y_out = nn.Sequential(nn.Linear(dy, dy), nn.ReLU(), nn.Linear(dy, dy))

    def forward(self, X: Tensor, E: Tensor, y: Tensor, mask_x: Tensor, mask_e: Tensor) -> tuple[Tensor, ...]:
        # Masking q and k zeroes their products on padded pairs, so one mask after e_mul and e_add serves both.
        q = (self.q(X) * (mask_x * self.scale)).unsqueeze(2)  # (B, N, 1, dx)
        k = (self.k(X) * mask_x).unsqueeze(1)  # (B, 1, N, dx)
        v = (self.v(X) * mask_x).unsqueeze(1)
        e_mul = functional.linear(E, self.e_mul.weight, self.e_mul.bias + 1)
        Y = (q * k * e_mul).add_(self.e_add(E)).mul_(mask_e)  # (B, N, N, dx); in place: no product keeps its result

        per_pair = y[:, None, None]
        new_E = self.e_out(_film(Y, self.y_e_mul(per_pair), self.y_e_add(per_pair))) * mask_e
        attended = (Y.softmax(dim=2) * v).sum(dim=2)
        per_node = y[:, None]
        new_X = self.x_out(_film(attended, self.y_x_mul(per_node), self.y_x_add(per_node))) * mask_x
        new_y = self.y_out(self.y_y(y) + self.x_y(X) + self.e_y(E.flatten(1, 2)))
        return new_X, new_E, new_y


class Pooling(nn.Module):
    """Linear map of [mean, min, max, std] over all rows, padding included."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.lin = nn.Linear(4 * width, out)

    def forward(self, rows: Tensor) -> Tensor:
        """rows (B, R, width) -> (B, out)."""
        mean = rows.mean(dim=1)
        # The norm of the centred rows: as exact as torch.std, three times as fast, and its gradient at 0 is 0.
        std = (rows - mean.unsqueeze(1)).norm(dim=1) / math.sqrt(max(rows.shape[1] - 1, 1))
        return self.lin(torch.cat((mean, rows.amin(dim=1), rows.amax(dim=1), std), dim=-1))


class MoleculeHead:
    """Atom probabilities; bond order / scale from two sigmoids worth 1 and 2."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, X: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
        single, double = E.sigmoid().unbind(-1)
        return X.softmax(dim=-1), (single + 2 * double) / self.scale


class GraphHead:
    """Eigenvector slices with norm `scale` over all rows, other slices as probabilities; edge probability."""

    def __init__(self, types: list[str], dims: list[int], scale: float) -> None:
        self.types, self.dims, self.scale = types, dims, scale

    def __call__(self, X: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
        slices = zip(self.types, X.split(self.dims, dim=-1), strict=True)
        return torch.cat([self._slice(str(kind), h) for kind, h in slices], dim=-1), E.sigmoid().squeeze(-1)

    def _slice(self, kind: str, h: Tensor) -> Tensor:
        if kind.startswith("eig"):
            return h / (h.norm(dim=1, keepdim=True) / self.scale)
        return h.softmax(dim=-1)


def two_step(adj: Tensor) -> Tensor:
    """Off-diagonal part of A d A d with d = max(sum |A|, 1)^(-1/2): weighted paths of two edges. (B, N, N)."""
    d = adj.abs().sum(dim=-1).clamp(min=1).rsqrt()
    paths = adj @ (d.unsqueeze(-1) * adj * d.unsqueeze(-2))
    return paths - torch.diag_embed(paths.diagonal(dim1=-2, dim2=-1))


def _head(params: Mapping[str, Any], out_x: int, out_e: int) -> MoleculeHead | GraphHead:
    """The head of `model_type`, once its settings agree with the output widths."""
    if choice(params, "model_type", ("transformer", "transformer_mol")) == "transformer_mol":
        if out_e != 2:
            raise InputError(f"a transformer_mol predicts 2 numbers a pair, but output_dims E is {out_e}")
        return MoleculeHead(positive(params, "scale"))
    features = entry(params, "feat_dict")
    types, dims = entry(features, "type"), entry(features, "dim")
    if not _fill(types, dims, out_x):
        found = f"types {repr(types)[:60]} of widths {repr(dims)[:60]}"
        raise InputError(f"feat_dict has {found}, which do not fill output_dims X = {out_x}")
    if out_e != 1:
        raise InputError(f"a transformer predicts 1 number a pair, but output_dims E is {out_e}")
    return GraphHead(list(types), list(dims), positive(features, "scale"))


def _fill(types: Any, dims: Any, width: int) -> bool:
    """Whether there is one name a slice and the slices have `width` columns together."""
    lists = isinstance(types, list | tuple) and isinstance(dims, list | tuple) and len(types) == len(dims)
    return lists and all(isinstance(d, int) and d > 0 for d in dims) and sum(dims) == width


def _dropout(params: Mapping[str, Any]) -> float:
    share = params.get("dropout", RELEASED_DROPOUT)
    if not isinstance(share, int | float) or not 0 <= share < 1:
        raise InputError(f"network setting 'dropout' must be a number from 0 to below 1, got {repr(share)[:60]}")
    return share


def _input_mlp(into: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(into, hidden), nn.ReLU(), nn.Linear(hidden, out), nn.ReLU())


def _symmetric(E: Tensor) -> Tensor:
    return (E + E.transpose(1, 2)) / 2


def _film(h: Tensor, mul: Tensor, add: Tensor) -> Tensor:
    return (h * (mul + 1)).add_(add)
