"""GruM for training on a CPU: outputs and gradients of `GrumNetwork` without dropout, in a fraction of the time.

The pair states are nearly all of the work. One layer of them is one differentiable function, computed block by block
(some node rows and all their pairs), so that what a block needs stays in cache: matrix products from the library,
everything between them in one pass each. Forwards keeps (1 + e_mul(E), Y), the hidden layer and the normalised rows;
backwards goes through the same blocks. Node and graph states are plain operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isostep.network.grum import fused_kernels as kernels
from isostep.network.grum.reference import GrumNetwork, NodeEdgeBlock, Pooling, TransformerLayer

BLOCK = 200_000  # pairs * dx in work at a time


def fits(network: nn.Module) -> bool:
    """Whether `forward` computes what the network does, and where: one CPU, float32, no dropout."""
    if not isinstance(network, GrumNetwork) or any(layer.dropout.p > 0 for layer in layers(network)):
        return False
    return all(p.device.type == "cpu" and p.dtype == torch.float32 for p in network.parameters())


def layers(network: GrumNetwork) -> list[TransformerLayer]:
    return list(network.tf_layers)  # pyright: ignore[reportReturnType]


class FusedGrum(nn.Module):
    """`GrumNetwork` with the same parameters and a faster way through them."""

    def __init__(self, network: GrumNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.run(x, adj, mask, t, run_layer)


def run_layer(
    layer: TransformerLayer, X: Tensor, E: Tensor, y: Tensor, mask_x: Tensor, mask_e: Tensor, last: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer; the last one's graph state, which nobody reads, is not computed."""
    a = layer.self_attn
    nodes = torch.cat((a.q(X) * a.scale, a.k(X), a.v(X)), -1) * mask_x
    film = torch.cat((a.y_e_mul(y) + 1, a.y_e_add(y)), -1)
    new_E, attended = PairLayer.apply(E, nodes, film, mask_x.squeeze(-1), *_pair_weights(layer))
    new_X = a.x_out(attended * (a.y_x_mul(y) + 1)[:, None] + a.y_x_add(y)[:, None]) * mask_x
    if not last:
        new_y = a.y_out(a.y_y(y) + _pooled(a.x_y, X) + _pooled(a.e_y, E.flatten(1, 2)))
        y = layer.norm_y1(y + new_y)
        y = layer.norm_y2(y + layer.lin_y2(layer.lin_y1(y).relu()))
    X = layer.normX1(X + new_X)
    return layer.normX2(X + layer.linX2(layer.linX1(X).relu())), new_E, y


def _pooled(pooling: Pooling, rows: Tensor) -> Tensor:
    return pooling.lin(Pool.apply(rows).flatten(1))


def _pair_weights(layer: TransformerLayer) -> tuple[Tensor, ...]:
    a: NodeEdgeBlock = layer.self_attn
    linears = (a.e_out, layer.linE1, layer.linE2, layer.normE1, layer.normE2)
    both = torch.cat((a.e_mul.weight, a.e_add.weight)), torch.cat((a.e_mul.bias + 1, a.e_add.bias))
    return *both, *(value for part in linears for value in (part.weight, part.bias))


