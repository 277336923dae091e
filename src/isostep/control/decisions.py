"""Equal speed of decisions with exactly N steps: what matters of a path is where its graph is decided.

A pilot measures how fast the predicted entries move in the Fisher-Rao metric of their categories
(`sampling/watch.py`); as in `arclength`, the steps have equal parts of the integral of rate^power. The path's own
information cannot tell this: for a bridge it is infinite at t = 1, where nothing in the graph changes any more.

The time of the last call is part of the grid: N - 1 steps lead to it, and it is late enough that at most `open` entries
of a graph are undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isostep.base.errors import InputError
from isostep.control.arclength import Density
from isostep.control.pilot import Pilot


@dataclass(frozen=True)
class Decisions(Density):
    open: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.open > 0:
            raise InputError(
                f"open, the undecided entries of a graph at the last call, must be positive, got {self.open}"
            )

    def rates(self, pilot: Pilot) -> Mapping[str, tuple[float, ...]]:
        if not pilot.decisions:
            raise InputError("this model predicts no graph that could be decided; use the schedule arclength")
        return pilot.decisions

    def times(self, pilot: Pilot, steps: int) -> tuple[float, ...]:
        times = super().times(pilot, steps)
        last = self.decided(pilot)
        if steps < 2 or times[-2] >= last:
            return times
        fine: tuple[float, ...] = super().times(pilot, 100 * steps)  # as a function of the length walked
        share = np.linspace(0.0, 1.0, len(fine))
        ends = np.linspace(0.0, float(np.interp(last, fine, share)), steps)
        return (*np.interp(ends, share, fine).tolist(), 1.0)

    def decided(self, pilot: Pilot) -> float:
        """The first of the pilot's times from which on at most `open` entries are undecided."""
        late = [t for t, count in zip(pilot.t, pilot.undecided, strict=True) if count > self.open]
        after = [t for t in pilot.t if not late or t > late[-1]]
        return after[0] if after else pilot.t[-1]
