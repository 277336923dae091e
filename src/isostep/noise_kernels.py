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


def uniforms(key: tuple[int, int], index: Tensor, step: Tensor, label: int, blocks: int, dtype: torch.dtype) -> Tensor:
    """(4, B, blocks): words 0, 2, 1, 3 of every block as numbers in (0, 1); see `noise._to_unit`."""
    out = torch.empty(4, len(index), blocks, dtype=dtype)
    number = TYPES[dtype]
    bits = 32 if dtype == torch.float64 else 24
    _uniforms(
        np.uint64(key[0]), np.uint64(key[1]), _array(index), _array(step), np.uint64(label),
        np.uint64(32 - bits), number(0.5), number(2.0**-bits), out.numpy(),
    )  # fmt: skip
    return out


def place(radius: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor | None, edges: bool, shape: torch.Size) -> Tensor:
    """The component of this shape from its normals: masked, edges at both of their places. `mask` (B, N)."""
    out = radius.new_empty(shape)
    row = np.empty(4 * radius.shape[2], TYPES[radius.dtype])
    parts = radius.numpy(), cosine.numpy(), sine.numpy(), row
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


@numba.jit(**OPTIONS)
def _uniforms(key_0, key_1, index, step, label, shift, half, scale, out):
    blocks = out.shape[2]
    for b in range(index.shape[0]):
        graph = np.uint64(index[b])
        word_1, word_2 = np.uint64(step[b]) & LOW, graph & LOW
        word_3 = ((graph >> HALF_WORD & np.uint64(0xFF)) << np.uint64(24)) | label
        for k in range(blocks):
            c0, c1, c2, c3 = np.uint64(k), word_1, word_2, word_3
            k0, k1 = key_0, key_1
            for _ in range(10):
                p0, p1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
                c0, c2 = (p1 >> HALF_WORD) ^ c1 ^ k0, (p0 >> HALF_WORD) ^ c3 ^ k1
                c1, c3 = p1 & LOW, p0 & LOW
                k0, k1 = (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW
            out[0, b, k] = (type(half)(np.int64(c0 >> shift)) + half) * scale
            out[1, b, k] = (type(half)(np.int64(c2 >> shift)) + half) * scale
            out[2, b, k] = (type(half)(np.int64(c1 >> shift)) + half) * scale
            out[3, b, k] = (type(half)(np.int64(c3 >> shift)) + half) * scale


@numba.jit(**OPTIONS)
def _normals(radius, cosine, sine, b, row):
    """The normals of graph b."""
    for k in range(radius.shape[2]):
        row[4 * k] = radius[0, b, k] * cosine[0, b, k]
        row[4 * k + 1] = radius[0, b, k] * sine[0, b, k]
        row[4 * k + 2] = radius[1, b, k] * cosine[1, b, k]
        row[4 * k + 3] = radius[1, b, k] * sine[1, b, k]


@numba.jit(**OPTIONS)
def _place_nodes(radius, cosine, sine, row, mask, out):
    graphs, nodes, features = out.shape
    zero = row.dtype.type(0)
    for b in range(graphs):
        _normals(radius, cosine, sine, b, row)
        for i in range(nodes):
            for f in range(features):
                out[b, i, f] = row[i * features + f] if mask[b, i] else zero


@numba.jit(**OPTIONS)
def _place_edges(radius, cosine, sine, row, mask, out):
    graphs, nodes, _, channels = out.shape
    zero = row.dtype.type(0)
    for b in range(graphs):
        _normals(radius, cosine, sine, b, row)
        entry = 0
        for j in range(nodes):
            for c in range(channels):
                out[b, j, j, c] = 0
            for i in range(j):
                real = mask[b, i] & mask[b, j]
                for c in range(channels):
                    value = row[entry + c] if real else zero
                    out[b, i, j, c] = value
                    out[b, j, i, c] = value
                entry += channels
