"""Compiled helpers of `noise` (Numba, extra `fast`): the integers of Philox4x32-10, the placing of the normals, and the
walk along a Brownian tree.

log, sqrt, cos and sin stay with torch and every other operation is exact or rounded once, in the same order as in
`noise`: the numbers are the same bit by bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


@numba.jit(**OPTIONS, inline="always")
def _ten_rounds(c0, c1, c2, c3, k0, k1):
    c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _two_rounds(c0, c1, c2, c3, k0, k1)
    return c0, c1, c2, c3


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
            c0, c1, c2, c3 = _ten_rounds(c0, c1, c2, c3, key_0, key_1)
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
    for b in range(out.shape[0]):
        _read(radius, cosine, sine, first, b, row)
        _write_nodes(row, mask[b], out[b])


@numba.jit(**OPTIONS)
def _place_edges(radius, cosine, sine, first, row, mask, out):
    for b in range(out.shape[0]):
        _read(radius, cosine, sine, first, b, row)
        _write_edges(row, mask[b], out[b])


@numba.jit(**OPTIONS)
def _write_nodes(row, mask, out):
    nodes, features = out.shape
    flat = out.reshape(nodes * features)
    for k in range(nodes * features):
        flat[k] = row[k]
    for i in range(nodes):
        if not mask[i]:
            out[i] = 0


@numba.jit(**OPTIONS)
def _write_edges(row, mask, out):
    nodes, _, channels = out.shape
    if not mask.all():
        _mask_edges(mask, channels, row)
    for c in range(channels):
        edge = 0
        for j in range(nodes):
            out[j, j, c] = 0
            for i in range(j):
                value = row[(edge + i) * channels + c]
                out[j, i, c] = value
                out[i, j, c] = value
            edge += j


@numba.jit(**OPTIONS)
def _mask_edges(mask, channels, row):
    for j in range(mask.shape[0]):
        for i in range(j):
            if not (mask[i] and mask[j]):
                edge = j * (j - 1) // 2 + i
                row[edge * channels : (edge + 1) * channels] = 0


AT_ONCE = 2**15  # blocks of four normals drawn together: they stay in the second cache


class Part(NamedTuple):
    """A component on a walk: its labels for nodes and leaves of the tree, whose mask it has, and its width there."""

    node: int
    leaf: int
    mask: Tensor  # (B, N)
    edges: bool
    width: int


class Walk:
    """Where the graphs of a batch stand on their Brownian paths.

    Blocks stand in one row, graph by graph and component by component: what graphs with one clock do is one long loop.
    `middle` (levels, 4 blocks) holds the values that the halving of [0, 1] has met on the way to each graph's cell:
    0 = W(0), W(1), then the middle of every level. A step draws the levels from the first one that has changed, and the
    last bridge. Entries behind a graph's last real node are left out.
    """

    def __init__(self, index: Tensor, parts: list[Part], depth: int) -> None:
        self.index, self.depth, self.parts = index, depth, parts
        blocks = np.stack([_blocks(_array(part.mask), part.width, part.edges) for part in parts], 1)
        # Blocks of graph b: starts[b, 0] to starts[b + 1, 0]; those of component c from starts[b, c] on.
        self.starts = np.zeros((len(index) + 1, len(parts)), np.int64)
        self.starts.flat[1 : blocks.size + 1] = np.cumsum(blocks)
        self.words = np.empty((4, blocks.sum()), np.uint32)
        _words(_array(index), self.starts, np.array([(part.node, part.leaf) for part in parts]), self.words)
        self.cell, self.time = np.full(len(index), -1), np.full(len(index), np.nan)
        self.middle, self.value = np.zeros((depth + 2, 4 * blocks.sum())), np.zeros(4 * blocks.sum())

    def serves(self, index: Tensor, parts: list[Part]) -> bool:
        """Whether it is about these graphs in this shape."""
        return torch.equal(index, self.index) and all(
            (a.node, a.edges, a.width) == (b.node, b.edges, b.width) and torch.equal(a.mask, b.mask)
            for a, b in zip(parts, self.parts, strict=True)
        )

    def go(self, t: Tensor, scale: Tensor, key: tuple[int, int], polar: Any) -> np.ndarray:
        """Move to the times t; the increments times scale, (4 blocks,). `polar`: Box-Muller on (4, K) uniforms."""
        times, scales, starts = _array(t), _array(scale), np.ascontiguousarray(self.starts[:, 0])
        target, first = _descend(self.cell, self.time, times, self.depth)
        ends = np.cumsum((self.depth + 2 - first) * np.diff(starts))
        out = np.zeros(self.value.shape, np.float32)
        begin, before = 0, 0
        while before < ends[-1]:
            end = max(begin + 1, int(np.searchsorted(ends, before + AT_ONCE, side="right")))
            count = int(ends[end - 1]) - before
            uniform = torch.empty(4, count)
            way = begin, end, starts, times, scales, target, first, self.depth
            _tree_uniforms(np.uint64(key[0]), np.uint64(key[1]), *way, self.words, uniform.numpy())
            radius, cosine, sine = polar(uniform)
            _move(radius.numpy(), cosine.numpy(), sine.numpy(), *way, self.middle, self.value, out)
            begin, before = end, before + count
        self.cell, self.time = target, times.copy()
        return out

    def place(self, increments: np.ndarray, number: int, shape: torch.Size) -> Tensor:
        """Component `number` of the increments, every number at its place."""
        part, out = self.parts[number], torch.empty(shape)
        graphs, nodes = part.mask.shape
        spread = _spread_edges if part.edges else _spread_nodes
        view = out.view(graphs, nodes, nodes, -1) if part.edges else out.view(graphs, nodes, -1)
        spread(increments, self.starts, number, _array(part.mask), view.numpy())
        return out


@numba.jit(**OPTIONS)
def _blocks(mask, width, edges):
    """Blocks of four entries up to the last real node."""
    count = np.empty(mask.shape[0], np.int64)
    for b in range(mask.shape[0]):
        last = 0
        for i in range(mask.shape[1]):
            if mask[b, i]:
                last = i + 1
        count[b] = ((last * (last - 1) // 2 if edges else last) * width + 3) // 4
    return count


@numba.jit(**OPTIONS)
def _descend(cell, time, t, depth):
    """The last cell that holds each t, and the first level that is new; depth + 2: the value stands."""
    target, first, cells = np.empty_like(cell), np.empty_like(cell), 1 << depth
    for b in range(t.shape[0]):
        node = min(max(np.int64(t[b] * cells), 0), cells - 1)
        target[b] = node
        if cell[b] < 0:
            first[b] = 0
        elif time[b] == t[b]:
            first[b] = depth + 2
        elif cell[b] == node:
            first[b] = depth + 1
        else:
            changed, first[b] = cell[b] ^ node, depth + 2
            while changed:
                changed >>= 1
                first[b] -= 1
    return target, first


@numba.jit(**OPTIONS)
def _words(index, starts, labels, words):
    """Counter words 0 and 2 of every block, and word 3 for nodes of the tree and for leaves."""
    graphs, components = index.shape[0], starts.shape[1]
    ends = starts.reshape(starts.size)[1:]
    for b in range(graphs):
        high = (index[b] >> 32 & 0xFF) << 24
        for c in range(components):
            begin, end = starts[b, c], ends[b * components + c]
            for k in range(begin, end):
                words[0, k] = k - begin
                words[1, k] = index[b] & 0xFFFFFFFF
                words[2, k] = high | labels[c, 0]
                words[3, k] = high | labels[c, 1]


@numba.jit(**OPTIONS)
def _together(t, scale, first, b, end):
    """The end of the run of graphs from b on that do the same."""
    last = b + 1
    while last < end and t[last] == t[b] and scale[last] == scale[b] and first[last] == first[b]:
        last += 1
    return last


@numba.jit(**OPTIONS)
def _tree_uniforms(key_0, key_1, begin, end, starts, t, scale, target, first, depth, words, out):
    """The numbers of each run of graphs: of the levels from `first` on (0: W(1)), then of the leaf."""
    counters = np.empty((4, out.shape[1]), np.uint32)
    item, b = 0, begin
    while b < end:
        last = _together(t, scale, first, b, end)
        low, high = starts[b], starts[last]
        for level in range(first[b], depth + 2):
            leaf = level == depth + 1
            node = 0 if level == 0 else (1 << (level - 1)) + (target[b] >> (depth - level + 1))
            step = np.int64(t[b] * 4294967296.0) if leaf else node
            here = counters[:, item : item + high - low]
            here[0] = words[0, low:high]
            here[1] = np.uint32(step & 0xFFFFFFFF)
            here[2] = words[1, low:high]
            here[3] = words[3 if leaf else 2, low:high]
            item += high - low
        b = last
    _flat_uniforms(key_0, key_1, counters[0], counters[1], counters[2], counters[3], out[0], out[1], out[2], out[3])


@numba.jit(**OPTIONS)
def _flat_uniforms(key_0, key_1, a0, a1, a2, a3, first, second, third, fourth):
    half, scale, shift = np.float32(0.5), np.float32(2.0**-24), np.uint64(8)
    for k in range(a0.shape[0]):
        c0, c1, c2, c3 = np.uint64(a0[k]), np.uint64(a1[k]), np.uint64(a2[k]), np.uint64(a3[k])
        c0, c1, c2, c3 = _ten_rounds(c0, c1, c2, c3, key_0, key_1)
        first[k] = (np.float32(np.int32(c0 >> shift)) + half) * scale
        second[k] = (np.float32(np.int32(c2 >> shift)) + half) * scale
        third[k] = (np.float32(np.int32(c1 >> shift)) + half) * scale
        fourth[k] = (np.float32(np.int32(c3 >> shift)) + half) * scale


@numba.jit(**OPTIONS)
def _move(radius, cosine, sine, begin, end, starts, t, scale, target, first, depth, middle, value, out):
    """Each graph to its time: new middles, the value at t, and the increment times scale."""
    z = np.empty(4 * radius.shape[1], np.float32)
    _normals(radius[0], radius[1], cosine[0], cosine[1], sine[0], sine[1], z)
    item, b = 0, begin
    while b < end:
        last = _together(t, scale, first, b, end)
        low, high, levels = 4 * starts[b], 4 * starts[last], depth + 2 - first[b]
        if levels:
            normals = z[item : item + levels * (high - low)].reshape((levels, high - low))
            left, right, before, width = 0, 1, 0.0, 1.0
            if first[b] == 0:
                middle[1, low:high] = normals[0]
            for level in range(1, depth + 1):
                if level >= first[b]:
                    start, stop = middle[left, low:high], middle[right, low:high]
                    _halve(start, stop, normals[level - first[b]], np.sqrt(width), middle[level + 1, low:high])
                width /= 2
                if target[b] >> (depth - level) & 1:
                    left, before = level + 1, before + width
                else:
                    right = level + 1
            u = min(max((t[b] - before) / width, 0.0), 1.0)
            _bridge(
                middle[left, low:high], middle[right, low:high], normals[-1], u, np.sqrt(width * u * (1 - u)),
                scale[b], value[low:high], out[low:high],
            )  # fmt: skip
        item += levels * (high - low)
        b = last


@numba.jit(**OPTIONS)
def _halve(left, right, z, root, out):
    for k in range(z.shape[0]):
        out[k] = (left[k] + right[k]) / 2 + np.float64(z[k]) * root / 2


@numba.jit(**OPTIONS)
def _bridge(left, right, z, u, spread, scale, value, out):
    """Between two points as torch.lerp has it."""
    upper = u >= 0.5
    weight = 1 - u if upper else u
    for k in range(z.shape[0]):
        a, b = left[k], right[k]
        ahead = (b - a) * weight
        new = (b - ahead if upper else a + ahead) + np.float64(z[k]) * spread
        out[k] = (new - value[k]) * scale
        value[k] = new


@numba.jit(**OPTIONS)
def _spread_nodes(increments, starts, component, mask, out):
    row = np.zeros(out.shape[1] * out.shape[2] + 3, np.float32)
    ends = starts.reshape(starts.size)[1:]
    for b in range(out.shape[0]):
        begin, end = 4 * starts[b, component], 4 * ends[b * starts.shape[1] + component]
        row[: end - begin] = increments[begin:end]
        _write_nodes(row, mask[b], out[b])


@numba.jit(**OPTIONS)
def _spread_edges(increments, starts, component, mask, out):
    row = np.zeros(out.shape[1] * (out.shape[1] - 1) // 2 * out.shape[3] + 3, np.float32)
    ends = starts.reshape(starts.size)[1:]
    for b in range(out.shape[0]):
        begin, end = 4 * starts[b, component], 4 * ends[b * starts.shape[1] + component]
        row[: end - begin] = increments[begin:end]
        _write_edges(row, mask[b], out[b])