class PairLayer(torch.autograd.Function):
    """E (B, n, n, de), nodes = [q, k, v] (B, n, 3 dx), film = [mul, add] (B, 2 dx) -> new E, attended (B, n, dx)."""

    @staticmethod
    def forward(ctx: Any, E: Tensor, nodes: Tensor, film: Tensor, mask: Tensor, *weights: Tensor) -> Any:
        wb, bb, wo, bo, w1, b1, w2, b2, n1, s1, n2, s2 = (w.detach() for w in weights)
        graphs, n, _, de = E.shape
        dx = wb.shape[0] // 2
        E, nodes, film = E.contiguous(), nodes.contiguous().view(graphs * n, -1), film.contiguous()
        count = graphs * n * n
        flat, out = E.view(count, de), torch.empty(count, de)
        both, inner = torch.empty(count, 2 * dx), torch.empty(count, w1.shape[0])
        centred, scales = torch.empty(2, count, de), torch.empty(2, count)
        attended, norms = torch.empty(graphs * n, dx), torch.empty(2, graphs * n, dx)
        N = np.asarray
        nodes_, film_, mask_, attended_, norms_ = N(nodes), N(film), N(mask), N(attended), N(norms)
        bb_, bo_, b1_, b2_, n1_, s1_, n2_, s2_ = map(N, (bb, bo, b1, b2, n1, s1, n2, s2))
        ones = np.ones_like(mask_)
        eps = np.float32(1e-5)
        step = max(1, BLOCK // (n * dx))
        z_, new_ = torch.empty(min(step, graphs * n) * n, dx), torch.empty(min(step, graphs * n) * n, de)
        for first in range(0, graphs * n, step):
            rows = slice(first * n, min(first + step, graphs * n) * n)
            e, b, h, o = flat[rows], both[rows], inner[rows], out[rows]
            z, new = z_[: len(e)], new_[: len(e)]
            torch.mm(e, wb.T, out=b)
            kernels.attend(N(b), first, nodes_, mask_, film_, bb_, attended_, norms_, N(z))
            torch.mm(z, wo.T, out=new)
            c, s = centred[:, rows], scales[:, rows]
            kernels.residual_norm(N(e), N(new), bo_, first, mask_, n1_, s1_, eps, N(c[0]), N(s[0]), N(o))
            torch.mm(o, w1.T, out=h)
            kernels.relu(N(h), b1_)
            torch.mm(h, w2.T, out=new)
            kernels.residual_norm(N(o), N(new), b2_, first, ones, n2_, s2_, eps, N(c[1]), N(s[1]), N(o))
        ctx.save_for_backward(E, nodes, film, mask, both, inner, centred, scales, attended, norms, *weights)
        return out.view(E.shape), attended.view(graphs, n, dx)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        E, nodes, film, mask, both, inner, centred, scales, attended, norms, *weights = ctx.saved_tensors
        wb, _, wo, _, w1, _, w2, _, n1, s1, n2, _ = (w.detach() for w in weights)
        graphs, n, _, de = E.shape
        dx = wb.shape[0] // 2
        count = graphs * n * n
        dout, datt = (grad.contiguous() for grad in grads)
        dout, datt, flat = dout.view(count, de), datt.view(graphs * n, dx), E.view(count, de)
        dE, dnodes, dfilm = torch.empty(count, de), torch.zeros_like(nodes), torch.zeros_like(film)
        dwb, dbb, dwo, dbo, dw1, db1, dw2, db2, dn1, ds1, dn2, ds2 = into = [torch.zeros_like(w) for w in weights]
        N = np.asarray
        nodes_, film_, mask_, attended_, norms_, datt_ = map(N, (nodes, film, mask, attended, norms, datt))
        dnodes_, dfilm_, dbb_, dbo_, db1_, n1_, s1_, n2_ = map(N, (dnodes, dfilm, dbb, dbo, db1, n1, s1, n2))
        dn1_, ds1_, dn2_, ds2_ = map(N, (dn1, ds1, dn2, ds2))
        step = max(1, BLOCK // (n * dx))
        most = min(step, graphs * n) * n
        d_, h1_, dh_, z_, dz_, db_ = (torch.empty(most, w) for w in (de, de, w1.shape[0], dx, dx, 2 * dx))
        for first in range(0, graphs * n, step):
            rows = slice(first * n, min(first + step, graphs * n) * n)
            size = rows.stop - rows.start
            e, b, h, g, de_ = flat[rows], both[rows], inner[rows], dout[rows], dE[rows]
            d, h1, dh, z, dz, db = (t[:size] for t in (d_, h1_, dh_, z_, dz_, db_))
            c, s = centred[:, rows], scales[:, rows]
            kernels.norm_back(N(g), n2_, N(c[1]), N(s[1]), dn2_, ds2_, N(d))
            torch.mm(d, w2, out=dh)
            kernels.relu_back(N(h), N(dh), db1_)
            dw2.addmm_(d.T, h)
            db2 += d.sum(0)
            kernels.scale_rows(N(c[0]), n1_, s1_, N(h1))
            dw1.addmm_(dh.T, h1)
            d.addmm_(dh, w1)
            kernels.norm_back(N(d), n1_, N(c[0]), N(s[0]), dn1_, ds1_, N(de_))
            kernels.masked_rows(N(de_), first, mask_, dbo_, N(d))
            torch.mm(d, wo, out=dz)
            kernels.modulate_rows(N(b), first, n, film_, N(z))
            dwo.addmm_(d.T, z)
            kernels.attend_back(
                N(b), first, nodes_, mask_, film_, attended_, norms_, N(dz), datt_, N(db), dnodes_, dfilm_, dbb_
            )
            dwb.addmm_(db.T, e)
            de_.addmm_(db, wb)
        return dE.view(E.shape), dnodes.view(graphs, n, -1), dfilm, None, *into


class Pool(torch.autograd.Function):
    """rows (B, R, width) -> [mean, min, max, std] (B, 4, width)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        out = rows.new_empty(len(rows), 4, rows.shape[-1])
        kernels.pool(rows.detach().numpy(), out.numpy())
        ctx.save_for_backward(rows, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows, out = ctx.saved_tensors
        drows = torch.empty_like(rows)
        kernels.pool_back(rows.numpy(), out.numpy(), grads[0].contiguous().numpy(), drows.numpy())
        return drows
