"""GruM for inference: the outputs of `GrumNetwork` for graphs whose padding was cut off.

Masks zero what a layer adds at padded places, so every padded node, and every padded pair, goes through the same
residuals, LayerNorms and feed-forward blocks whatever the graph and the time: their states are constants of the
weights, c_X and c_E per layer. With p padded nodes, n + p = N, the padded result is exactly

    softmax     exp(Y_ij) / (sum over real j of exp(Y_ij) + p)                  padded pairs have Y = 0, V = 0
    pooling     mean, min, max, std over n real rows and p times c_X; n^2 and N^2 - n^2 times c_E
    norm        of a column over n real rows and p times the head's input at c_X

Node and graph states run for the whole group, pair states in blocks that stay in cache: a few graphs, or a few rows of
a large one. A bias that follows a residual is moved into the LayerNorm before it. The bias b of e_add shifts all
weights of a softmax, so it is left out of Y, put into the padded pairs (Y = -b) and, behind e_out, into the graph's
shift of E. Nobody reads the last layer's graph state: it is not computed.

What is not a matrix product is in `TorchOps`; `kernels.grum` has the same, compiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from isostep.network.grum.reference import GrumNetwork, MoleculeHead, two_step

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Linear:
    """h W + b; W is stored (in, out), as the products want it."""

    weight: Tensor
    bias: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        return torch.addmm(self.bias, h.flatten(0, -2), self.weight).view(*h.shape[:-1], -1)


@dataclass(frozen=True)
class Norm:
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, h: Tensor) -> Tensor:
        return functional.layer_norm(h, h.shape[-1:], self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class Block:
    """Residual + LayerNorm, feed-forward, residual + LayerNorm; the second residual's bias is in `first_norm`."""

    first_norm: Norm
    up: Linear
    down: Tensor
    second_norm: Norm

    def __call__(self, h: Tensor) -> Tensor:
        """`h` (rows, width) has the attention's result added already."""
        h = self.first_norm(h)
        return self.second_norm(h.addmm_(self.up(h).relu_(), self.down))


class Work(NamedTuple):
    """How the pairs of a group are divided, and memory for the temporaries of one part."""

    graphs: list[slice]
    nodes: list[slice]  # one part, unless a graph is larger than a block
    scratch: Tensor


class Nodes(NamedTuple):
    """What a block brings to its pairs (i, j): i from `first` up to `end`, all j."""

    qkv: Tensor  # (B, n, 3 dx) query, key, value
    film: Tensor  # (B, dx)
    first: int
    end: int


class TorchOps:
    block = 500_000  # pairs * dx in work at a time

    def pool(self, rows: Tensor, padded: Tensor, count: int) -> Tensor:
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

    def attend(self, both: Tensor, nodes: Nodes, layer: Layer, padding: int, out: Tensor) -> None:
        """out_i = sum_j 2^Y_ij V_j / sum_j 2^Y_ij, with `padding` more pairs of Y = `absent` and V = 0.

        `both` (pairs, 2 dx) holds e_mul and e_add, without biases; its first half becomes film * Y. `out` (B, n, dx).
        """
        query, key, value = nodes.qkv.chunk(3, -1)
        query, out = query[:, nodes.first : nodes.end], out[:, nodes.first : nodes.end]
        graphs, n, width = key.shape
        weights, shares = both.view(graphs, -1, n, 2, width).unbind(3)
        torch.addcmul((query * layer.mul_bias).unsqueeze(2), weights, query.unsqueeze(2), out=weights)
        torch.addcmul(shares, weights, key.unsqueeze(1), out=weights)
        top = weights.amax(2)
        if padding:
            top = torch.maximum(top, layer.absent)
        torch.sub(weights, top.unsqueeze(2), out=shares).exp2_()
        total = shares.sum(2)
        if padding:
            total.add_((layer.absent - top).exp2_(), alpha=padding)
        torch.sum(shares.mul_(value.unsqueeze(1)), 2, out=out).div_(total)
        weights.mul_(nodes.film[:, None, None])

    def finish(self, pairs: Tensor, block: Block, shift: Tensor, scratch: Tensor) -> None:
        """`block` of the pairs (B R, de), in place, with `shift` (B, de) added before."""
        pairs.view(len(shift), -1, pairs.shape[-1]).add_(shift.unsqueeze(1))
        h = block.first_norm(pairs)
        inner = torch.addmm(block.up.bias, h, block.up.weight, out=part_of(scratch, h, block.up.weight))
        pairs.copy_(block.second_norm(h.addmm_(inner.relu_(), block.down)))


