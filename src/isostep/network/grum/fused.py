"""GruM for training on a CPU: outputs and gradients of `GrumNetwork` without dropout, in a fraction of the time.

The pair states are nearly all of the work. One layer of them is one differentiable function, computed block by block
(some nodes and all their pairs), so that what a block needs stays in cache: matrix products from the library,
everything between them in one pass each. Forwards keeps what products gave or will take again, and the normalised
rows; backwards goes through the same blocks. Node and graph states are plain operations.

With `half` the layers' products of pairs and nodes are computed from numbers rounded to bfloat16, twice as fast where
the processor has such products; what lies between them reads and writes such numbers itself. Weights, states and sums
stay in float32, and so do times, inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isostep.network.grum import fused_kernels as kernels
from isostep.network.grum.reference import GrumNetwork, Pooling, TransformerLayer

BLOCK = 800_000  # bytes of pairs * dx in work at a time


class FusedGrum(nn.Module):
    """A `GrumNetwork` with the same parameters and a faster way through them."""

    def __init__(self, network: GrumNetwork, half: bool = False) -> None:
        super().__init__()
        self.network, self.rounds = network, half

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """It computes in float32 on a CPU, and drops nothing."""
        drops = any(part.p > 0 for part in network.modules() if isinstance(part, nn.Dropout))
        places = {(p.device.type, p.dtype) for p in network.parameters()}
        return isinstance(network, GrumNetwork) and not drops and places == {("cpu", torch.float32)}

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.run(x, adj, mask, t, partial(_run_layer, self.rounds))


def _run_layer(
    half: bool, layer: TransformerLayer, X: Tensor, E: Tensor, y: Tensor, mask_x: Tensor, mask_e: Tensor, last: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer; the last one's graph state, which nobody reads, is not computed."""
    a, linear = layer.self_attn, _half_linear if half else _linear
    if half:
        weight = torch.cat((a.q.weight * a.scale, a.k.weight, a.v.weight))
        bias = torch.cat((a.q.bias * a.scale, a.k.bias, a.v.bias))
        nodes: Tensor = HalfLinear.apply(X, mask_x, weight, bias)  # type: ignore[assignment]
    else:
        nodes = torch.cat((a.q(X) * a.scale, a.k(X), a.v(X)), -1) * mask_x
    film = torch.cat((a.y_e_mul(y) + 1, a.y_e_add(y)), -1)
    new_E, attended = PairLayer.apply(half, E, nodes, film, mask_x.squeeze(-1), *_pair_weights(layer))  # type: ignore[misc]
    attended = torch.addcmul(a.y_x_add(y)[:, None], attended, (a.y_x_mul(y) + 1)[:, None])
    new_X = layer.normX1(X + linear(attended, a.x_out, mask_x))
    new_X = layer.normX2(new_X + linear(linear(new_X, layer.linX1).relu_(), layer.linX2))
    if not last:
        new_y = a.y_out(a.y_y(y) + _pooled(a.x_y, X) + _pooled(a.e_y, E.flatten(1, 2)))
        y = layer.norm_y1(y + new_y)
        y = layer.norm_y2(y + layer.lin_y2(layer.lin_y1(y).relu_()))
    return new_X, new_E, y


def _linear(x: Tensor, layer: nn.Linear, mask: Tensor | None = None) -> Tensor:
    return layer(x) if mask is None else layer(x) * mask


def _half_linear(x: Tensor, layer: nn.Linear, mask: Tensor | None = None) -> Tensor:
    mask = x.new_ones(*x.shape[:-1], 1) if mask is None else mask
    return HalfLinear.apply(x, mask, layer.weight, layer.bias)  # type: ignore[return-value]


