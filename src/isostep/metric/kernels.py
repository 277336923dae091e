"""Compiled helpers of the metrics (Numba, extra `fast`): the part of an LSTM step that is not a matrix product, in one
pass; nearest neighbours among packed bits."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from isostep.network.arithmetic import LOG2_E, ONE, OPTIONS, exp2

TWO = np.float32(2)
ALL = np.uint64(2**64 - 1)


@numba.jit(**OPTIONS)
def gates(product, drive, cell, hidden):
    """`product` (B, 4 H) = state times onward weights; `drive` (B or 1, 4 H); `cell` and `hidden` (B, H) move on."""
    for b in range(cell.shape[0]):
        _row(product[b], drive[b if drive.shape[0] > 1 else 0], cell[b], hidden[b])


@numba.jit(**OPTIONS)
def _row(product, drive, cell, hidden):
    width = cell.shape[0]
    p0, p1, p2, p3 = product[:width], product[width : 2 * width], product[2 * width : 3 * width], product[3 * width :]
    d0, d1, d2, d3 = drive[:width], drive[width : 2 * width], drive[2 * width : 3 * width], drive[3 * width :]
    for k in range(width):
        into, keep, new = p0[k] + d0[k], p1[k] + d1[k], p2[k] + d2[k]
        cell[k] = cell[k] * _sigmoid(keep) + _sigmoid(into) * _tanh(new)
    for k in range(width):
        hidden[k] = _sigmoid(p3[k] + d3[k]) * _tanh(cell[k])


@numba.jit(**OPTIONS, inline="always")
def _sigmoid(x):
    return ONE / (ONE + exp2(-LOG2_E * x))


@numba.jit(**OPTIONS, inline="always")
def _tanh(x):
    return ONE - TWO / (ONE + exp2(TWO * LOG2_E * x))


def _typed_ones(typing_context, word):
    """How many bits of a word are set."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_ones: Any = intrinsic(_typed_ones)


@numba.jit(**OPTIONS)
def nearest(a, b, best):
    """`best` (A,): the highest Tanimoto similarity of each row of `a` (A, words) to a column of `b` (words, B)."""
    words, many = b.shape
    both, size = np.empty(many, np.uint64), np.zeros(many, np.uint64)
    for w in range(words):
        _add_ones(b[w], ALL, size)
    for i in range(a.shape[0]):
        own = np.uint64(0)
        both[:] = 0
        for w in range(words):
            own += _ones(a[i, w])
            _add_ones(b[w], a[i, w], both)
        top = np.float32(0)
        for j in range(many):
            either = own + size[j] - both[j]
            similarity = np.float32(np.int64(both[j])) / np.float32(max(np.int64(either), 1))
            top = similarity if similarity > top else top
        best[i] = top


@numba.jit(**OPTIONS)
def _add_ones(column, word, total):
    for j in range(column.shape[0]):
        total[j] += _ones(column[j] & word)
