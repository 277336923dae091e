"""The parts of `fast_gdss` that are not matrix products, fused; graphs are the last axis and run through the vectors.

Same arguments and results as `fast_gdss.TorchOps`.
"""

from __future__ import annotations

import numba
import numpy as np
from torch import Tensor

from isostep.network.fast_gdss import TorchOps
from isostep.network.kernels.arithmetic import LOG2_E, ONE, OPTIONS, exp2

VECTOR = 8  # graphs that fill a vector
FEWEST = 48  # graphs; the vectorised loop over scores takes 32 at a time, and torch is faster below
TWO = np.float32(2)
SAFE = np.float32(60)  # (1 + 2^60)^2 is finite


class NumbaOps(TorchOps):
    cells = 24_000  # fewer temporaries

    def aggregate(self, channels: Tensor, x: Tensor, square: Tensor, out: Tensor) -> None:
        if x.shape[-1] < VECTOR:
            return super().aggregate(channels, x, square, out)
        edges = x.new_empty(2, *x.shape[1:])
        _aggregate(channels.numpy(), x.numpy(), square.numpy(), edges.numpy(), out.numpy())

    def scores(self, query_key: Tensor, out: Tensor) -> None:
        if out.shape[-1] < FEWEST:
            return super().scores(query_key, out)
        both = out.new_empty(2, out.shape[-1])
        _scores(query_key.numpy(), both.numpy(), out.numpy())

    def elu_(self, h: Tensor) -> None:
        _elu(h.view(-1).numpy())

    def tanh_(self, h: Tensor) -> Tensor:
        _tanh(h.view(-1).numpy())
        return h


@numba.jit(**OPTIONS)
def _elu(h):
    for k in range(h.shape[0]):
        x = h[k]
        low = exp2(x * LOG2_E) - ONE
        h[k] = low if x < 0 else x


@numba.jit(**OPTIONS)
def _tanh(h):
    for k in range(h.shape[0]):
        h[k] = ONE - TWO / (ONE + exp2(TWO * LOG2_E * h[k]))


@numba.jit(**OPTIONS)
def _aggregate(channels, x, square, edges, out):
    """out[c, f, i] = sum_j d_i A_ij d_j x[f, j] with A_ii = 1; `edges` holds d_i A_ij d_j of one i, and d."""
    features, nodes, graphs = x.shape
    row, d = edges[0], edges[1]
    odd = nodes % 4
    for c in range(channels.shape[0]):
        for i in range(nodes):
            for b in range(graphs):
                d[i, b] = ONE
            for j in range(nodes):
                if j != i:
                    pair = square[i * nodes + j]
                    for b in range(graphs):
                        d[i, b] += channels[c, pair, b]
            for b in range(graphs):
                degree = d[i, b]
                d[i, b] = ONE / np.sqrt(ONE if degree < ONE else degree)
        for i in range(nodes):
            for j in range(nodes):
                pair = square[i * nodes + j]
                if j == i:
                    for b in range(graphs):
                        row[j, b] = d[i, b] * d[i, b]
                else:
                    for b in range(graphs):
                        row[j, b] = channels[c, pair, b] * d[i, b] * d[j, b]
            for f in range(features):
                for b in range(graphs):
                    out[c, f, i, b] = 0
                for j in range(odd):
                    for b in range(graphs):
                        out[c, f, i, b] += row[j, b] * x[f, j, b]
                for j in range(odd, nodes, 4):  # four at a time: the sum is loaded and stored less often
                    for b in range(graphs):
                        out[c, f, i, b] += (row[j, b] * x[f, j, b] + row[j + 1, b] * x[f, j + 1, b]) + (
                            row[j + 2, b] * x[f, j + 2, b] + row[j + 3, b] * x[f, j + 3, b]
                        )


@numba.jit(**OPTIONS)
def _scores(query_key, both, out):
    """out[c, pair] = sum over heads of sigmoid(q_i k_j) + sigmoid(q_j k_i). query_key (C, 2, heads, width, N, B)."""
    channels, _, heads, width, nodes, graphs = query_key.shape
    odd = width % 4
    for c in range(channels):
        pair = 0
        for i in range(nodes):
            for j in range(i + 1, nodes):
                for b in range(graphs):
                    out[c, pair, b] = 0
                for h in range(heads):
                    q, k = query_key[c, 0, h], query_key[c, 1, h]
                    for b in range(graphs):
                        both[0, b] = 0
                        both[1, b] = 0
                    for w in range(odd):
                        for b in range(graphs):
                            both[0, b] += q[w, i, b] * k[w, j, b]
                            both[1, b] += q[w, j, b] * k[w, i, b]
                    for w in range(odd, width, 4):
                        for b in range(graphs):
                            both[0, b] += (q[w, i, b] * k[w, j, b] + q[w + 1, i, b] * k[w + 1, j, b]) + (
                                q[w + 2, i, b] * k[w + 2, j, b] + q[w + 3, i, b] * k[w + 3, j, b]
                            )
                            both[1, b] += (q[w, j, b] * k[w, i, b] + q[w + 1, j, b] * k[w + 1, i, b]) + (
                                q[w + 2, j, b] * k[w + 2, i, b] + q[w + 3, j, b] * k[w + 3, i, b]
                            )
                    for b in range(graphs):
                        # Both sigmoids over one denominator: one division.
                        s, r = -LOG2_E * both[0, b], -LOG2_E * both[1, b]
                        u, v = exp2(SAFE if s > SAFE else s), exp2(SAFE if r > SAFE else r)
                        out[c, pair, b] += (ONE + ONE + u + v) / ((ONE + u) * (ONE + v))
                pair += 1
