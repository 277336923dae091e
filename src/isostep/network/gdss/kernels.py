"""The parts of `fast_gdss` that are not matrix products, fused; pairs of one distance and all graphs are one long run.

Same arguments and results as `fast_gdss.TorchOps`.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from isostep.network.arithmetic import LOG2_E, ONE, OPTIONS, exp2
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

    def scores(self, query_key: Tensor, out: Tensor) -> None:
        *_, width, nodes, graphs = query_key.shape
        wide = out.new_empty(2, width, (nodes + nodes // 2) * graphs)
        both = out.new_empty(2, TILE)
        _scores(query_key.flatten(4).numpy(), graphs, wide.numpy(), both.numpy(), out.flatten(1).numpy())

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
            for e in range(length - shift):
                degree[e + shift] += pair[e]
            for e in range(shift):
                degree[e] += pair[length - shift + e]
        last = channels[c, whole * length : whole * length + half]
        for e in range(half):
            degree[e] += last[e]
            degree[e + half] += last[e]
        for e in range(length):
            scale[e] = ONE / np.sqrt(ONE if degree[e] < ONE else degree[e])
        for e in range(halo):
            scale[length + e] = scale[e]
        for k in range(1, whole + 1):
            pair, shift, edge = channels[c, (k - 1) * length : k * length], k * graphs, edges[k - 1]
            for e in range(length):
                edge[shift + e] = pair[e] * scale[e] * scale[e + shift]
            for e in range(shift):
                edge[e] = edge[length + e]
        if half:
            edge = edges[whole]
            for e in range(half):
                edge[e] = last[e] * scale[e] * scale[e + half]
                edge[e + half] = edge[e]
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
def _scores(query_key, graphs, wide, both, out):
    """out[c, pair] = sum over heads of sigmoid(q_i k_j) + sigmoid(q_j k_i), pairs by distance as above.

    `wide` holds the queries and keys of one head with a halo of N/2 nodes behind.
    """
    channels, _, heads, width, length = query_key.shape
    nodes = length // graphs
    for c in range(channels):
        out[c] = 0
        for h in range(heads):
            for side in range(2):
                for w in range(width):
                    narrow, wider = query_key[c, side, h, w], wide[side, w]
                    for e in range(length):
                        wider[e] = narrow[e]
                    for e in range(wide.shape[2] - length):
                        wider[length + e] = narrow[e]
            q, k = wide[0], wide[1]
            for distance in range(1, nodes // 2 + 1):
                run = length // 2 if 2 * distance == nodes else length
                for first in range(0, run, TILE):
                    size = min(TILE, run - first)
                    place = (distance - 1) * length + first
                    second = first + distance * graphs
                    total = out[c, place : place + size]
                    s, r = both[0], both[1]
                    for e in range(size):
                        s[e] = 0
                        r[e] = 0
                    for w in range(width):  # few arrays in a loop: the compiler must rule out that they overlap
                        qi, kj = q[w, first : first + size], k[w, second : second + size]
                        for e in range(size):
                            s[e] += qi[e] * kj[e]
                        qj, ki = q[w, second : second + size], k[w, first : first + size]
                        for e in range(size):
                            r[e] += qj[e] * ki[e]
                    for e in range(size):
                        # Both sigmoids over one denominator: one division.
                        u, v = -LOG2_E * s[e], -LOG2_E * r[e]
                        u, v = exp2(SAFE if u > SAFE else u), exp2(SAFE if v > SAFE else v)
                        total[e] += (ONE + ONE + u + v) / ((ONE + u) * (ONE + v))
