"""Compiled parts of GDSS, fused; pairs of one distance and all graphs are one long run.

Same arguments and results as `fast.TorchOps`.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from isostep.network.arithmetic import LOG2_E, ONE, OPTIONS, exp2, exp2_low
from isostep.network.gdss import product
from isostep.network.gdss.fast import TorchOps

TILE = 1024  # entries of a run that are worked on at a time, in the first cache
TWO = np.float32(2)
SAFE = np.float32(60)  # (1 + 2^60)^2 is finite


class NumbaOps(TorchOps):
    cells = 24_000  # fewer temporaries
    threads = 1  # the products are small: a second thread costs more than it gives (benchmarks/threads.py)

    def aggregate(self, channels: Tensor, x: Tensor, square: Tensor, out: Tensor) -> None:
        features, nodes, graphs = x.shape
        run, halo = nodes * graphs, nodes // 2 * graphs
        around = torch.cat((x[:, nodes - nodes // 2 :], x, x[:, : nodes // 2]), 1).view(features, -1)
        edges = x.new_empty(nodes // 2, run + halo)
        degree = x.new_empty(2, run + halo)
        pairs, flat = channels.flatten(1).numpy(), out.flatten(2).numpy()
        _aggregate(pairs, around.numpy(), graphs, edges.numpy(), degree.numpy(), flat)

    def scores(self, query_key: Tensor, around: Tensor, heads: int, out: Tensor) -> None:
        _, _, nodes, graphs = around.shape
        if nodes * graphs < product.COLUMNS:
            super().scores(query_key, around, heads, out)
            return
        wider = (nodes + nodes // 2) * graphs + product.LANES  # whole vectors may be read behind the last column
        wide = out.new_empty(2, heads, query_key.shape[1] // (2 * heads), wider)
        both = out.new_empty(2, TILE)
        arrays = query_key.numpy(), around.flatten(2).numpy()
        _scores(*arrays, graphs, wide.numpy(), both.numpy(), out.flatten(1).numpy())

    def mlp(self, weights: tuple[Tensor, ...], h: Tensor, out: Tensor) -> None:
        if h.shape[1] < product.COLUMNS:
            super().mlp(weights, h, out)
            return
        product.mlp(tuple(weight.numpy() for weight in weights), h.numpy(), out.numpy())

    def tanh_(self, h: Tensor) -> Tensor:
        _tanh(h.view(-1).numpy())
        return h


@numba.jit(**OPTIONS)
def _tanh(h):
    for k in range(h.shape[0]):
        h[k] = ONE - TWO / (ONE + exp2(TWO * LOG2_E * h[k]))


@numba.jit(**OPTIONS)
def _copy(source, target):
    """Between parts of one array that do not overlap: written as one array, LLVM copies it number by number."""
    for e in range(source.shape[0]):
        target[e] = source[e]


@numba.jit(**OPTIONS)
def _aggregate(channels, x, graphs, edges, degrees, out):
    """out[c, f, i] = sum_j d_i A_ij d_j x[f, j] with A_ii = 1.

    Pairs come by distance: for k = 1, 2, ... the pairs (i, i + k mod N) of all i, and all graphs of a pair. So for one
    distance, everything lies in one run of N B entries. `x` has a halo of N/2 nodes on both sides, `edges[k - 1]`
    (d_i A_ij d_j) one of k nodes before it; `degrees` is for d, with a halo behind, and the degrees.
    """
    features = x.shape[0]
    length = out.shape[2]
    nodes = length // graphs
    halo = nodes // 2 * graphs
    whole = (nodes - 1) // 2  # distances with a pair for every node; with N even, N/2 has half as many
    half = halo if nodes % 2 == 0 else 0
    scale, degree = degrees[0], degrees[1]
    for c in range(channels.shape[0]):
        for e in range(length):
            degree[e] = ONE
        for k in range(1, whole + 1):
            pair, shift = channels[c, (k - 1) * length : k * length], k * graphs
            for e in range(length):
                degree[e] += pair[e]
            later, wrapped = degree[shift:], pair[length - shift :]
            for e in range(length - shift):
                later[e] += pair[e]
            for e in range(shift):
                degree[e] += wrapped[e]
        last = channels[c, whole * length : whole * length + half]
        for e in range(half):
            degree[e] += last[e]
            degree[e + half] += last[e]
        for e in range(length):
            scale[e] = ONE / np.sqrt(ONE if degree[e] < ONE else degree[e])
        _copy(scale[:halo], scale[length:])
        for k in range(1, whole + 1):
            pair, shift, edge = channels[c, (k - 1) * length : k * length], k * graphs, edges[k - 1]
            own, there = edge[shift:], scale[shift:]
            for e in range(length):
                own[e] = pair[e] * scale[e] * there[e]
            _copy(edge[length : length + shift], edge)
        if half:
            edge = edges[whole]
            there = scale[half:]
            for e in range(half):
                edge[e] = last[e] * scale[e] * there[e]
            _copy(edge[:half], edge[half:])
        for first in range(0, length, TILE):
            size = min(TILE, length - first)
            own = scale[first : first + size]
            for f in range(features):
                total, row = out[c, f, first : first + size], x[f]
                here = row[first + halo : first + halo + size]
                if half:
                    edge, there = edges[whole, first : first + size], row[first + halo + half :]
                    for e in range(size):
                        total[e] = own[e] * own[e] * here[e] + edge[e] * there[e]
                else:
                    for e in range(size):
                        total[e] = own[e] * own[e] * here[e]
                k = 1
                while k < whole:  # two distances at a time: the sum is loaded and stored less often
                    s, r = k * graphs, (k + 1) * graphs
                    back, forth = edges[k - 1, first:], edges[k - 1, first + s :]
                    back2, forth2 = edges[k, first:], edges[k, first + r :]
                    before, after = row[first + halo - s :], row[first + halo + s :]
                    before2, after2 = row[first + halo - r :], row[first + halo + r :]
                    for e in range(size):
                        total[e] += (back[e] * before[e] + forth[e] * after[e]) + (
                            back2[e] * before2[e] + forth2[e] * after2[e]
                        )
                    k += 2
                if k == whole:
                    s = k * graphs
                    back, forth = edges[k - 1, first:], edges[k - 1, first + s :]
                    before, after = row[first + halo - s :], row[first + halo + s :]
                    for e in range(size):
                        total[e] += back[e] * before[e] + forth[e] * after[e]


@numba.jit(**OPTIONS)
def _scores(query_key, around, graphs, wide, both, out):
    """out[c, pair] = sum over heads of sigmoid(q_i k_j) + sigmoid(q_j k_i), pairs by distance as above.

    `wide` holds the queries and keys of one channel with a halo of N/2 nodes behind.
    """
    _, heads, width, wider = wide.shape
    channels, _, length = around.shape
    nodes = length // graphs
    rows, flat, sums = wide.reshape(2 * heads * width, wider), wide.reshape(wide.size), both.reshape(both.size)
    s, r = both[0], both[1]
    for c in range(channels):
        product.product(query_key[c], around[c], rows)
        for row in rows:
            _copy(row[: wider - length], row[length:])
        out[c] = 0
        for h in range(heads):
            q, k = h * width * wider, (heads + h) * width * wider
            for distance in range(1, nodes // 2 + 1):
                run = length // 2 if 2 * distance == nodes else length
                for first in range(0, run, TILE):
                    size = min(TILE, run - first)
                    place = (distance - 1) * length + first
                    second = first + distance * graphs
                    total = out[c, place : place + size]
                    vectors = -(-size // product.LANES)
                    product.dots(
                        flat, q + first, k + second, q + second, k + first, wider, width, sums, 0, TILE, vectors
                    )
                    for e in range(size):
                        # Both sigmoids over one denominator: one division.
                        u, v = -LOG2_E * s[e], -LOG2_E * r[e]
                        u, v = exp2_low(SAFE if u > SAFE else u), exp2_low(SAFE if v > SAFE else v)
                        total[e] += (ONE + ONE + u + v) / ((ONE + u) * (ONE + v))
