"""The one loop: evaluate at t, measure, ask the controller for the step, advance; every graph on its own clock.

    state, here = solver.evaluate(x, t)          network call(s)
    V           = ||f - f_previous||^2 / g^2     if the controller or the trace wants it
    t1          = controller.propose(V, ...)
    x           = solver.advance(x, here, t, t1)

Everything a graph owns is a row of `Lane`. A finished graph's row leaves the batch (its compute is saved) and a new
graph may take its place. Whether any row has finished is asked only when it can have: the controller bounds the steps
that must still come, so there is no host synchronisation in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.control.base import Controller, Measured, Proposal, adapts, own_clocks
from isostep.geometry import drift_variation, noise_variation
from isostep.noise import BrownianTree, Noise, PhiloxNoise
from isostep.process.sde import Evaluation, FlowSde, Sde, as_sde
from isostep.solution import Solution, Status
from isostep.solver.base import NoiseSource, Solver, Span
from isostep.state import GraphState, Mask, cat_rows, take_rows, where_rows
from isostep.trace import Trace


class Lane(NamedTuple):
    """One row per graph in work."""

    state: GraphState
    mean: Mapping[str, Tensor]
    index: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]: tuple.index is not used
    t: Tensor
    step: Tensor
    tries: Tensor  # steps tried, rejected ones included: the noise counter
    calls: Tensor
    status: Tensor
    drift: Mapping[str, Tensor]  # of the previous step
    diffusion: Mapping[str, Tensor]
    control: Any
    solver: Any


class StepInfo(NamedTuple):
    """What hooks see after a step. Tensors are on the device: reading a value synchronises."""

    index: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]: tuple.index is not used
    t0: Tensor
    t1: Tensor
    running: Tensor
    state: GraphState
    mean: GraphState


# With a progress bar the loop pauses this often, even where no graph can have finished.
PROGRESS_EVERY = 20

Hook = Callable[[StepInfo], None]
Refill = Callable[[int], tuple[GraphState, Tensor] | None]
Progress = Callable[[float], None]


def integrate(
    model: Any,
    state: GraphState,
    controller: Controller,
    solver: Solver,
    noise: Noise | None = None,
    index: Tensor | None = None,
    *,
    max_steps: int = 100_000,
    trace: int = 0,
    snapshots: tuple[float, ...] = (),
    hooks: tuple[Hook, ...] = (),
    progress: Progress | None = None,
    refill: Refill | None = None,
) -> Solution:
    """Integrate a batch of graphs from t = 0 to the model's end.

    `model` is anything `as_sde` accepts. `index` (B,) names the graphs; with `noise` it decides each graph's random
    numbers (default: 0..B-1). `trace` = k records every k-th step (0: none). `snapshots` keeps the denoised means at
    these times. `refill(count)` gives up to `count` further graphs and their indices, or None; they fit into the node
    slots of `state`.

    Example:
        >>> import torch, isostep
        >>> from isostep.control import uniform
        >>> from isostep.solver import Euler
        >>> class Pull:                                              # dx = (1 - x) dt + .1 dw
        ...     def drift(self, state, t):
        ...         return {"X": (1 - state["X"]) * state.mask[..., None]}
        ...     def diffusion(self, t):
        ...         return 0.1
        >>> start = isostep.GraphState.of(torch.ones(2, 3), X=torch.zeros(2, 3, 1))
        >>> solution = isostep.integrate(Pull(), start, uniform(20), Euler())
        >>> solution.calls.tolist(), solution.counts()["done"]
        ([20, 20], 2)
    """
    sde = as_sde(model)
    noise = PhiloxNoise(0) if noise is None else noise
    _check(sde, state, controller, solver, noise, index, max_steps, trace, snapshots, refill)
    runner = _Runner(sde, controller, solver, noise, max_steps, trace, snapshots, hooks)
    names = torch.arange(state.batch) if index is None else index
    # Not inference_mode: masks cached on the way, and the result, must stay usable in training.
    with torch.no_grad():
        return runner.run(state, names, refill, progress)


class _Runner:
    """The fixed parts of one integration, and what it gathers on the way."""

    def __init__(
        self,
        sde: Sde,
        controller: Controller,
        solver: Solver,
        noise: Noise,
        max_steps: int,
        trace: int,
        snapshots: tuple[float, ...],
        hooks: tuple[Hook, ...],
    ) -> None:
        self.sde = sde
        self.controller = controller
        self.solver = solver
        self.noise = noise
        self.max_steps = max_steps
        self.recorder = _Recorder(trace, one_clock=not own_clocks(controller)) if trace else None
        self.snapshots = _Snapshots(snapshots) if snapshots else None
        self.hooks = hooks
        self.measures = controller.needs_variation or trace > 0
        self.cell = noise.cell if isinstance(noise, BrownianTree) and adapts(controller) else None
        self.batch_calls = 0
        self.entries: tuple[Mask, Tensor] | None = None  # free entries of the graphs of a mask

    def run(self, state: GraphState, index: Tensor, refill: Refill | None, progress: Progress | None) -> Solution:
        lane: Lane = self._begin(state, index)
        harvest: list[Lane] = []
        total, done = len(index), 0
        while True:
            steps = self._steps_before_an_end(lane)
            for _ in range(steps if progress is None else min(steps, PROGRESS_EVERY)):
                lane = self._step(lane)
            finished = lane.status != Status.RUNNING
            if bool(finished.any()):
                # Previous drift and memories are not part of the result.
                bare = lane._replace(drift={}, diffusion={}, control=self.controller.counted(lane.control), solver=None)
                harvest.append(take_rows(bare, finished))
                done += int(finished.sum())
            if progress is not None:
                progress(self._fraction(lane, done, total))
            if not bool(finished.any()):
                continue
            lane = take_rows(lane, ~finished)
            new = refill(int(finished.sum())) if refill else None
            if new is not None:
                total += len(new[1])
                lane = cat_rows([lane, self._begin(_fit(new[0], state.nodes), new[1])])
            if not len(lane.t):
                break
        return self._gather(harvest)

    def _begin(self, state: GraphState, index: Tensor) -> Lane:
        device, rows = state.device, state.batch
        t = torch.zeros(rows, dtype=clock_type(device), device=device)
        count = torch.zeros(rows, dtype=torch.int64, device=device)
        return Lane(
            state=state,
            mean=dict(state.components),
            index=index.to(device, torch.int64),
            t=t,
            step=count,
            tries=count,
            calls=count,
            status=torch.full_like(count, Status.RUNNING),
            drift={n: torch.zeros_like(x) for n, x in state.components.items()} if self.measures else {},
            diffusion=dict.fromkeys(state.components, t) if self.measures else {},
            control=self.controller.start(t, len(state.components), self.sde.t_end),
            solver=self.solver.start(state),
        )

    def _steps_before_an_end(self, lane: Lane) -> int:
        """Steps that can be taken before any graph can have finished."""
        left = int(self.controller.least_left(lane.control, lane.t, lane.step).min())
        return max(1, min(left, self.max_steps - int(lane.tries.max())))

    def _step(self, lane: Lane) -> Lane:
        running = lane.status == Status.RUNNING
        source = NoiseSource(self.noise, lane.index, lane.tries, running)
        state, here = self.solver.evaluate(self.sde, lane.state, lane.t, source)
        now = self._measure(lane, state, here, running)
        proposal = self.controller.propose(lane.control, now)
        if self.cell is not None:
            proposal = _on_cells(proposal, lane.t, self.sde.t_end, self.cell)
        span = Span(lane.t, proposal.t1, proposal.dt)
        ahead = self.solver.advance(self.sde, state, here, span, source, lane.solver)
        self.batch_calls += self.solver.calls_per_step
        if self.recorder:
            self.recorder.record(lane, now, here, state, proposal)

        accepted, control = running, proposal.memory
        if self.controller.reviews:
            accepted, control = self.controller.review(proposal.memory, now, proposal, ahead.error)
            if self.cell is not None:
                accepted = accepted | (proposal.dt <= self.cell)  # it cannot be shortened
            accepted = accepted & running
        # A rejected step may overflow: it is tried again, shorter.
        finite = _finite_rows(ahead.state.components, ahead.mean) | ~accepted
        moved = accepted & finite
        new = lane._replace(
            state=state.replace(_where(moved, ahead.state.components, lane.state.components)),
            mean=_where(moved, ahead.mean, lane.mean),
            t=torch.where(moved, proposal.t1, lane.t),
            step=lane.step + moved,
            tries=lane.tries + running,
            calls=lane.calls + running * self.solver.calls_per_step,
            control=control,
            solver=ahead.memory,
        )
        if self.measures:
            drift = where_rows(moved, here.drift, lane.drift) if self.controller.reviews else here.drift
            new = new._replace(drift=drift, diffusion=here.diffusion)
        new = new._replace(status=self._status(new, running, finite))
        self._call_hooks(lane, new, proposal, moved)
        return new

    def _measure(self, lane: Lane, state: GraphState, here: Evaluation, running: Tensor) -> Measured:
        variation = None
        if self.measures:
            variation = drift_variation(here.drift, lane.drift, here.diffusion)
            variation = torch.where((lane.step > 0)[:, None], variation, torch.zeros_like(variation))
        if self.entries is None or self.entries[0] is not state.masks:
            counts = torch.stack([state.free_entries(n) for n in state.components], 1)
            self.entries = state.masks, counts
        return Measured(lane.t, lane.step, variation, running, self.entries[1])

    def _status(self, new: Lane, running: Tensor, finite: Tensor) -> Tensor:
        status = torch.where(new.tries >= self.max_steps, int(Status.MAX_STEPS), new.status)
        done = self.controller.finished(new.control, new.t, new.step)
        status = torch.where(done, int(Status.DONE), status)
        status = torch.where(finite, status, int(Status.NON_FINITE))
        return torch.where(running, status, new.status)

    def _call_hooks(self, old: Lane, new: Lane, proposal: Proposal, moved: Tensor) -> None:
        if not self.hooks and not self.snapshots:
            return
        info = StepInfo(new.index, old.t, proposal.t1, moved, new.state, new.state.replace(new.mean))
        if self.snapshots:
            self.snapshots(info, ended=new.status == Status.DONE)
        for hook in self.hooks:
            hook(info)

    def _fraction(self, lane: Lane, done: int, total: int) -> float:
        return (done + float((lane.t / self.sde.t_end)[lane.status == Status.RUNNING].sum())) / total

    def _gather(self, harvest: list[Lane]) -> Solution:
        lane = cat_rows(harvest)
        lane = take_rows(lane, lane.index.argsort())
        return Solution(
            state=lane.state,
            mean=lane.state.replace(lane.mean),
            index=lane.index,
            t=lane.t,
            steps=lane.step,
            calls=lane.calls,
            status=lane.status,
            batch_calls=self.batch_calls,
            trace=self.recorder.table() if self.recorder else None,
            snapshots=self.snapshots.collect() if self.snapshots else None,
            counted=lane.control,
        )


class _Recorder:
    """A few numbers per step. With one clock for the batch it keeps means over the running graphs: O(1) a step."""

    def __init__(self, every: int, one_clock: bool) -> None:
        self.every = every
        self.one_clock = one_clock
        self.rows: list[dict[str, Tensor]] = []
        self.seen = 0

    def record(self, lane: Lane, now: Measured, here: Evaluation, state: GraphState, proposal: Proposal) -> None:
        self.seen += 1
        if (self.seen - 1) % self.every:
            return
        assert now.variation is not None
        first = (lane.step == 0)[:, None]
        v_g = noise_variation(here.diffusion, lane.diffusion, state, proposal.dt)
        v_g = torch.where(first, torch.zeros_like(v_g), v_g)
        row = {"graph": lane.index, "step": lane.step, "t": lane.t, "dt": proposal.dt, "running": now.running}
        for c, name in enumerate(state.components):
            row[f"V_{name}"], row[f"V_g_{name}"] = now.variation[:, c], v_g[:, c]
        row["ds2"] = now.variation.sum(1) * proposal.dt
        self.rows.append(self._mean(row) if self.one_clock else row)

    def _mean(self, row: dict[str, Tensor]) -> dict[str, Tensor]:
        running = row["running"]
        # Rows that failed keep an old clock: read step and t off the furthest one.
        out = {
            "graph": torch.full_like(row["graph"][:1], -1),
            "step": row["step"].amax(0, keepdim=True),
            "t": row["t"].amax(0, keepdim=True),
            "running": running.any(0, keepdim=True),
        }
        for name, value in row.items():
            if name not in out:
                counted = running & value.isfinite()
                out[name] = torch.where(counted, value, 0.0).sum(0, keepdim=True) / counted.sum()
        return {name: out[name] for name in row}

    def table(self) -> Trace:
        columns = {name: torch.cat([row[name] for row in self.rows]).cpu() for name in self.rows[0]}
        kept = columns.pop("running")
        return Trace({name: values[kept] for name, values in columns.items()})


class _Snapshots:
    """The denoised mean of every graph after the step that reaches each time; later times than T stand for T."""

    def __init__(self, times: tuple[float, ...]) -> None:
        self.times = tuple(dict.fromkeys(times))
        self.kept: dict[float, list[tuple[Tensor, GraphState]]] = {time: [] for time in times}

    def __call__(self, info: StepInfo, ended: Tensor) -> None:
        for time in self.times:
            crossed = (info.t0 < time) & ((info.t1 >= time) | ended) if time > 0 else info.t0 == 0
            reached = info.running & crossed
            if bool(reached.any()):
                self.kept[time].append((info.index[reached], info.mean.take(reached)))

    def collect(self) -> dict[float, GraphState]:
        out: dict[float, GraphState] = {}
        for time, parts in self.kept.items():
            if parts:
                names = torch.cat([names for names, _ in parts])
                out[time] = GraphState.cat([state for _, state in parts]).take(names.argsort())
        return out


def clock_type(device: torch.device) -> torch.dtype:
    """float64, except on devices that lack it."""
    return torch.float32 if device.type == "mps" else torch.float64


LENGTHS = 16  # of a step on a Brownian tree, from one length to its double


def _on_cells(proposal: Proposal, t: Tensor, t_end: float, cell: float) -> Proposal:
    """The step in whole cells of a Brownian tree, shortened to one of few lengths; a step to the end stays.

    A graph's numbers differ in the last digits between batches. Times that follow from them must not, since the path
    has other noise at every time; and the fewer the lengths, the rarer one that the last digit moves to the next.
    """
    cells = (proposal.dt / cell).clamp_min(1)
    unit = (cells / LENGTHS).clamp_min(1).log2().floor().exp2()
    t1 = t + (cells / unit).floor() * unit * cell
    t1 = torch.where((proposal.t1 >= t_end) | (t1 >= t_end), torch.full_like(t, t_end), t1)
    return proposal._replace(t1=t1, dt=t1 - t)


def _finite_rows(*maps: Mapping[str, Tensor]) -> Tensor:
    """(B,) whether all entries are finite. A sum is finite only if every term is (or it overflows: then stop too)."""
    values = [value for each in maps for value in each.values()]
    # Asking costs nothing on the CPU, and one sum over everything less than one per graph.
    if values[0].device.type == "cpu" and all(math.isfinite(float(value.sum())) for value in values):
        return torch.ones(len(values[0]), dtype=torch.bool)
    sums = [value.flatten(1).sum(1) for value in values]
    return torch.stack(sums).isfinite().all(0)


def _where(moved: Tensor, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """`new` where a graph moved, else `old`; mostly all have, and on the CPU nothing is lost by asking."""
    return new if moved.device.type == "cpu" and bool(moved.all()) else where_rows(moved, new, old)


def _fit(state: GraphState, slots: int) -> GraphState:
    """Refilled graphs with the node slots of the batch."""
    if state.nodes > slots:
        raise InputError(f"refilled graphs have {state.nodes} node slots, the batch {slots}; pad the first batch")
    return state if state.nodes == slots else state.pad(slots)


def _check(
    sde: Sde,
    state: Any,
    controller: Controller,
    solver: Solver,
    noise: Noise,
    index: Tensor | None,
    max_steps: int,
    trace: int,
    snapshots: tuple[float, ...],
    refill: Refill | None,
) -> None:
    if not isinstance(state, GraphState):
        raise InputError(f"state must be a GraphState (see GraphState.of), got {type(state).__name__}")
    for value, method, home in (
        (controller, "propose", "control"),
        (solver, "advance", "solver"),
        (noise, "normal", "noise"),
    ):
        if not callable(getattr(value, method, None)):
            raise InputError(f"expected an object of isostep.{home}, got {value!r}")
    if not state.batch:
        raise InputError("the batch is empty; give at least one graph")
    if isinstance(sde, FlowSde):
        raise InputError("a probability flow is a way to step: give the model itself, and ProbabilityFlow(solver)")
    if sde.processes and sde.processes.keys() != state.components.keys():
        raise InputError(f"the model has components {sorted(sde.processes)}, the state {sorted(state.components)}")
    if index is not None and (index.shape != (state.batch,) or index.is_floating_point()):
        raise InputError(f"index must hold {state.batch} whole numbers, one per graph, got shape {tuple(index.shape)}")
    if index is not None and bool((index.sort().values.diff() == 0).any()):
        raise InputError("index names a graph twice; every graph of a batch needs its own index")
    if max_steps < 1 or trace < 0:
        raise InputError(f"max_steps must be at least 1 and trace at least 0, got {max_steps} and {trace}")
    if any(not 0 <= time <= 1 for time in snapshots):
        raise InputError(f"snapshot times must lie in [0, 1], got {snapshots}")
    if refill is not None and (controller.couples_graphs or solver.couples_graphs):
        raise InputError("refilling needs per-graph settings: this schedule or corrector couples the graphs of a batch")
    solver.check(sde)
