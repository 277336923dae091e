"""GruM for inference: the outputs of `GrumNetwork` for graphs whose padding was cut off.

Masks zero what a layer adds at padded places, so every padded node, and every padded pair, goes through the same
residuals, LayerNorms and feed-forward blocks whatever the graph and the time: their states are constants of the
weights, c_X and c_E per layer. With p padded nodes, n + p = N, the padded result is exactly

    softmax     exp(Y_ij) / (sum over real j of exp(Y_ij) + p)                  padded pairs have Y = 0, V = 0
    pooling     mean, min, max, std over n real rows and p times c_X; n^2 and N^2 - n^2 times c_E
    norm        of a column over n real rows and p times the head's input at c_X

Node and graph states run for the whole group, pair states in blocks of graphs that stay in cache. A bias that follows a
residual is moved into the LayerNorm before it. Nobody reads the last layer's graph state: it is not computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from isostep.network.grum import GrumNetwork, MoleculeHead, two_step

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Linear:
    """h W + b; W is stored (in, out), as the products want it."""

    weight: Tensor
    bias: Tensor

    def __call__(self, h: Tensor, out: Tensor | None = None) -> Tensor:
        """`out`: flat memory for the result."""
        rows = h.flatten(0, -2)
        if out is not None:
            out = out[: len(rows) * len(self.bias)].view(len(rows), -1)
        return torch.addmm(self.bias, rows, self.weight, out=out).view(*h.shape[:-1], -1)


@dataclass(frozen=True)
class Norm:
    weight: Tensor
    bias: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        return functional.layer_norm(h, h.shape[-1:], self.weight, self.bias)


@dataclass(frozen=True)
class Block:
    """Residual + LayerNorm, feed-forward, residual + LayerNorm; the second residual's bias is in `first_norm`."""

    first_norm: Norm
    up: Linear
    down: Tensor
    second_norm: Norm

    def __call__(self, h: Tensor, scratch: Tensor | None = None) -> Tensor:
        """`h` (rows, width) has the attention's result added already."""
        h = self.first_norm(h)
        return self.second_norm(h.addmm_(self.up(h, scratch).relu_(), self.down))


@dataclass(frozen=True)
class Layer:
    """Y comes times log2(e), through `qkv` and `e_add`: torch's exp2 is twice as fast as its exp."""

    qkv: Linear
    e_mul: Linear  # 1 + e_mul(E)
    e_add: Linear
    film: Linear  # y -> 1 + y_x_mul(y), y_x_add(y), (1 + y_e_mul(y)) / log2(e)
    e_shift: Linear  # y -> e_out(y_e_add(y))
    e_out: Tensor
    x_out: Linear
    x_block: Block
    e_block: Block
    y: GraphStep | None  # None in the last layer
    x_padded: Tensor  # (dx,) c_X before the layer
    e_padded: Tensor  # (de,)


@dataclass(frozen=True)
class GraphStep:
    """y <- block( y + y_out( y_y(y) + x_y(X) + e_y(E) ) )."""

    y_y: Linear
    x_y: Linear
    e_y: Linear
    y_out: tuple[Linear, Linear]
    block: Block

    def __call__(self, y: Tensor, pooled_x: Tensor, pooled_e: Tensor) -> Tensor:
        first, second = self.y_out
        return self.block(y + second(first(self.y_y(y) + self.x_y(pooled_x) + self.e_y(pooled_e)).relu_()))


