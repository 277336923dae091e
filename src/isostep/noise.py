"""Gaussian noise as an argument. A number depends on (seed, graph index, step, stream, component, entry) and on nothing
else: not on the batch, its padding, the device or the number of workers.

Counter-based: Philox4x32-10 (Salmon et al. 2011) on tensors, key = seed, counter = (block, step, graph, component and
stream), then Box-Muller. An edge i < j has entry j (j - 1) / 2 + i and a node feature i F + f, so that padding does not
move them; edge noise is mirrored. `BrownianTree` answers by time interval instead of by step: any grid, nested or not,
and any rejected step, sees one and the same Brownian path.

`noise_kernels` (Numba, extra `fast`) does the integer part and the placing of the numbers faster, bit by bit the same.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.state import GraphState, Kind, expand

# Streams of one step. Independent uses of noise in a step must have different numbers.
PREDICTOR, CORRECTOR, FIRST_HALF, SECOND_HALF, PRIOR, SIZES, LEAF, LOOK, VARY = range(9)  # the last two: training

MOST_AT_ONCE = 2**22  # numbers of a Brownian tree drawn in one call: bounds the temporaries
MOST_THREADS = 4  # beyond, torch on all of them is faster than compiled helpers on one

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


class Draw(NamedTuple):
    """Whose noise: graph indices and step counters, (B,) int64, and the step's interval, (B,) float64."""

    index: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]: tuple.index is not used
    step: Tensor
    t0: Tensor
    t1: Tensor


class Noise(Protocol):
    """Standard normal noise for every component of a state, masked; edges symmetric."""

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class PhiloxNoise:
    """Independent noise per (seed, graph, step, stream)."""

    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        names: dict[torch.dtype, list[str]] = {}
        for name, x in like.components.items():
            names.setdefault(_working_type(x), []).append(name)
        placed: dict[str, Tensor] = {}
        for dtype, together in names.items():
            blocks = _blocks_of(like, tuple(together))
            polar = _polar(_uniforms(self.seed, draw, stream, blocks, dtype))
            placed |= {name: _place(polar, part, name, like) for name, part in blocks.parts.items()}
        return {name: placed[name] for name in like.components}


@dataclass(frozen=True)
class ZeroNoise:
    """No noise: the solver's deterministic part."""

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        return {name: torch.zeros_like(x) for name, x in like.components.items()}


@dataclass(frozen=True)
class RecordedNoise:
    """Given tensors: `pattern(like, draw, stream)` for every call."""

    pattern: Callable[[GraphState, Draw, int], Mapping[str, Tensor]]

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        return {n: like.project(n, z.expand(like[n].shape)) for n, z in self.pattern(like, draw, stream).items()}


class _Last(NamedTuple):
    """The last point read, for the graphs `index`: nodes (L, B) and their normals (L, B, entries), W (B, entries)."""

    index: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]: tuple.index is not used
    t: Tensor
    nodes: Tensor
    normals: Tensor
    w: Tensor


