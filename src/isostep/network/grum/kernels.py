"""The parts of `fast_grum` that are not matrix products, each one pass through memory; features fill the vectors.

Same arguments and results as `fast_grum.TorchOps`.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from isostep.network.arithmetic import ONE, OPTIONS, exp2
from isostep.network.grum.fast import Block, Layer, Nodes, Norm, TorchOps, part_of

ZERO = np.float32(0)
LOWEST = np.float32(-np.inf)


class NumbaOps(TorchOps):
    block = 333_000

    def pool(self, rows: Tensor, padded: Tensor, count: int) -> Tensor:
        out = rows.new_empty(len(rows), 4, rows.shape[-1])
        _pool(rows.numpy(), padded.numpy(), count, out.numpy())
        return out.flatten(1)

    def attend(self, both: Tensor, nodes: Nodes, layer: Layer, padding: int, out: Tensor) -> None:
        arrays = (part.numpy() for part in (nodes.qkv, nodes.film, layer.mul_bias, layer.absent, out))
        _attend(both.numpy(), nodes.first, nodes.end, padding, *arrays)

    def finish(self, pairs: Tensor, block: Block, shift: Tensor, scratch: Tensor) -> None:
        _norm_(pairs, block.first_norm, shift)
        inner = torch.mm(pairs, block.up.weight, out=part_of(scratch, pairs, block.up.weight))
        _relu(inner.numpy(), block.up.bias.numpy())
        _norm_(pairs.addmm_(inner, block.down), block.second_norm, torch.zeros_like(shift[:1]))


def _norm_(rows: Tensor, norm: Norm, shift: Tensor) -> None:
    _norm(rows.numpy(), shift.numpy(), norm.weight.numpy(), norm.bias.numpy(), np.float32(norm.eps))


@numba.jit(**OPTIONS)
def _attend(both, start, end, padding, qkv, film, mul_bias, absent, out):
    graphs, n, width = out.shape
    tops = np.empty((2, width), np.float32)  # two in turn: a maximum in place would become branches, not vectors
    total = np.empty(width, np.float32)
    many = np.float32(padding)
    for g in range(graphs):
        for i in range(start, end):
            first = (g * (end - start) + i - start) * n
            for f in range(width):
                tops[0, f] = absent[f] if padding > 0 else LOWEST
            for j in range(n):
                _weights(both[first + j], qkv[g, i], qkv[g, j], mul_bias, tops[j % 2], tops[1 - j % 2])
            top, reached = tops[n % 2], out[g, i]
            for f in range(width):
                total[f] = many * exp2(absent[f] - top[f])
                reached[f] = ZERO
            for j in range(n):
                _shares(both[first + j], top, qkv[g, j], total, reached)
            for j in range(n):
                pair = both[first + j]
                for f in range(width):
                    pair[f] *= film[g, f]
            for f in range(width):
                reached[f] /= total[f]


@numba.jit(**OPTIONS)
def _weights(pair, one, other, mul_bias, before, top):
    width = len(top)
    for f in range(width):
        weight = (pair[f] + mul_bias[f]) * one[f] * other[width + f] + pair[width + f]
        pair[f] = weight
        most = before[f]
        top[f] = weight if weight > most else most


@numba.jit(**OPTIONS)
def _shares(pair, top, node, total, reached):
    width = len(top)
    for f in range(width):
        share = exp2(pair[f] - top[f])
        total[f] += share
        reached[f] += share * node[2 * width + f]


@numba.jit(**OPTIONS)
def _norm(rows, shift, weight, bias, eps):
    count, width = rows.shape
    each = count // shift.shape[0]
    share = ONE / np.float32(width)
    for r in range(count):
        row, more = rows[r], shift[r // each]
        mean = ZERO
        for f in range(width):
            row[f] += more[f]
            mean += row[f]
        mean *= share
        squares = ZERO
        for f in range(width):
            d = row[f] - mean
            squares += d * d
        scale = ONE / np.sqrt(squares * share + eps)
        for f in range(width):
            row[f] = (row[f] - mean) * scale * weight[f] + bias[f]


@numba.jit(**OPTIONS)
def _relu(h, bias):
    for r in range(h.shape[0]):
        row = h[r]
        for f in range(h.shape[1]):
            x = row[f] + bias[f]
            row[f] = ZERO if x < ZERO else x


@numba.jit(**OPTIONS)
def _pool(rows, padded, count, out):
    graphs, length, width = rows.shape
    ends = np.empty((2, 2, width), np.float32)
    many, total = np.float32(count), np.float32(length + count)
    rest = np.float32(max(length + count - 1, 1))
    for g in range(graphs):
        mean, std = out[g, 0], out[g, 3]
        for f in range(width):
            start = padded[f] if count > 0 else rows[g, 0, f]
            mean[f] = many * padded[f]
            ends[0, 0, f] = start
            ends[0, 1, f] = start
        for r in range(length):
            row, before, after = rows[g, r], ends[r % 2], ends[1 - r % 2]
            for f in range(width):
                mean[f] += row[f]
            for f in range(width):
                x, least, most = row[f], before[0, f], before[1, f]
                after[0, f] = x if x < least else least
                after[1, f] = x if x > most else most
        for f in range(width):
            mean[f] /= total
            d = padded[f] - mean[f]
            std[f] = many * d * d
            out[g, 1, f] = ends[length % 2, 0, f]
            out[g, 2, f] = ends[length % 2, 1, f]
        for r in range(length):
            row = rows[g, r]
            for f in range(width):
                d = row[f] - mean[f]
                std[f] += d * d
        for f in range(width):
            std[f] = np.sqrt(std[f] / rest)
