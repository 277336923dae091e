"""When to step. A controller sees clocks and drift variation, never the network.

The loop evaluates the drift at t, measures V against the previous step's drift, and asks the controller for the end of
the step; so the step size depends on the past only. All data is per graph, shape (B,) or (B, C).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Measured(NamedTuple):
    """What the loop knows before a step."""

    t: Tensor  # (B,) float64
    step: Tensor  # (B,) int64, steps taken
    variation: Tensor | None  # (B, C) V against the previous step, only if the controller asks for it
    running: Tensor  # (B,) bool
    entries: Tensor  # (B, C) free entries per component


class Proposal(NamedTuple):
    """The step to take: its end t1 and its length dt (t1 - t, except on GDSS' own grid)."""

    t1: Tensor
    dt: Tensor
    memory: Any


class Review(NamedTuple):
    """Which graphs keep the step just tried."""

    accepted: Tensor
    memory: Any


class Controller(Protocol):
    """A schedule. Settings are frozen; what evolves is `memory`, a tree of (B, ...) tensors."""

    @property
    def needs_variation(self) -> bool: ...

    @property
    def couples_graphs(self) -> bool:
        """Whether a graph's steps depend on its batch mates."""
        ...

    @property
    def reviews(self) -> bool:
        """Whether steps can be rejected."""
        ...

    def start(self, t: Tensor, components: int, t_end: float) -> Any:
        """Memory of graphs that start at t."""
        ...

    def propose(self, memory: Any, now: Measured) -> Proposal: ...

    def review(self, memory: Any, now: Measured, proposal: Proposal, error: Tensor | None) -> Review: ...

    def finished(self, memory: Any, t: Tensor, step: Tensor) -> Tensor:
        """(B,) bool."""
        ...

    def least_left(self, memory: Any, t: Tensor, step: Tensor) -> Tensor:
        """(B,) at least so many steps remain (a graph that is not finished has one or more)."""
        ...

    def counted(self, memory: Any) -> Mapping[str, Tensor]:
        """(B,) what of its steps a controller has counted, by name; mostly nothing."""
        ...

    def warnings(self, components: int) -> list[str]:
        """What to say before it is used on so many components."""
        ...

    def remarks(self, graphs: int, counts: Mapping[str, int]) -> list[str]:
        """What to say of so many finished graphs, from what it counted."""
        ...


def adapts(controller: Controller) -> bool:
    """Whether times follow from what is measured on the way."""
    return controller.needs_variation or controller.reviews


def own_clocks(controller: Controller) -> bool:
    """Whether graphs of one batch can be at different times."""
    return (controller.needs_variation and not controller.couples_graphs) or controller.reviews


class Silent:
    """A controller that counts nothing and has nothing to say."""

    def counted(self, memory: Any) -> Mapping[str, Tensor]:
        return {}

    def warnings(self, components: int) -> list[str]:
        return []

    def remarks(self, graphs: int, counts: Mapping[str, int]) -> list[str]:
        return []


class AcceptAll(Silent):
    """A controller that never rejects."""

    reviews = False

    def review(self, memory: Any, now: Measured, proposal: Proposal, error: Tensor | None) -> Review:
        return Review(now.running, memory)