@dataclass(frozen=True)
class Layer:
    """Y comes times log2(e), through `qkv` and `e_both`: torch's exp2 is twice as fast as its exp."""

    qkv: Linear
    e_both: Tensor  # e_mul and e_add without their biases, (de, 2 dx)
    mul_bias: Tensor  # 1 + bias of e_mul
    absent: Tensor  # (dx,) Y of padded pairs
    x_film: Linear  # y -> 1 + y_x_mul(y), y_x_add(y)
    e_film: Linear  # y -> (1 + y_e_mul(y)) / log2(e)
    e_shift: Linear  # y -> e_out(y_e_add(y)), and what was left out of Y
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
    ops: TorchOps
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
        work = self._divide(X)
        for rows in work.graphs:
            E[rows] = _symmetric(_relu_twice(self.in_e, pairs[rows]))
        for layer in self.layers:
            X, y = _run_layer(layer, X, E, y, work, padding, self.ops)
        return self._predict(x, pairs, X, E, work.graphs, padding)

    def _divide(self, X: Tensor) -> Work:
        """X (B, n, dx). The large temporaries are in memory that is not given back in between."""
        graphs, n, width = X.shape
        together = max(n, self.ops.block // width)  # pairs
        blocks = _slices(graphs, max(1, together // (n * n)))
        pairs = min(blocks[0].stop * n * n, together)
        columns = max(2 * width, self.layers[0].e_block.down.shape[0])
        return Work(blocks, _slices(n, min(n, together // n)), X.new_empty(pairs * columns))

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


def fold(network: nn.Module, dtype: torch.dtype = torch.float32, ops: TorchOps | None = None) -> FoldedGrum | None:
    """Prepare a network's weights (in float64, then rounded once); None for another network than GruM's."""
    if not isinstance(network, GrumNetwork):
        return None
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
        ops=ops or TorchOps(),
    )


def _fold_layer(layer: Any, x_padded: Tensor, e_padded: Tensor, last: bool, dtype: torch.dtype) -> Layer:
    a = layer.self_attn
    out_weight, out_bias = _double(a.e_out)
    shift_weight, shift_bias = _double(a.y_e_add)
    film_weight, film_bias = _double(a.y_e_mul)
    (mul_weight, mul_bias), (add_weight, add_bias) = _double(a.e_mul), _double(a.e_add)
    shift_weight = shift_weight + film_weight * add_bias
    shift_bias = shift_bias + (1 + film_bias) * add_bias
    graph = None
    if not last:
        y_out = (_linear(a.y_out[0], dtype), _linear(a.y_out[2], dtype))
        pools = (_linear(a.y_y, dtype), _linear(a.x_y.lin, dtype), _linear(a.e_y.lin, dtype))
        graph = GraphStep(*pools, y_out, _fold_block(layer, "_y", dtype))
    return Layer(
        qkv=_joined((a.q, a.k, a.v), dtype, scales=(a.scale * LOG2_E, 1, 1)),
        e_both=torch.cat((mul_weight, add_weight * LOG2_E), 1).to(dtype),
        mul_bias=(1 + mul_bias).to(dtype),
        absent=(-add_bias * LOG2_E).to(dtype),
        x_film=_joined((a.y_x_mul, a.y_x_add), dtype, shifts=(1, 0)),
        e_film=_joined((a.y_e_mul,), dtype, scales=(1 / LOG2_E,), shifts=(1 / LOG2_E,)),
        e_shift=_rounded(shift_weight @ out_weight, shift_bias @ out_weight + out_bias, dtype),
        e_out=out_weight.to(dtype).contiguous(),
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
        Norm(norms[0].weight.detach().to(dtype), (norms[0].bias.detach().double() + down_bias).to(dtype), norms[0].eps),
        _rounded(up, up_bias - down_bias @ up, dtype),
        down.to(dtype).contiguous(),
        Norm(norms[1].weight.detach().to(dtype), norms[1].bias.detach().to(dtype), norms[1].eps),
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
    layer: Layer, X: Tensor, E: Tensor, y: Tensor, work: Work, padding: int, ops: TorchOps
) -> tuple[Tensor, Tensor]:
    """New X and y; E (B, n, n, de) is updated in place, block by block."""
    n = X.shape[1]
    qkv = layer.qkv(X)
    x_mul, x_add = layer.x_film(y).chunk(2, -1)
    e_film, e_shift = layer.e_film(y), layer.e_shift(y)
    attended, pooled = torch.empty_like(X), []
    for rows in work.graphs:
        if layer.y is not None:
            pooled.append(ops.pool(E[rows].flatten(1, 2), layer.e_padded, padding * (padding + 2 * n)))
        for part in work.nodes:
            pairs = E[rows, part].view(-1, E.shape[-1])
            both = torch.mm(pairs, layer.e_both, out=part_of(work.scratch, pairs, layer.e_both))
            ops.attend(both, Nodes(qkv[rows], e_film[rows], part.start, part.stop), layer, padding, attended[rows])
            pairs.addmm_(both[:, : X.shape[-1]], layer.e_out)
            ops.finish(pairs, layer.e_block, e_shift[rows], work.scratch)
    attended.mul_(x_mul[:, None]).add_(x_add[:, None])
    new_X = layer.x_block((X + layer.x_out(attended)).flatten(0, 1)).view(X.shape)
    if layer.y is not None:
        y = layer.y(y, ops.pool(X, layer.x_padded, padding), torch.cat(pooled))
    return new_X, y


def _slices(length: int, step: int) -> list[slice]:
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


def part_of(scratch: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Memory for rows @ weight."""
    return scratch[: len(rows) * weight.shape[1]].view(len(rows), -1)


def _relu_twice(linears: tuple[Linear, Linear], h: Tensor) -> Tensor:
    first, second = linears
    return second(first(h).relu_()).relu_()


def _symmetric(E: Tensor) -> Tensor:
    return (E + E.transpose(1, 2)).div_(2)
