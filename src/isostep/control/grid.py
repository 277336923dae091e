"""Static grids: a list of times is a controller like any other.

    uniform    t_i = T i/N
    quadratic  t_i = T (1 - (1 - i/N)^2)          dense near the data
    power      t_i = T (1 - (1 - (i/N)^p)^rho)    rho above 1 dense near the data, p above 1 dense near the noise
    karras     1 - t evenly spaced in its 1/rho-th power, from 1 down to `floor`, then one step to T
    cosine     t_i = T sin(pi i / 2N)             dense near the data
    ranges     even steps inside given ranges, and even ones of another length outside
    gdss       N evaluations evenly at t = 0 .. 1 - eps, each step as long as 1/N, as GDSS' own samplers do

Times come from i, never by adding up, and the last one is exactly T.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.control.base import AcceptAll, Measured, Proposal


class GridMemory(NamedTuple):
    """Times and step lengths, one row per graph so that rows can leave and join."""

    times: Tensor  # (B, N + 1)
    lengths: Tensor  # (B, N)


@dataclass(frozen=True)
class Grid(AcceptAll):
    """An explicit increasing list of times from 0 to 1; 1 stands for the model's own end T."""

    times: tuple[float, ...]
    needs_variation: bool = field(default=False, init=False)
    couples_graphs: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if len(self.times) < 2 or any(not math.isfinite(t) for t in self.times):
            raise InputError(f"a grid needs at least two finite times, got {len(self.times)}: {self.times[:3]}")
        if self.times[0] != 0 or self.times[-1] != 1:
            raise InputError(f"a grid runs from 0 to 1, got {self.times[0]} to {self.times[-1]}")
        if any(b <= a for a, b in zip(self.times, self.times[1:], strict=False)):
            raise InputError("the times of a grid must increase strictly")

    @property
    def steps(self) -> int:
        return len(self.times) - 1

    def start(self, t: Tensor, components: int, t_end: float) -> GridMemory:
        times = torch.tensor(self.times, dtype=t.dtype, device=t.device) * t_end
        return self._rows(t, times, times.diff())

    def _rows(self, t: Tensor, times: Tensor, lengths: Tensor) -> GridMemory:
        return GridMemory(times.expand(len(t), -1), lengths.expand(len(t), -1))

    def propose(self, memory: GridMemory, now: Measured) -> Proposal:
        place = now.step.clamp(max=self.steps - 1)[:, None]
        t1 = memory.times.gather(1, place + 1)[:, 0]
        return Proposal(t1, memory.lengths.gather(1, place)[:, 0], memory)

    def finished(self, memory: GridMemory, t: Tensor, step: Tensor) -> Tensor:
        return step >= self.steps

    def least_left(self, memory: GridMemory, t: Tensor, step: Tensor) -> Tensor:
        return self.steps - step


@dataclass(frozen=True)
class GdssGrid(Grid):
    """GDSS' grid: evaluations at N even times up to 1 - eps, every step of length 1/N. Ends at t = 1."""

    def start(self, t: Tensor, components: int, t_end: float) -> GridMemory:
        times = torch.tensor(self.times, dtype=t.dtype, device=t.device)
        return self._rows(t, times, torch.full_like(times[1:], 1 / self.steps))


def uniform(steps: int) -> Grid:
    return power(steps, rho=1.0)


def quadratic(steps: int) -> Grid:
    return power(steps, rho=2.0)


def power(steps: int, rho: float | None = None, p: float = 1.0) -> Grid:
    """rho is 2 where neither it nor p is given, and 1 beside a given p."""
    rho = (2.0 if p == 1 else 1.0) if rho is None else rho
    check_steps(steps)
    _check_positive(rho=rho, p=p)
    u = [(i / steps) ** p for i in range(steps + 1)]
    return Grid(tuple(1 - (1 - x) ** rho if rho != 1 else x for x in u))


def karras(steps: int, rho: float = 7.0, floor: float = 1e-3) -> Grid:
    check_steps(steps)
    _check_positive(rho=rho)
    if not 0 < floor < 1:
        raise InputError(f"the floor of a Karras grid must lie between 0 and 1, got {floor}")
    low = floor ** (1 / rho)
    inner = [1 - (1 + i / max(steps - 1, 1) * (low - 1)) ** rho for i in range(steps)]
    return Grid((*inner, 1.0))


