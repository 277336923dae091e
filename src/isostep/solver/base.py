"""How to step. A solver takes (t0, t1), never a policy, and says its order and its network calls per step.

A step has two halves, because the drift at t0 decides how long the step is: `evaluate` makes the network call at t0
(a corrector may move the state first), then `advance` goes to t1. `memory` holds what a multistep method remembers, one
row per graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from isostep.base.errors import InputError
from isostep.noise import PREDICTOR, Draw, Noise
from isostep.process.base import Process
from isostep.process.sde import Evaluation, Sde
from isostep.state import GraphState, expand


class Span(NamedTuple):
    """The step's interval per graph; dt is t1 - t0 except on GDSS' own grid."""

    t0: Tensor
    t1: Tensor
    dt: Tensor


class Advance(NamedTuple):
    """Where the step leads: with noise, without (the denoised mean), and what to remember."""

    state: GraphState
    mean: Mapping[str, Tensor]
    memory: Any = None
    error: Tensor | None = None  # (B,) local error in units of the tolerance, where the solver estimates it


@dataclass(frozen=True)
class NoiseSource:
    """The noise of one step of one batch."""

    noise: Noise
    index: Tensor
    step: Tensor
    running: Tensor

    def normal(self, like: GraphState, t0: Tensor, t1: Tensor, stream: int = PREDICTOR) -> dict[str, Tensor]:
        return self.noise.normal(like, Draw(self.index, self.step, t0, t1), stream)


class Solver(Protocol):
    @property
    def calls_per_step(self) -> int: ...

    @property
    def couples_graphs(self) -> bool: ...

    def check(self, sde: Sde) -> None:
        """Refuse a model this solver cannot integrate, before any work."""
        ...

    def start(self, state: GraphState) -> Any:
        """Memory of graphs that have not stepped yet."""
        ...

    def evaluate(
        self, sde: Sde, state: GraphState, t: Tensor, source: NoiseSource
    ) -> tuple[GraphState, Evaluation]: ...

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance: ...


@dataclass(frozen=True)
class OneStep:
    """A solver without memory that needs nothing but drift and diffusion."""

    @property
    def couples_graphs(self) -> bool:
        return False

    def check(self, sde: Sde) -> None:
        return None

    def start(self, state: GraphState) -> Any:
        return None

    def evaluate(self, sde: Sde, state: GraphState, t: Tensor, source: NoiseSource) -> tuple[GraphState, Evaluation]:
        return state, sde.evaluate(state, t)


@dataclass(frozen=True)
class Wrapped:
    """Another solver, with something done differently."""

    solver: Solver

    @property
    def calls_per_step(self) -> int:
        return self.solver.calls_per_step

    @property
    def couples_graphs(self) -> bool:
        return self.solver.couples_graphs

    def start(self, state: GraphState) -> Any:
        return self.solver.start(state)

    def advance(
        self, sde: Sde, state: GraphState, here: Evaluation, span: Span, source: NoiseSource, memory: Any
    ) -> Advance:
        return self.solver.advance(sde, state, here, span, source, memory)


def add_noise(
    state: GraphState,
    mean: Mapping[str, Tensor],
    scale: Mapping[str, Tensor],
    z: Mapping[str, Tensor],
) -> GraphState:
    """mean + scale z, with one scale per graph and component."""
    return state.replace({n: mean[n] + expand(scale[n], mean[n]) * z[n] for n in mean})


def need_processes(sde: Sde, solver: str, kind: type | None = None) -> Mapping[str, Process]:
    """The model's processes, or an error that says why the solver needs them."""
    if not sde.processes:
        raise InputError(f"the {solver} solver needs a model with known processes; a free drift has none: use euler")
    for name, process in sde.processes.items():
        if kind is not None and not isinstance(process, kind):
            raise InputError(
                f"the {solver} solver works on score SDEs (VP, VE, subVP); component {name} is a "
                f"{type(process).__name__}: use euler, heun or exponential"
            )
    return sde.processes
