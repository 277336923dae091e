"""Constants of DVS for a new model, from one pilot and no further network call.

    gamma   1/C: the shared average is the mean over the C components, and remembers as the average itself does
    range   where the information of equal steps is above its mean
    kappa   so that the median step inside the range is the base step

The pilot gives the rate j_c(t), and V_c = j_c dt (docs/theory.md); so the controller itself can be run on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from isostep.control.base import Measured
from isostep.control.dvs import Dvs, dvs
from isostep.control.pilot import Pilot

BASE = 100  # base steps of a trial: what is found does not depend on it
SMOOTH, LEAST = 0.03, 0.05  # width in t of the moving average; gaps and ranges shorter than this are not worth one
TRIALS = 40


@dataclass(frozen=True)
class DvsProposal:
    """Constants as the presets state them, and the steps that the controller takes on the pilot's rate."""

    kappa: float
    gamma: float
    active: tuple[tuple[float, float], ...]
    t: tuple[float, ...]
    dt: tuple[float, ...]  # in base steps
    ds2: tuple[float, ...]
    pinned: dict[str, float]  # shares of the adapting steps

    @property
    def share(self) -> float:
        """Steps over base steps."""
        return len(self.t) / BASE

    def toml(self) -> str:
        """The table of a preset."""
        ranges = ", ".join(f"[{a:g}, {b:g}]" for a, b in self.active)
        return f"[sampler.dvs]\nkappa = {self.kappa:.3g}\ngamma = {self.gamma:g}\nactive = [{ranges}]\n"


def propose(pilot: Pilot) -> DvsProposal:
    active = active_range(pilot)
    gamma = round(1 / len(pilot.rate), 4)

    def run(x: float) -> DvsProposal:
        return _walk(pilot, dvs(BASE, kappa=math.exp(x), gamma=gamma, active=active), math.exp(x))

    low, high = -30.0, 30.0  # the median grows with kappa
    for _ in range(TRIALS):
        middle = (low + high) / 2
        low, high = (middle, high) if _median(run(middle)) < 1 else (low, middle)
    return run((low + high) / 2)


def active_range(pilot: Pilot) -> tuple[tuple[float, float], ...]:
    rate = np.sum(list(pilot.rate.values()), axis=0)
    width = max(1, round(SMOOTH * len(rate))) | 1
    smooth = np.convolve(np.pad(rate, width // 2, mode="edge"), np.ones(width) / width, mode="valid")
    edges = [0.0, *((np.array(pilot.t)[1:] + np.array(pilot.t)[:-1]) / 2).tolist(), 1.0]
    found: list[list[float]] = []
    for k in np.flatnonzero(smooth > rate.mean()):
        if found and edges[k] - found[-1][1] < LEAST:
            found[-1][1] = edges[k + 1]
        else:
            found.append([edges[k], edges[k + 1]])
    kept = tuple((round(a, 2), round(b, 2)) for a, b in found if round(b - a, 2) >= LEAST)
    return kept or ((0.0, 1.0),)


def _median(found: DvsProposal) -> float:
    inside = [
        dt for t, dt in list(zip(found.t, found.dt, strict=True))[1:-1] if any(a < t <= b for a, b in found.active)
    ]
    return float(np.median(inside)) if inside else 1.0


def _walk(pilot: Pilot, controller: Dvs, kappa: float) -> DvsProposal:
    names, grid = list(pilot.rate), np.array(pilot.t)
    t, memory, step, before = torch.zeros(1, dtype=torch.float64), None, torch.zeros(1, dtype=torch.int64), 0.0
    memory = controller.start(t, len(names), 1.0)
    running, entries = torch.ones(1, dtype=torch.bool), torch.ones(1, len(names))
    rows: list[tuple[float, float, float]] = []
    while not bool(controller.finished(memory, t, step)):
        at = float(t) - before / 2
        v = [float(np.interp(at, grid, pilot.rate[name])) * before for name in names]
        now = Measured(t, step, torch.tensor([v], dtype=torch.float64), running, entries)
        t1, dt, memory = controller.propose(memory, now)
        rows.append((float(t), float(dt) / controller.dt_base, sum(v) * float(dt)))
        t, step, before = t1, step + 1, float(dt)
    adapted, *bounds = (int(count) for count in memory.counts[0])
    times, steps, ds2 = zip(*rows, strict=True)
    pinned = {name: count / max(adapted, 1) for name, count in zip(("dt_min", "dt_max"), bounds, strict=True)}
    return DvsProposal(kappa, controller.gamma, controller.active, times, steps, ds2, pinned)