def cosine(steps: int) -> Grid:
    check_steps(steps)
    return Grid((*(math.sin(math.pi / 2 * i / steps) for i in range(steps)), 1.0))


def ranges(steps: int, active: tuple[tuple[float, float], ...] = ((0.5, 1.0),), outside: int | None = None) -> Grid:
    """`outside` of the steps share the time outside the active ranges, the others the time inside.

    By default a step inside is a fifth of one outside. The lengths are exact; a step may lie across an edge.
    """
    check_steps(steps)
    active = tuple((float(a), float(b)) for a, b in active)
    edges = [edge for one in active for edge in one]
    if not edges or edges != sorted(set(edges)) or edges[0] < 0 or edges[-1] > 1:
        raise InputError(f"active ranges must be intervals inside [0, 1], apart and in order, got {active}")
    length = sum(b - a for a, b in active)
    if length == 1:
        return uniform(steps)
    share = (1 - length) / (1 + 4 * length) if outside is None else outside / steps
    if not 0 < share < 1:
        raise InputError(f"outside must be a number of steps from 1 to {steps - 1}, got {outside}")
    knots = sorted({0.0, *edges, 1.0})
    spent = [0.0]
    for a, b in itertools.pairwise(knots):
        density = (1 - share) / length if (a, b) in active else share / (1 - length)
        spent.append(spent[-1] + density * (b - a))
    times = np.interp([i / steps for i in range(steps + 1)], np.array(spent) / spent[-1], knots)
    return Grid((0.0, *times[1:-1].tolist(), 1.0))


def gdss(steps: int, eps: float = 1e-4) -> GdssGrid:
    check_steps(steps)
    if steps < 2:
        raise InputError(f"GDSS' grid needs at least 2 steps, got {steps}")
    return GdssGrid((*((1 - eps) * i / (steps - 1) for i in range(steps)), 1.0))


MOST_CHARACTERS = 2**20  # of a file of times


def given_times(times: Iterable[float] | None = None, file: str | Path | None = None) -> tuple[float, ...]:
    """The times as they are given, or those in a file: numbers from 0 to 1, separated by blanks or commas.

    Settings keep them, not the file's name: a file can change, and a graph must not.
    """
    if (times is None) == (file is None):
        raise InputError("the schedule times needs a file of times, or the times: --set file=times.txt")
    return Grid(tuple(float(t) for t in (_read(file) if times is None else times))).times


def _read(file: Any) -> list[float]:
    if not isinstance(file, str | Path):  # a number would be a file descriptor
        raise InputError(f"the file of times must be a path, got {file!r}; a file of that name is ./{file}")
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(MOST_CHARACTERS + 1)  # a device has no end
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"it has more than {MOST_CHARACTERS:,} characters")
        return [float(word) for word in text.replace(",", " ").split()]
    except OSError as error:
        raise InputError(f"cannot read the times in {file}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise InputError(f"{file} must hold numbers separated by blanks or commas: {error}") from error


def explicit(steps: int, times: Iterable[float]) -> Grid:
    """Given times; `steps` says how many steps they are."""
    grid = Grid(tuple(times))
    if grid.steps != steps:
        raise InputError(f"the given times make {grid.steps} steps, not {steps}; leave out steps and calls")
    return grid


def calibrated(steps: int, times: tuple[float, ...] = ()) -> Grid:
    """The grid of a calibrated model; `times` is filled in by the calibration."""
    if not times:
        raise InputError("this schedule needs a calibrated model; sample() and `isostep calibrate` provide it")
    return explicit(steps, times)


def check_steps(steps: Any, name: str = "steps") -> None:
    if isinstance(steps, bool) or not isinstance(steps, Integral) or not 1 <= int(steps) <= 10_000_000:
        raise InputError(f"{name} must be a whole number from 1 to 10,000,000, got {steps!r}")


def _check_positive(**exponents: float) -> None:
    for name, value in exponents.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be positive, got {value}")
