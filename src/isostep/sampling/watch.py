"""What a pilot sees of the clean graph D: how fast it moves, and how much of it is still undecided.

Over a step from t_(k-1) to t_k, per component and unit time, as a mean over the graphs:

    decisions   ||d theta||^2 / dt      theta: the Fisher-Rao angle of the entries that are decided (geometry.py)

The change is driven by noise, so it grows with dt, and the rate does not depend on the pilot's grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import Tensor

from isostep.geometry import decision_angle, squared_norm, undecided
from isostep.process import Process
from isostep.process.sde import Evaluation, Sde
from isostep.state import GraphState


@dataclass
class Watched:
    """A model's SDE that notes what it predicts, on one clock for the batch."""

    sde: Sde
    levels: Mapping[str, float]
    t: list[float] = field(default_factory=list[float])
    decisions: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    undecided: list[float] = field(default_factory=list[float])
    _angles: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    @property
    def t_end(self) -> float:
        return self.sde.t_end

    @property
    def singular_end(self) -> bool:
        return self.sde.singular_end

    @property
    def processes(self) -> Mapping[str, Process]:
        return self.sde.processes

    def evaluate(self, state: GraphState, t: Tensor) -> Evaluation:
        here = self.sde.evaluate(state, t)
        if here.estimate is not None:
            clean = {n: p.clean(state[n], here.estimate[n], t) for n, p in self.processes.items()}
            self._note(state.replace(clean), float(t.max()))
        return here

    def seen(self) -> dict[str, Any]:
        """For a `Pilot`: between the steps, as its rates are."""
        counts = self.undecided if self.decisions else []
        middle = [(a + b) / 2 for a, b in pairwise(counts)]
        return {"decisions": {n: tuple(v) for n, v in self.decisions.items()}, "undecided": tuple(middle)}

    def _note(self, clean: GraphState, t: float) -> None:
        if t >= self.t_end or (self.t and t == self.t[-1]):  # Heun looks at the end; a corrector asks twice at one time
            return
        scaled = {name: clean[name] * scale for name, scale in self.levels.items()}
        counts = [_count(clean, name, undecided(value)) for name, value in scaled.items()]
        angles = {name: decision_angle(value) for name, value in scaled.items()}
        self.t.append(t)
        self.undecided.append(sum(counts))
        for name, before in self._angles.items():
            speed = float(squared_norm(angles[name] - before).nanmean()) / (self.t[-1] - self.t[-2])
            self.decisions.setdefault(name, []).append(speed)
        self._angles = angles


def _count(clean: GraphState, name: str, chosen: Tensor) -> float:
    """Mean number of the chosen entries per graph; an edge counts once."""
    total = float(chosen.sum()) / clean.batch
    return total / 2 if clean.kinds[name] == "edge" else total