@dataclass(frozen=True)
class FoldedGrum:
    in_x: tuple[Linear, Linear]
    in_e: tuple[Linear, Linear]
    in_y: tuple[Linear, Linear]
    layers: tuple[Layer, ...]
    out_x: tuple[Linear, Linear]
    out_e: tuple[Linear, Linear]
    head: Any
    x_padded: Tensor  # (out_x,) the head's input at padded nodes
    block: int  # pairs in work at a time
    overhead: int = 0
    cells: int = 2**20  # pair states stay in memory: de floats each
    takes_mask: bool = False

    def __call__(self, x: Tensor, adj: Tensor, mask: Tensor | None, t: Tensor, padding: int) -> tuple[Tensor, Tensor]:
        """x (B, n, F), adj (B, n, n) without padding (`mask` is None), t (B,); `padding` nodes were cut off."""
        dtype, n = self.x_padded.dtype, x.shape[1]
        x, adj = x.to(dtype), adj.to(dtype)
        pairs = torch.stack((adj, two_step(adj)), -1)
        X = _relu_twice(self.in_x, x)
        y = _relu_twice(self.in_y, t.to(dtype)[:, None])
        E = x.new_empty(len(x), n, n, self.in_e[1].weight.shape[1])
        blocks = torch.arange(len(x)).split(max(1, self.block // (n * n)))
        blocks = [slice(int(rows[0]), int(rows[-1]) + 1) for rows in blocks]
        for rows in blocks:
            E[rows] = _symmetric(_relu_twice(self.in_e, pairs[rows]))
        # The large temporaries of a block, in memory that is not given back in between.
        size = blocks[0].stop * n * n * max(X.shape[-1], self.layers[0].e_block.down.shape[0])
        scratch = x.new_empty(2, size).unbind()
        for layer in self.layers:
            X, y = _run_layer(layer, X, E, y, blocks, padding, scratch)
        return self._predict(x, pairs, X, E, blocks, padding)

    def _predict(
        self, x: Tensor, pairs: Tensor, X: Tensor, E: Tensor, blocks: list[slice], padding: int
    ) -> tuple[Tensor, Tensor]:
        first, second = self.out_x
        X = second(first(X).relu_())
        X += x[..., : X.shape[-1]]
        first, second = self.out_e
        out = torch.cat([second(first(E[rows]).relu_()) for rows in blocks])
        out += pairs[..., : out.shape[-1]]
        out.diagonal(dim1=1, dim2=2).zero_()
        if isinstance(self.head, MoleculeHead):
            pred_x, pred_adj = self.head(X, _symmetric(out))
        else:
            # The head's norm runs over all rows: one row stands for the padded ones.
            rest = (self.x_padded * math.sqrt(padding)).expand(len(X), 1, -1)
            pred_x, pred_adj = self.head(torch.cat((X, rest), 1), _symmetric(out))
            pred_x = pred_x[:, :-1]
        pred_adj.diagonal(dim1=1, dim2=2).zero_()
        return pred_x, pred_adj


def fold(network: GrumNetwork, dtype: torch.dtype = torch.float32, block: int = 1300) -> FoldedGrum:
    """Prepare a network's weights (in float64, then rounded once)."""
    network_: Any = network
    dx, de = network_.mlp_in_X[2].out_features, network_.mlp_in_E[2].out_features
    device = network_.mlp_in_X[0].weight.device
    x_padded = torch.zeros(1, dx, dtype=torch.float64, device=device)
    e_padded = torch.zeros(1, de, dtype=torch.float64, device=device)
    layers = []
    for i, layer in enumerate(network_.tf_layers):
        last = i == len(network_.tf_layers) - 1
        layers.append(_fold_layer(layer, x_padded[0], e_padded[0], last, dtype))
        x_padded = _fold_block(layer, "X", torch.float64)(x_padded)
        e_padded = _fold_block(layer, "E", torch.float64)(e_padded)
    first, second = _pair(network_.mlp_out_X, torch.float64)
    return FoldedGrum(
        in_x=_pair(network_.mlp_in_X, dtype),
        in_e=_pair(network_.mlp_in_E, dtype),
        in_y=_pair(network_.mlp_in_y, dtype),
        layers=tuple(layers),
        out_x=_pair(network_.mlp_out_X, dtype),
        out_e=_pair(network_.mlp_out_E, dtype),
        head=network.head,
        x_padded=second(first(x_padded).relu_())[0].to(dtype),
        block=block,
    )


def _fold_layer(layer: Any, x_padded: Tensor, e_padded: Tensor, last: bool, dtype: torch.dtype) -> Layer:
    a = layer.self_attn
    out_weight, out_bias = _double(a.e_out)
    add_weight, add_bias = _double(a.y_e_add)
    graph = None
    if not last:
        y_out = (_linear(a.y_out[0], dtype), _linear(a.y_out[2], dtype))
        pools = (_linear(a.y_y, dtype), _linear(a.x_y.lin, dtype), _linear(a.e_y.lin, dtype))
        graph = GraphStep(*pools, y_out, _fold_block(layer, "_y", dtype))
    return Layer(
        qkv=_joined((a.q, a.k, a.v), dtype, scales=(a.scale * LOG2_E, 1, 1)),
        e_mul=_joined((a.e_mul,), dtype, shifts=(1,)),
        e_add=_joined((a.e_add,), dtype, scales=(LOG2_E,)),
        film=_joined((a.y_x_mul, a.y_x_add, a.y_e_mul), dtype, scales=(1, 1, 1 / LOG2_E), shifts=(1, 0, 1 / LOG2_E)),
        e_shift=_rounded(add_weight @ out_weight, add_bias @ out_weight + out_bias, dtype),
        e_out=out_weight.to(dtype),
        x_out=_linear(a.x_out, dtype),
        x_block=_fold_block(layer, "X", dtype),
        e_block=_fold_block(layer, "E", dtype),
        y=graph,
        x_padded=x_padded.to(dtype),
        e_padded=e_padded.to(dtype),
    )


def _fold_block(layer: Any, part: str, dtype: torch.dtype) -> Block:
    norms = [getattr(layer, f"norm{part}{i}") for i in (1, 2)]
    (up, up_bias), (down, down_bias) = (_double(getattr(layer, f"lin{part}{i}")) for i in (1, 2))
    return Block(
        Norm(norms[0].weight.detach().to(dtype), (norms[0].bias.detach().double() + down_bias).to(dtype)),
        _rounded(up, up_bias - down_bias @ up, dtype),
        down.to(dtype),
        Norm(norms[1].weight.detach().to(dtype), norms[1].bias.detach().to(dtype)),
    )


def _pair(mlp: Any, dtype: torch.dtype) -> tuple[Linear, Linear]:
    return _linear(mlp[0], dtype), _linear(mlp[2], dtype)


def _linear(linear: Any, dtype: torch.dtype) -> Linear:
    return _rounded(*_double(linear), dtype)


def _joined(
    linears: tuple[Any, ...], dtype: torch.dtype, scales: tuple[float, ...] = (), shifts: tuple[float, ...] = ()
) -> Linear:
    """Several maps of one input as one, each times its scale, plus its shift."""
    scales, shifts = scales or (1,) * len(linears), shifts or (0,) * len(linears)
    parts = [(w * k, b * k + s) for (w, b), k, s in zip(map(_double, linears), scales, shifts, strict=True)]
    return _rounded(torch.cat([w for w, _ in parts], 1), torch.cat([b for _, b in parts]), dtype)


def _double(linear: Any) -> tuple[Tensor, Tensor]:
    """(in, out) weight and bias in float64."""
    return linear.weight.detach().double().mT, linear.bias.detach().double()


def _rounded(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Linear:
    return Linear(weight.to(dtype).contiguous(), bias.to(dtype).contiguous())


def _run_layer(
    layer: Layer, X: Tensor, E: Tensor, y: Tensor, blocks: list[slice], padding: int, scratch: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """New X and y; E (B, n, n, de) is updated in place, block by block."""
    n = X.shape[1]
    query, key, value = layer.qkv(X).chunk(3, -1)
    x_mul, x_add, e_mul = layer.film(y).chunk(3, -1)
    e_shift = layer.e_shift(y)
    attended, pooled = torch.empty_like(X), []
    for rows in blocks:
        old = E[rows]
        if layer.y is not None:
            pooled.append(_pool(old.flatten(1, 2), layer.e_padded, padding * (padding + 2 * n)))
        weights = layer.e_mul(old, scratch[0]).mul_(query[rows, :, None])
        weights = torch.addcmul(layer.e_add(old, scratch[1]), weights, key[rows, None], out=weights)
        attended[rows] = _attend(weights, value[rows], padding, scratch[1])
        weights.mul_(e_mul[rows, None, None])
        old += e_shift[rows, None, None]
        flat = old.view(-1, old.shape[-1]).addmm_(weights.flatten(0, 2), layer.e_out)
        old.copy_(layer.e_block(flat, scratch[1]).view(old.shape))
    attended.mul_(x_mul[:, None]).add_(x_add[:, None])
    new_X = layer.x_block((X + layer.x_out(attended)).flatten(0, 1)).view(X.shape)
    if layer.y is not None:
        y = layer.y(y, _pool(X, layer.x_padded, padding), torch.cat(pooled))
    return new_X, y


def _attend(weights: Tensor, value: Tensor, padding: int, scratch: Tensor) -> Tensor:
    """sum_j 2^weights_j value_j / sum_j 2^weights_j, (B, n, dx), with `padding` more zeros among weights and values."""
    top = weights.amax(2, keepdim=True)
    if padding:
        top.clamp_(min=0)
    shares = torch.sub(weights, top, out=scratch[: weights.numel()].view(weights.shape)).exp2_()
    total = shares.sum(2)
    if padding:
        total.add_(top.squeeze(2).neg_().exp2_(), alpha=padding)
    return shares.mul_(value[:, None]).sum(2).div_(total)


def _pool(rows: Tensor, padded: Tensor, count: int) -> Tensor:
    """[mean, min, max, std] over rows (B, R, width) and `count` times `padded` (width,): (B, 4 width)."""
    total = rows.shape[1] + count
    low, high = rows.amin(1), rows.amax(1)
    mean = rows.sum(1)
    if count:
        mean += count * padded
        low, high = torch.minimum(low, padded), torch.maximum(high, padded)
    mean /= total
    # Centred first, not a difference of squares: no cancellation. (Tensor.norm is ten times slower here.)
    squares = (rows - mean[:, None]).square_().sum(1)
    if count:
        squares += count * (padded - mean).square_()
    return torch.cat((mean, low, high, squares.div_(max(total - 1, 1)).sqrt_()), -1)


def _relu_twice(linears: tuple[Linear, Linear], h: Tensor) -> Tensor:
    first, second = linears
    return second(first(h).relu_()).relu_()


def _symmetric(E: Tensor) -> Tensor:
    return (E + E.transpose(1, 2)).div_(2)
