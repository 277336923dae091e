"""A run of any length into a folder: plan, hand out shards, write them as they come, finish.

The same command again continues; so does one with other `workers` or on Ray, since these do not decide the graphs.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isostep.base.errors import InputError, IsostepError
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.run.format import PLAN, RUN, Plan, State, Task, Writer, opened, read_state
from isostep.run.workers import Job, Outcome, Processes, cores, dispatch, run_here
from isostep.run.write import versions
from isostep.sampling.calibrate import prepare
from isostep.sampling.run import DEFAULT_BATCH
from isostep.settings.schema import SamplerSettings, resolve

SHARD = 1024  # graphs of a shard, rounded up to whole batches


@dataclass(frozen=True)
class Engine:
    """Who does the work: `workers` processes here or, with `ray`, actors on a cluster; `threads` each."""

    workers: int = 1
    ray: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 100_000 or (self.threads is not None and self.threads < 1):
            raise InputError(f"workers and threads must be at least 1, got {self.workers} and {self.threads}")

    def outcomes(self, job: Job, tasks: Iterator[Task], advance: Callable[[float], None]) -> Iterator[Outcome]:
        if self.ray is not None:
            from isostep.run.ray import RayCrew

            return dispatch(RayCrew(job, self.ray, self.threads or 1), tasks, self.workers, advance)
        if self.workers > 1:
            # Together the workers use the cores once, not each of them all.
            threads = self.threads or max(1, cores() // self.workers)
            return dispatch(Processes(job, threads), tasks, self.workers, advance)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return run_here(job, tasks, advance)


def sample_run(
    model: str | Path | Model,
    n: int,
    out: str | Path,
    *,
    seed: int = 0,
    start: int = 0,
    batch_size: int = DEFAULT_BATCH,
    shard_size: int | None = None,
    calls: int | None = None,
    weights: str | None = None,
    device: str | None = None,
    preset: str | Path | None = None,
    trace: bool = False,
    workers: int = 1,
    ray: str | None = None,
    threads: int | None = None,
    advance: Callable[[float], None] = lambda graphs: None,
    **chosen: Any,
) -> dict[str, Any]:
    """Sample graphs `start` .. `start + n - 1` into the folder `out`, or finish what is there; returns the summary.

    `chosen`: sampler settings as for `sample`. `advance` hears of graphs as they are made.
    """
    engine = Engine(workers, ray, threads)
    loaded = load_model(model, weights, device, preset)
    settings = resolve(loaded.info.sampler, **chosen)
    name = loaded.info.name if isinstance(model, Model) else str(model)
    size = shard_size or -(-SHARD // max(1, batch_size)) * batch_size
    plan = make_plan(
        loaded, name, settings, Path(out), calls=calls, n=n, start=start, batch_size=batch_size, shard_size=size,
        seed=seed, trace=trace, preset=None if preset is None else str(preset),
    )  # fmt: skip
    with opened(out, plan) as writer:
        return run_plan(writer, loaded, engine, advance)


def make_plan(
    model: Model, name: str, settings: SamplerSettings, out: Path, calls: int | None, n: int, start: int,
    batch_size: int, shard_size: int, seed: int, trace: bool, preset: str | None,
) -> Plan:  # fmt: skip
    """The plan of a run; what needs measuring is measured once, and taken from the folder when it is continued."""
    if not 1 <= n <= 2**40 or not 0 <= start <= 2**40:
        raise InputError(f"n must be from 1 to 2^40 and start from 0, got {n} and {start}")
    if not 1 <= batch_size <= shard_size <= 2**20:
        raise InputError(
            f"batch size and shard size must be 1 to 2^20 and in this order, got {batch_size}, {shard_size}"
        )
    asked = {**json.loads(settings.model_dump_json()), "calls": calls}
    fingerprint = model.fingerprint()
    info = model.info
    return Plan(
        model=name,
        preset=preset,
        card={"name": info.name, "sha256": info.sha256, "weights": info.weights, "dataset": info.dataset},
        fingerprint=fingerprint,
        kind=info.kind,
        asked=asked,
        settings=_measured_before(out, asked, fingerprint) or prepare(model, settings, calls),
        seed=seed,
        start=start,
        n=n,
        batch_size=batch_size,
        shard_size=shard_size,
        trace=trace,
    ).check()


def _measured_before(out: Path, asked: dict[str, Any], fingerprint: str) -> SamplerSettings | None:
    if not (out / RUN).is_file() and not (out / PLAN).is_file():
        return None
    plan = read_state(out).plan
    return plan.settings if plan.asked == asked and plan.fingerprint == fingerprint else None


def run_plan(writer: Writer, model: Model, engine: Engine, advance: Callable[[float], None]) -> dict[str, Any]:
    """Make what is missing; returns the summary of the whole run."""
    state, plan = writer.state, writer.state.plan
    advance(state.graphs)
    if state.run is not None:
        return state.run["summary"]
    began = time.perf_counter()
    job = Job(model, plan.settings, plan.seed, plan.batch_size, plan.trace)
    with contextlib.closing(engine.outcomes(job, state.todo(), advance)) as outcomes:  # type: ignore[type-var]
        for task, shard, reason in outcomes:
            if shard is not None:
                writer.add(shard)
            else:
                writer.fail(task.shard, reason)
    if state.failed:
        first = min(state.failed)
        raise IsostepError(
            f"{len(state.failed)} of {plan.count} shards failed, the first is {first} ({state.failed[first].failed}); "
            "the others are kept: repeat the command to try these again"
        )
    summary = summarise(state, time.perf_counter() - began)
    writer.finish(summary, str(model.device), versions())
    return summary


def summarise(state: State, wall: float) -> dict[str, Any]:
    """Sums over the shards: what `SampleResult.summary` says of a run in memory. `seconds` counts all workers."""
    plan, made = state.plan, state.made.values()
    settings = plan.settings
    counts: dict[str, int] = {}
    for part in made:
        for name, value in part.counts.items():
            counts[name] = counts.get(name, 0) + value
    out = {
        "model": plan.card["name"],
        "graphs": plan.n,
        **counts,
        "schedule": settings.schedule,
        "solver": settings.solver,
        "corrector": settings.corrector,
        "clock": settings.clock,
        "coupled": settings.couples_graphs,
        "seed": plan.seed,
        "steps_mean": sum(part.steps for part in made) / plan.n,
        "calls_mean": sum(part.calls for part in made) / plan.n,
        "batch_calls": sum(part.batch_calls for part in made),
        "seconds": sum(part.seconds for part in made),
        "wall_seconds": wall,
    }
    if plan.kind == "molecule":
        out["valid"] = sum(part.valid for part in made) / plan.n
    return out
