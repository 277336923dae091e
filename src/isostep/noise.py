"""Gaussian noise as an argument. A number depends on (seed, graph index, step, stream, component, entry) and on nothing
else: not on the batch, its padding, the device or the number of workers.

Counter-based: Philox4x32-10 (Salmon et al. 2011) on tensors, key = seed, counter = (block, step, graph, component and
stream), then Box-Muller. An edge i < j has entry j (j - 1) / 2 + i and a node feature i F + f, so that padding does not
move them; edge noise is mirrored. `BrownianTree` answers by time interval instead of by step: any grid, nested or not,
and any rejected step, sees one and the same Brownian path.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from isostep.errors import InputError
from isostep.state import GraphState, Kind, expand

# Streams of one step. Independent uses of noise in a step must have different numbers.
PREDICTOR, CORRECTOR, FIRST_HALF, SECOND_HALF, PRIOR, SIZES, LEAF = range(7)

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


class Draw(NamedTuple):
    """Whose noise: graph indices and step counters, (B,) int64, and the step's interval, (B,) float64."""

    index: Tensor
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
        entries = _entries(self.seed, draw, stream, like, tuple(like.components))
        return {n: like.project(n, _spread(entries[n], like.kinds[n], x)) for n, x in like.components.items()}


@dataclass(frozen=True)
class ZeroNoise:
    """No noise: the solver's deterministic part."""

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        return {name: torch.zeros_like(x) for name, x in like.components.items()}


@dataclass(frozen=True)
class RecordedNoise:
    """Given tensors: `pattern(like, draw, stream)` for every call."""

    pattern: Callable[[GraphState, Draw, int], Mapping[str, Tensor]]

    @staticmethod
    def replay(tensors: Sequence[Mapping[str, Tensor]]) -> RecordedNoise:
        """The n-th call gets the n-th entry."""
        queue: Iterator[Mapping[str, Tensor]] = iter(tensors)

        def following(like: GraphState, draw: Draw, stream: int) -> Mapping[str, Tensor]:
            try:
                return next(queue)
            except StopIteration:
                raise InputError(f"recorded noise has only {len(tensors)} entries; record more steps") from None

        return RecordedNoise(following)

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        return {n: like.project(n, z.expand(like[n].shape)) for n, z in self.pattern(like, draw, stream).items()}


@dataclass(frozen=True)
class BrownianTree:
    """One Brownian path per graph, read at any times: z = (W(t1) - W(t0)) / sqrt(t1 - t0).

    W is built by halving [0, 1] `depth` times; inside the last cell a point is drawn from the bridge between the cell's
    ends, keyed by its time. The law of a step is exact once it crosses a cell boundary, so keep steps above 2^-depth.
    Corrector noise is not an increment of the path and comes from `PhiloxNoise`.
    """

    seed: int = 0
    depth: int = 14

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not 1 <= self.depth <= 30:
            raise InputError(f"depth of a Brownian tree must be between 1 and 30, got {self.depth}")

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, Tensor]:
        if stream != PREDICTOR:
            return PhiloxNoise(self.seed).normal(like, draw, stream)
        out, rows = {}, len(draw.t0)
        both = Draw(*(torch.cat([a, b]) for a, b in zip(draw, (draw.index, draw.step, draw.t1, draw.t1), strict=True)))
        for name, x in like.components.items():
            start, end = self._path(like, both, name, x, both.t0).split(rows)
            scale = (draw.t1 - draw.t0).clamp_min(1e-300).rsqrt()
            z = ((end - start) * expand(scale, end)).to(x.dtype)
            out[name] = like.project(name, _spread(z, like.kinds[name], x))
        return out

    def _path(self, like: GraphState, draw: Draw, name: str, x: Tensor, t: Tensor) -> Tensor:
        """W(t), (B, entries), by descending to the cell that holds t."""

        def z(key: Tensor, stream: int = PREDICTOR) -> Tensor:
            # One normal per node of the tree; node numbers (heap order) take the place of step counters.
            return _entries(self.seed, draw._replace(step=key), stream, like, (name,))[name].to(t.dtype)

        node = torch.zeros_like(draw.index)
        right = z(node)
        left = torch.zeros_like(right)
        low, width = torch.zeros_like(t), 1.0
        node = node + 1
        for _ in range(self.depth):
            middle = (left + right) / 2 + z(node) * math.sqrt(width) / 2
            width /= 2
            upper = t >= low + width
            low = torch.where(upper, low + width, low)
            node = 2 * node + upper
            left, right = torch.where(upper[:, None], middle, left), torch.where(upper[:, None], right, middle)
        u = ((t - low) / width).clamp(0, 1)[:, None]
        leaf = z((t * 2**32).long(), LEAF)
        return torch.lerp(left, right, u) + leaf * (width * u * (1 - u)).sqrt()


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


def check_seed(seed: int) -> None:
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


def _entries(seed: int, draw: Draw, stream: int, like: GraphState, names: tuple[str, ...]) -> dict[str, Tensor]:
    """(B, entries) standard normals of each component, from one run of the generator."""
    counts = [_entry_count(like.kinds[n], like[n].shape) for n in names]
    sizes = tuple(-(-count // 4) for count in counts)
    block, label = _blocks(names, sizes, stream, like.device)
    counter = (block, (draw.step & _LOW)[:, None], *_graph_words(draw.index[:, None], label))
    parts = zip(*(word.split(sizes, 1) for word in philox(_key(seed), counter)), strict=True)
    out = {}
    for name, count, words in zip(names, counts, parts, strict=True):
        dtype = like[name].dtype
        normals = _box_muller(words, torch.float64 if dtype == torch.float64 else torch.float32)
        out[name] = normals[:, :count].to(dtype)
    return out


@lru_cache(maxsize=64)
def _blocks(names: tuple[str, ...], sizes: tuple[int, ...], stream: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(1, blocks) counter word 0 and label of the components' blocks, one component after the other."""
    block = torch.cat([torch.arange(size, device=device) for size in sizes])
    label = torch.cat(
        [torch.full((n,), _label(name, stream), device=device) for name, n in zip(names, sizes, strict=True)]
    )
    return block[None], label[None]


def _box_muller(words: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    """Four uniform words to four normals. float32 uses 24 bits a word, float64 all 32."""
    shift, scale = (0, 2.0**-32) if dtype == torch.float64 else (8, 2.0**-24)
    u0, u1, u2, u3 = (((word >> shift).to(dtype) + 0.5) * scale for word in words)
    r0, r1 = (-2 * u0.log()).sqrt(), (-2 * u2.log()).sqrt()
    a0, a1 = u1 * (2 * math.pi), u3 * (2 * math.pi)
    return torch.stack([r0 * a0.cos(), r0 * a0.sin(), r1 * a1.cos(), r1 * a1.sin()], -1).flatten(1)


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
