"""The whole graph's SDE: all components at once, one network call per evaluation.

`ProcessSde` joins a network with one process per component. `DriftSde` wraps anything with `drift(state, t)` and
`diffusion(t)`: that is all a model of your own needs. `FlowSde` is the probability-flow ODE of a score model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from isostep.base.checks import is_mapping
from isostep.base.errors import InputError
from isostep.process.base import Process
from isostep.process.score_sde import ScoreSde
from isostep.state import GraphState

Network = Callable[[GraphState, Tensor], Mapping[str, Tensor]]


class Evaluation(NamedTuple):
    """One network call at (x, t): drift f and diffusion g per component, and what the network estimated."""

    drift: Mapping[str, Tensor]
    diffusion: Mapping[str, Tensor]
    estimate: Mapping[str, Tensor] | None = None


@runtime_checkable
class Sde(Protocol):
    """What the loop integrates."""

    @property
    def t_end(self) -> float: ...

    @property
    def singular_end(self) -> bool: ...

    @property
    def processes(self) -> Mapping[str, Process]: ...

    def evaluate(self, state: GraphState, t: Tensor) -> Evaluation: ...


@dataclass(frozen=True)
class ProcessSde:
    """A network and one process per component.

    `network(state, t)` returns one tensor per component, shaped like it, masked and (edges) symmetric; `t` (B,) has the
    state's type. `raw` outputs
    are turned into the score or the clean graph by the process; otherwise they are that already.
    """

    network: Network
    processes: Mapping[str, Process]
    raw: bool = True

    @property
    def t_end(self) -> float:
        return min(process.t_end for process in self.processes.values())

    @property
    def singular_end(self) -> bool:
        return any(process.singular_end for process in self.processes.values())

    def evaluate(self, state: GraphState, t: Tensor) -> Evaluation:
        output = self.network(state, t.to(state.dtype))
        _check_shapes(output, state, "network output")
        output = {n: state.centre(n, x) for n, x in output.items()}
        processes = {n: self.processes[n] for n in state.components}  # columns of V follow the state's order
        estimate = {n: p.estimate(output[n], t) if self.raw else output[n] for n, p in processes.items()}
        drift = {n: p.drift(state[n], estimate[n], t) for n, p in processes.items()}
        diffusion = {n: p.diffusion(t) for n, p in processes.items()}
        return Evaluation(drift, diffusion, estimate)


@dataclass(frozen=True)
class FlowSde:
    """The probability-flow ODE of a score model: half the score drift; `diffusion` stays that of its SDE."""

    sde: Sde
    singular_end: bool = False

    def __post_init__(self) -> None:
        odd = [n for n, p in self.processes.items() if not isinstance(p, ScoreSde)]
        if odd:
            raise InputError(
                f"the probability-flow ODE needs score processes (VP, VE, subVP); component {odd[0]} is not"
            )

    @property
    def t_end(self) -> float:
        return self.sde.t_end

    @property
    def processes(self) -> Mapping[str, Process]:
        return self.sde.processes

    def evaluate(self, state: GraphState, t: Tensor) -> Evaluation:
        there = self.sde.evaluate(state, t)
        assert there.estimate is not None
        drift = {}
        for name in state.components:
            process = self.processes[name]
            assert isinstance(process, ScoreSde)
            drift[name] = process.flow_drift(state[name], there.estimate[name], t)
        return Evaluation(drift, there.diffusion, there.estimate)


class DriftSde:
    """Any object with `drift(state, t)` and `diffusion(t)`.

    Drifts are checked for shape and symmetry, then masked, made exactly symmetric and cast to the state's type, which
    `t` has, too; `diffusion(t)` gets the clock itself, in float64, and gives one g for all components or one for each.
    """

    processes: Mapping[str, Process] = {}  # none: a free drift has no closed-form steps

    def __init__(self, model: Any, t_end: float = 1.0) -> None:
        self.model = model
        self.t_end = float(getattr(model, "t_end", t_end))
        self.singular_end = bool(getattr(model, "singular_end", False))
        if not 0 < self.t_end <= 1:
            raise InputError(f"t_end of a model must lie in (0, 1], got {self.t_end}: rescale its time")

    def evaluate(self, state: GraphState, t: Tensor) -> Evaluation:
        drift = self.model.drift(state, t.to(state.dtype))
        drift = drift.components if isinstance(drift, GraphState) else drift
        _check_shapes(drift, state, "drift")
        masked = {n: state.project(n, drift[n]).to(x.dtype) for n, x in state.components.items()}
        for name, value in masked.items():
            if state.kinds[name] == "edge":
                masked[name] = _symmetric(name, value)
        return Evaluation(masked, self._diffusion(state, t))

    def _diffusion(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        given: Any = self.model.diffusion(t)
        values = given if is_mapping(given) else dict.fromkeys(state.components, given)
        if values.keys() != state.components.keys():
            raise InputError(f"diffusion names {sorted(values)}, the state has {sorted(state.components)}")
        return {n: _per_graph(n, values[n], t) for n in state.components}


def as_sde(model: Any) -> Sde:
    """`model` itself if it can be integrated, its `.sde`, or a wrapper around `drift` and `diffusion`."""
    if isinstance(model, Sde):
        return model
    if isinstance(getattr(model, "sde", None), Sde):
        return model.sde
    if callable(getattr(model, "drift", None)) and callable(getattr(model, "diffusion", None)):
        return DriftSde(model)
    raise InputError(
        f"cannot sample from {type(model).__name__}: it needs drift(state, t) and diffusion(t), or evaluate(state, t)"
    )


def _per_graph(name: str, g: Any, t: Tensor) -> Tensor:
    """One diffusion per graph, from a number or a tensor of shape () or (B,)."""
    value = torch.as_tensor(g, dtype=t.dtype, device=t.device)
    if value.shape not in (t.shape, torch.Size(())):
        raise InputError(
            f"diffusion of component {name} has shape {tuple(value.shape)}, expected () or {tuple(t.shape)}"
        )
    return value.expand(t.shape)


def _symmetric(name: str, drift: Tensor) -> Tensor:
    """Remove the rounding of a symmetric drift; refuse any other."""
    mirrored = drift.transpose(1, 2)
    if bool((drift - mirrored).abs().max() > 1e-4 * drift.abs().max()):
        raise InputError(f"drift of edge component {name} is not symmetric; average it with its transpose")
    return (drift + mirrored) / 2


def _check_shapes(values: Any, state: GraphState, what: str) -> None:
    named = values if is_mapping(values) else None
    if named is None or named.keys() != state.components.keys():
        seen = type(values).__name__ if named is None else sorted(named)
        raise InputError(f"{what} must be a mapping with components {sorted(state.components)}, got {seen}")
    for name, x in state.components.items():
        value = named[name]
        if not isinstance(value, Tensor) or value.shape != x.shape:
            seen = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{what} of component {name} has shape {seen}, the state has {tuple(x.shape)}")