@dataclass(frozen=True)
class BrownianTree:
    """One Brownian path per graph, read at any times: z = (W(t1) - W(t0)) / sqrt(t1 - t0).

    W is built by halving [0, 1] `depth` times; inside the last cell a point is drawn from the bridge between the cell's
    ends, keyed by its time. The law of a step is exact once it crosses a cell boundary, so keep steps above 2^-depth.
    Times that are measured on the way are whole cells (`loop.integrate`): there a path does not depend on their last
    digits. Corrector noise is not an increment of the path and comes from `PhiloxNoise`.

    Steps go on where the last one ended: W(t1) of a step is W(t0) of the next, and of the normals on the way down to t
    only those are drawn anew whose node has changed, about five of fifteen for steps of 1/1000.
    """

    seed: int = 0
    depth: int = 14
    _last: dict[str, _Last] = field(default_factory=dict[str, _Last], init=False, repr=False, compare=False)
    _walks: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not 1 <= self.depth <= 30:
            raise InputError(f"depth of a Brownian tree must be between 1 and 30, got {self.depth}")

    @property
    def cell(self) -> float:
        """Length of the last interval."""
        return 2.0**-self.depth

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        if stream != PREDICTOR:
            return PhiloxNoise(self.seed).normal(like, draw, stream)
        scale = (draw.t1 - draw.t0).clamp_min(1e-300).rsqrt()
        out: dict[str, Tensor] = {}
        kernels = _compiled(like.device)
        if kernels is not None and all(x.dtype == torch.float32 for x in like.components.values()):
            return self._walk(kernels, like, draw, scale)
        for name, x in like.components.items():
            start, end = (self._path(like, draw, name, t) for t in (draw.t0, draw.t1))
            z = ((end - start) * expand(scale, end)).to(x.dtype)
            out[name] = like.project(name, _spread(z, like.kinds[name], x))
        return out

    def _walk(self, kernels: Any, like: GraphState, draw: Draw, scale: Tensor) -> dict[str, Tensor]:
        """The same numbers, compiled; what lies above W in the tree is kept for the next step."""
        parts: list[Any] = []
        for name, x in like.components.items():
            kind, labels = like.kinds[name], (_label(name, PREDICTOR), _label(name, LEAF))
            mask = torch.ones(like.batch, 1, dtype=torch.bool) if kind == "graph" else like.mask
            width = x.shape[mask.ndim + (kind == "edge") - (kind == "graph") :].numel()
            parts.append(kernels.Part(*labels, mask, kind == "edge", width))
        names = tuple(like.components)
        walk = self._walks.get(names)
        if walk is None or not walk.serves(draw.index, parts):
            walk = self._walks[names] = kernels.Walk(draw.index, parts, self.depth)
        walk.go(draw.t0, scale, _key(self.seed), _polar)
        increments = walk.go(draw.t1, scale, _key(self.seed), _polar)
        return {name: like.centre(name, walk.place(increments, k, like[name].shape)) for k, name in enumerate(names)}

    def _path(self, like: GraphState, draw: Draw, name: str, t: Tensor) -> Tensor:
        """W(t), (B, entries), by descending to the cell that holds t."""
        last = self._known(like, draw, name)
        if last is not None and torch.equal(last.t, t):
            return last.w
        nodes, uppers, low = self._way(t)
        normals = self._normals(like, draw, name, nodes, last)
        left, right, width = torch.zeros_like(normals[0], dtype=t.dtype), normals[0].to(t.dtype), 1.0
        for z, upper in zip(normals[1:], uppers, strict=True):
            middle = (left + right) / 2 + z.to(t.dtype) * math.sqrt(width) / 2
            width /= 2
            left, right = torch.where(upper[:, None], middle, left), torch.where(upper[:, None], right, middle)
        u = ((t - low) / width).clamp(0, 1)[:, None]
        leaf = _entries(self.seed, draw._replace(step=(t * 2**32).long()), LEAF, like, name).to(t.dtype)
        value = torch.lerp(left, right, u) + leaf * (width * u * (1 - u)).sqrt()
        self._last[name] = _Last(draw.index, t, nodes, normals, value)
        return value

    def _known(self, like: GraphState, draw: Draw, name: str) -> _Last | None:
        """What is kept, if it is about these graphs in this shape and type."""
        last, x = self._last.get(name), like[name]
        if last is None or (last.normals.dtype, last.w.device) != (x.dtype, x.device):
            return None
        same = last.w.shape[1] == _entry_count(like.kinds[name], x.shape) and torch.equal(last.index, draw.index)
        return last if same else None

    def _way(self, t: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Node numbers (L, B) from the top down, which half was taken at each, and the start of the last cell."""
        node = torch.zeros(len(t), dtype=torch.int64, device=t.device)
        nodes: list[Tensor] = [node]
        uppers: list[Tensor] = []
        node, low, width = node + 1, torch.zeros_like(t), 1.0
        for _ in range(self.depth):
            nodes.append(node)
            width /= 2
            upper = t >= low + width
            uppers.append(upper)
            low = torch.where(upper, low + width, low)
            node = 2 * node + upper
        return torch.stack(nodes), uppers, low

    def _normals(self, like: GraphState, draw: Draw, name: str, nodes: Tensor, last: _Last | None) -> Tensor:
        """(L, B, entries) normals of the nodes, drawn by node number in place of a step; unchanged levels are kept."""
        entries = _entry_count(like.kinds[name], like[name].shape)
        if last is None:
            normals = torch.empty(*nodes.shape, entries, dtype=like[name].dtype, device=like.device)
            new = torch.arange(len(nodes), device=nodes.device)
        else:
            normals, new = last.normals.clone(), (nodes != last.nodes).any(1).nonzero()[:, 0]
        for levels in torch.split(new, max(1, MOST_AT_ONCE // max(1, nodes.shape[1] * entries))):
            there = draw._replace(index=draw.index.repeat(len(levels)), step=nodes[levels].flatten())
            normals[levels] = _entries(self.seed, there, PREDICTOR, like, name).view(len(levels), *normals.shape[1:])
        return normals


def standard_normal(like: GraphState, seed: int = 0, index: Tensor | None = None) -> GraphState:
    """The graphs of `like` with standard normal values: where a sample starts. `index` names them (default 0..B-1)."""
    index = torch.arange(like.batch) if index is None else index
    index = index.to(like.device, torch.int64)
    zero = torch.zeros_like(index)
    return like.replace(PhiloxNoise(seed).normal(like, Draw(index, zero, zero, zero), PRIOR))


def uniform(seed: int, index: Tensor, stream: int) -> Tensor:
    """One uniform number in (0, 1) per graph, float64, independent of all other streams."""
    zeros = torch.zeros_like(index)[:, None]
    words = philox(_key(seed), (zeros, zeros, *_graph_words(index[:, None], _label("", stream))))
    return (words[0][:, 0].double() + 0.5) * 2.0**-32


def check_seed(seed: Any) -> None:
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InputError(f"seed must be a whole number from 0 to 2^64 - 1, got {seed!r}")


def philox(key: tuple[int, int], counter: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10: four int64 tensors holding 32-bit words in, four such tensors out."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # int64 products wrap around modulo 2^64; the mask turns the arithmetic shift into a logical one.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (p1 >> 32 & _LOW) ^ c1 ^ k0, (p0 >> 32 & _LOW) ^ c3 ^ k1
        c1, c3 = p1 & _LOW, p0 & _LOW
        k0, k1 = k0 + _WEYL[0] & _LOW, k1 + _WEYL[1] & _LOW
    return c0, c1, c2, c3


def _key(seed: int) -> tuple[int, int]:
    return seed & _LOW, seed >> 32


def _label(name: str, stream: int) -> int:
    """24 bits for the stream and the component's name."""
    return stream << 20 ^ (zlib.crc32(name.encode()) & 0xFFFFF)


def _graph_words(index: Tensor, label: Tensor | int) -> tuple[Tensor, Tensor]:
    """Counter words 2 and 3: the graph's low 32 bits; its next 8 bits with the label."""
    return index & _LOW, (index >> 32 & 0xFF) << 24 | label


def _compiled(device: torch.device) -> Any:
    """`noise_kernels` where it is installed and pays (see `isostep.network.fast` for the environment), else None."""
    wanted = os.environ.get("ISOSTEP_BACKEND", "auto")
    if device.type != "cpu" or not (
        wanted == "numba" or (wanted == "auto" and torch.get_num_threads() <= MOST_THREADS)
    ):
        return None
    return _kernels()


@lru_cache(maxsize=1)
def _kernels() -> Any:
    try:
        from isostep import noise_kernels
    except ImportError:
        return None
    return noise_kernels


def _working_type(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


class Blocks(NamedTuple):
    """The counters of some components, one component after the other; each block gives four numbers."""

    number: Tensor  # (K,) within its component
    label: Tensor  # (K,) the component's, without the stream
    parts: dict[str, slice]


def _blocks_of(like: GraphState, names: tuple[str, ...]) -> Blocks:
    return _blocks(names, tuple(_entry_count(like.kinds[n], like[n].shape) for n in names), like.device)


@lru_cache(maxsize=64)
def _blocks(names: tuple[str, ...], entries: tuple[int, ...], device: torch.device) -> Blocks:
    sizes = [-(-count // 4) for count in entries]
    ends = list(itertools.accumulate(sizes))
    columns = list(zip(names, sizes, ends, strict=True))
    return Blocks(
        number=torch.cat([torch.arange(size, device=device) for size in sizes]),
        label=torch.cat([torch.full((size,), _label(name, 0), device=device) for name, size, _ in columns]),
        parts={name: slice(end - size, end) for name, size, end in columns},
    )


def _uniforms(seed: int, draw: Draw, stream: int, blocks: Blocks, dtype: torch.dtype) -> Tensor:
    """(4, B, K) numbers in (0, 1): words 0 and 2 of every block, for radii, then 1 and 3, for angles.

    float32 uses 24 bits of a word, float64 all 32.
    """
    label, bits = blocks.label ^ _label("", stream), 32 if dtype == torch.float64 else 24
    kernels = _compiled(label.device)
    if kernels is not None:
        return kernels.uniforms(_key(seed), draw.index, draw.step, blocks.number, label, bits, dtype)
    counter = (blocks.number[None], (draw.step & _LOW)[:, None], *_graph_words(draw.index[:, None], label[None]))
    w0, w1, w2, w3 = philox(_key(seed), counter)
    return (torch.stack((w0, w2, w1, w3)) >> 32 - bits).to(dtype).add_(0.5).mul_(2.0**-bits)


class Polar(NamedTuple):
    """Box-Muller's: block k holds the normals r0 cos0, r0 sin0, r1 cos1, r1 sin1; each (2, B, K)."""

    radius: Tensor
    cosine: Tensor
    sine: Tensor


def _polar(uniform: Tensor) -> Polar:
    """From (4, B, K) uniform numbers, which are used up."""
    radius, angle = uniform[:2].log_().mul_(-2).sqrt_(), uniform[2:].mul_(2 * math.pi)
    return Polar(radius, angle.cos(), angle.sin())


def _normals_of(polar: Polar, part: slice, count: int) -> Tensor:
    """(B, count)."""
    radius, cosine, sine = (each[:, :, part] for each in polar)
    even, odd = (radius * cosine).unbind(), (radius * sine).unbind()
    return torch.stack((even[0], odd[0], even[1], odd[1]), -1).flatten(1)[:, :count]


def _entries(seed: int, draw: Draw, stream: int, like: GraphState, name: str) -> Tensor:
    """(B, entries) standard normals of a component; B is that of `draw`."""
    x, blocks = like[name], _blocks_of(like, (name,))
    polar = _polar(_uniforms(seed, draw, stream, blocks, _working_type(x)))
    return _normals_of(polar, blocks.parts[name], _entry_count(like.kinds[name], x.shape)).to(x.dtype)


def _place(polar: Polar, part: slice, name: str, like: GraphState) -> Tensor:
    """A component's noise: every number at its place, zero elsewhere."""
    x, kind = like[name], like.kinds[name]
    kernels = _compiled(like.device)
    if kernels is not None:
        mask = None if kind == "graph" else like.mask
        return like.centre(name, kernels.place(*polar, part, mask, kind == "edge", x.shape).to(x.dtype))
    normals = _normals_of(polar, part, _entry_count(kind, x.shape)).to(x.dtype)
    return like.project(name, _spread(normals, kind, x))


def _entry_count(kind: Kind, shape: torch.Size) -> int:
    if kind != "edge":
        return shape[1:].numel()
    return shape[1] * (shape[1] - 1) // 2 * shape[3:].numel()


def _spread(entries: Tensor, kind: Kind, x: Tensor) -> Tensor:
    """(B, entries) to the component's shape; an edge's number stands at (i, j) and (j, i)."""
    if kind != "edge":
        return entries.view(x.shape)
    if x.shape[1] < 2:
        return torch.zeros_like(x)  # one node has no edges
    channels = x.shape[3:].numel()
    per_edge = entries.view(len(entries), -1, channels)
    return per_edge[:, _edge_numbers(x.shape[1], x.device)].view(x.shape)


@lru_cache(maxsize=64)
def _edge_numbers(nodes: int, device: torch.device) -> Tensor:
    """(N * N,) which edge entry stands at each place; the diagonal gets 0 and is masked afterwards."""
    place = torch.arange(nodes, device=device)
    low, high = torch.minimum(place[:, None], place[None, :]), torch.maximum(place[:, None], place[None, :])
    number = high * (high - 1) // 2 + low
    number.fill_diagonal_(0)
    return number.flatten()