class HalfLinear(torch.autograd.Function):
    """x (..., in), mask (..., 1) -> (x W^T + bias) * mask, with products in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows, low_weight, mask = x.flatten(0, -2).bfloat16(), weight.bfloat16(), mask.flatten()
        out = x.new_empty(*x.shape[:-1], len(weight))
        _call(kernels.affine, rows @ low_weight.T, bias.detach(), mask, out.view(len(rows), -1))
        ctx.save_for_backward(rows, mask, low_weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows, mask, weight = ctx.saved_tensors
        d_out = grads[0].contiguous()
        low, d_bias = rows.new_empty(len(rows), len(weight)), d_out.new_zeros(len(weight))
        _call(kernels.affine_back, d_out.view(low.shape), mask, d_bias, low)
        d_x = (low @ weight).float().view(*d_out.shape[:-1], -1)
        return d_x, None, (low.T @ rows).float(), d_bias


def _pooled(pooling: Pooling, rows: Tensor) -> Tensor:
    pooled: Tensor = Pool.apply(rows)  # type: ignore[assignment]
    return pooling.lin(pooled.flatten(1))


class PairWeights(NamedTuple):
    """Weights (out, in) and biases of a layer's way through the pairs, in order."""

    both: Tensor  # e_mul and e_add
    both_bias: Tensor  # 1 + bias of e_mul, bias of e_add
    out: Tensor  # e_out
    out_bias: Tensor
    norm1: Tensor
    norm1_bias: Tensor
    up: Tensor  # feed-forward
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    norm2: Tensor
    norm2_bias: Tensor


def _pair_weights(layer: TransformerLayer) -> PairWeights:
    a = layer.self_attn
    both, bias = torch.cat((a.e_mul.weight, a.e_add.weight)), torch.cat((a.e_mul.bias + 1, a.e_add.bias))
    parts = (a.e_out, layer.normE1, layer.linE1, layer.linE2, layer.normE2)
    return PairWeights(both, bias, *(value for part in parts for value in (part.weight, part.bias)))


