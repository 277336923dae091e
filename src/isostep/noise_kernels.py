"""Compiled helpers of `noise` (Numba, extra `fast`): the integers of Philox4x32-10 and the placing of the normals.

log, sqrt, cos and sin stay with torch and every other operation is exact or rounded once, in the same order as in
`noise`: the numbers are the same bit by bit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

# No fastmath: results must not depend on how the compiler regroups.
OPTIONS: Any = {"nopython": True, "nogil": True, "cache": True, "error_model": "numpy"}
TYPES = {torch.float32: np.float32, torch.float64: np.float64}

LOW, HALF_WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def uniforms(
    key: tuple[int, int], index: Tensor, step: Tensor, number: Tensor, label: Tensor, bits: int, dtype: torch.dtype
) -> Tensor:
    """What `noise._uniforms` returns; index, step (B,); number, label (K,)."""
    out = torch.empty(4, len(index), len(number), dtype=dtype)
    real = TYPES[dtype]
    whole = np.int32(0) if bits < 32 else np.int64(0)  # its type: where an int32 is enough, vectors convert it
    _uniforms(
        np.uint64(key[0]), np.uint64(key[1]), _array(index), _array(step), _array(number), _array(label),
        np.uint64(32 - bits), whole, real(0.5), real(2.0**-bits), out.numpy(),
    )  # fmt: skip
    return out


def place(
    radius: Tensor, cosine: Tensor, sine: Tensor, part: slice, mask: Tensor | None, edges: bool, shape: torch.Size
) -> Tensor:
    """The component of this shape from its blocks `part`: masked, edges at both of their places. `mask` (B, N)."""
    out = radius.new_empty(shape)
    row = np.empty(4 * (part.stop - part.start), TYPES[radius.dtype])
    parts = radius.numpy(), cosine.numpy(), sine.numpy(), part.start, row
    if edges:
        assert mask is not None
        _place_edges(*parts, _array(mask), out.view(*shape[:3], -1).numpy())
    else:
        real = torch.ones(shape[0], 1, dtype=torch.bool) if mask is None else mask
        _place_nodes(*parts, _array(real), out.view(*real.shape, -1).numpy())
    return out


def _array(value: Tensor) -> np.ndarray:
    """Contiguous: a kernel is compiled once per layout."""
    return value.contiguous().numpy()


@numba.jit(**OPTIONS, inline="always")
def _two_rounds(c0, c1, c2, c3, k0, k1):
    p0, p1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
    c0, c1, c2, c3 = (p1 >> HALF_WORD) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF_WORD) ^ c3 ^ k1, p0 & LOW
    k0, k1 = (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW
    p0, p1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
    c0, c1, c2, c3 = (p1 >> HALF_WORD) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF_WORD) ^ c3 ^ k1, p0 & LOW
    return c0, c1, c2, c3, (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW


@numba.jit(**OPTIONS)
def _uniforms(key_0, key_1, index, step, number, label, shift, whole, half, scale, out):
    for b in range(index.shape[0]):
        graph = np.uint64(index[b])
        word_1, word_2 = np.uint64(step[b]) & LOW, graph & LOW
        high = (graph >> HALF_WORD & np.uint64(0xFF)) << np.uint64(24)
        first, second, third, fourth = out[0, b], out[1, b], out[2, b], out[3, b]
        for k in range(number.shape[0]):
            # Ten rounds written out: a loop inside would keep the compiler from making vectors of blocks.
            c0, c1, c2, c3 = np.uint64(number[k]), word_1, word_2, high | np.uint64(label[k])
            c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, key_0, key_1)
            c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
            c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
            c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
            c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
            first[k] = (type(half)(type(whole)(c0 >> shift)) + half) * scale
            second[k] = (type(half)(type(whole)(c2 >> shift)) + half) * scale
            third[k] = (type(half)(type(whole)(c1 >> shift)) + half) * scale
            fourth[k] = (type(half)(type(whole)(c3 >> shift)) + half) * scale


@numba.jit(**OPTIONS, inline="always")
def _normals(r0, r1, cos0, cos1, sin0, sin1, row):
    for k in range(r0.shape[0]):
        row[4 * k] = r0[k] * cos0[k]
        row[4 * k + 1] = r0[k] * sin0[k]
        row[4 * k + 2] = r1[k] * cos1[k]
        row[4 * k + 3] = r1[k] * sin1[k]


@numba.jit(**OPTIONS)
def _read(radius, cosine, sine, first, b, row):
    """The normals of graph b, from block `first` on. (One-dimensional arrays: the compiler makes vectors of these.)"""
    end = first + row.shape[0] // 4
    r, c, s = radius[:, b, first:end], cosine[:, b, first:end], sine[:, b, first:end]
    _normals(r[0], r[1], c[0], c[1], s[0], s[1], row)


@numba.jit(**OPTIONS)
def _place_nodes(radius, cosine, sine, first, row, mask, out):
    graphs, nodes, features = out.shape
    flat = out.reshape(graphs, nodes * features)
    for b in range(graphs):
        _read(radius, cosine, sine, first, b, row)
        for k in range(nodes * features):
            flat[b, k] = row[k]
        for i in range(nodes):
            if not mask[b, i]:
                out[b, i] = 0


@numba.jit(**OPTIONS)
def _place_edges(radius, cosine, sine, first, row, mask, out):
    graphs, nodes, _, channels = out.shape
    for b in range(graphs):
        _read(radius, cosine, sine, first, b, row)
        if not mask[b].all():
            _mask_edges(mask[b], channels, row)
        for c in range(channels):
            edge = 0
            for j in range(nodes):
                out[b, j, j, c] = 0
                for i in range(j):
                    value = row[(edge + i) * channels + c]
                    out[b, j, i, c] = value
                    out[b, i, j, c] = value
                edge += j


@numba.jit(**OPTIONS)
def _mask_edges(mask, channels, row):
    for j in range(mask.shape[0]):
        for i in range(j):
            if not (mask[i] and mask[j]):
                edge = j * (j - 1) // 2 + i
                row[edge * channels : (edge + 1) * channels] = 0