class PairLayer(torch.autograd.Function):
    """E (B, n, n, de), nodes = [q, k, v] (B, n, 3 dx), film = [mul, add] (B, 2 dx) -> new E, attended (B, n, dx)."""

    @staticmethod
    def forward(ctx: Any, half: bool, E: Tensor, nodes: Tensor, film: Tensor, mask: Tensor, *weights: Tensor) -> Any:
        E, nodes, film, mask, *rest = (value.detach().contiguous() for value in (E, nodes, film, mask, *weights))
        w, low = PairWeights(*rest), Tensor.bfloat16 if half else _unchanged
        matrices = [low(value) for value in (w.both, w.out, w.up, w.down)]
        both_T, out_T, up_T, down_T = (value.T for value in matrices)
        (graphs, n, _, de), (dx2, ff) = E.shape, (len(w.both), len(w.up))
        everywhere = torch.ones_like(mask)
        count, dx = graphs * n * n, dx2 // 2
        flat, new_E = E.view(count, de), E.new_empty(count, de)
        low_E = low(flat)
        both, inner, mid = (low_E.new_empty(count, width) for width in (dx2, ff, de))
        rows1, rows2, scales1, scales2 = (E.new_empty(count, *width) for width in ((de,), (de,), (), ()))
        attended, norms = nodes.new_empty(graphs * n, dx), nodes.new_empty(2, graphs * n, dx)
        nodes = nodes.view(graphs * n, 3 * dx)
        by = PairWeights(*map(_memory, w))  # once, not for every block
        near, every, *states = map(_memory, (mask, everywhere, nodes, film, attended, norms))
        for first, part in _blocks(graphs * n, n, dx, both.element_size()):
            b, h, m, out = both[part], inner[part], mid[part], new_E[part]
            torch.mm(low_E[part], both_T, out=b)
            z = b.new_empty(len(b), dx)
            _call(kernels.attend, b, first, near, *states, by.both_bias, z)
            norm1 = (by.norm1, by.norm1_bias, rows1[part], scales1[part])
            norm2 = (by.norm2, by.norm2_bias, rows2[part], scales2[part])
            middle, low_middle = (out, m) if half else (m, None)
            _call(kernels.residual_norm, flat[part], z @ out_T, by.out_bias, first, near, *norm1, middle, low_middle)
            torch.mm(m, up_T, out=h)
            _call(kernels.relu, h, by.up_bias)
            _call(kernels.residual_norm, middle, h @ down_T, by.down_bias, first, every, *norm2, out, None)
        ctx.half, ctx.shape = half, E.shape
        ctx.save_for_backward(
            low_E, nodes, film, mask, both, inner, mid, rows1, rows2, scales1, scales2, attended, norms,
            *matrices, *w,
        )  # fmt: skip
        return new_E.view(E.shape), attended.view(graphs, n, dx)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        low_E, nodes, film, mask, both, inner, mid, rows1, rows2, scales1, scales2, attended, norms, *rest = (
            ctx.saved_tensors
        )
        (by_both, by_out, by_up, by_down), weights = rest[:4], rest[4:]
        w, d = PairWeights(*weights), PairWeights(*(torch.zeros_like(value) for value in weights))
        (graphs, n, _, de), dx = ctx.shape, attended.shape[1]
        d_flat = rows1.new_empty(rows1.shape)
        d_nodes, d_film = torch.zeros_like(nodes), torch.zeros_like(film)
        d_new, d_attended = grads[0].contiguous().view(-1, de), grads[1].contiguous().view(-1, dx)
        by, to = (PairWeights(*map(_memory, values)) for values in (w, d))
        near, *states = map(_memory, (mask, nodes, film, attended, norms))
        d_states = [_memory(value) for value in (d_attended, d_nodes, d_film)]
        for first, part in _blocks(graphs * n, n, dx, both.element_size()):
            e, b, h, d_e = low_E[part], both[part], inner[part], d_flat[part]
            row, d_row = torch.empty_like(e), torch.empty_like(d_e)
            norm1 = (by.norm1, rows1[part], scales1[part], to.norm1, to.norm1_bias)
            norm2 = (by.norm2, rows2[part], scales2[part], to.norm2, to.norm2_bias)
            _call(kernels.norm_back, d_new[part], *norm2, d_row, row if ctx.half else None)
            low_row = row if ctx.half else d_row
            d_h = low_row @ by_down
            _call(kernels.relu_back, h, d_h, to.up_bias)
            _add_product(d.down, low_row.T, h)
            d.down_bias.add_(d_row.sum(0))
            _add_product(d.up, d_h.T, mid[part])
            _add_product(d_row, d_h, by_up)
            _call(kernels.norm_back, d_row, *norm1, d_e, None)
            _call(kernels.masked, d_e, first, near, to.out_bias, row)
            d_z, d_b = row @ by_out, torch.empty_like(b)
            d_bias = to.both_bias if ctx.half else None
            _call(kernels.attend_back, b, first, near, *states, by.both_bias, d_z, d_b, *d_states, d_bias)
            if not ctx.half:
                d.both_bias.add_(d_b.sum(0))
            _add_product(d.out, row.T, d_z)  # z by now
            _add_product(d.both, d_b.T, e)
            _add_product(d_e, d_b, by_both)
        return None, d_flat.view(ctx.shape), d_nodes.view(graphs, n, 3 * dx), d_film, None, *d


class Pool(torch.autograd.Function):
    """rows (B, R, width) -> [mean, min, max, std] (B, 4, width)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        out = rows.new_empty(len(rows), 4, rows.shape[-1])
        _call(kernels.pool, rows.detach(), out)
        ctx.save_for_backward(rows, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows, out = ctx.saved_tensors
        d_rows = torch.empty_like(rows)
        _call(kernels.pool_back, rows, out, grads[0].contiguous(), d_rows)
        return d_rows


def _blocks(nodes: int, n: int, dx: int, size: int) -> Iterator[tuple[int, slice]]:
    """First node of a block, and its pairs; numbers of products take `size` bytes."""
    step = max(1, BLOCK // (n * dx * size))
    for first in range(0, nodes, step):
        yield first, slice(first * n, min(first + step, nodes) * n)


def _unchanged(value: Tensor) -> Tensor:
    return value


def _add_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    """into += a b; `into` is float32."""
    if a.dtype == into.dtype:
        into.addmm_(a, b)
    else:
        _call(kernels.add, into, a @ b)


def _call(kernel: Any, *arguments: Any) -> None:
    """Kernels see the tensors' memory."""
    kernel(*(_memory(value) if isinstance(value, Tensor) else value for value in arguments))


def _memory(value: Tensor) -> Any:
    return (value.view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()
