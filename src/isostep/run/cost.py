"""What a run will cost, from a few steps taken here.

    batch seconds = steps * (seconds of a step) + seconds to decode
    run seconds   = the time at which the last of W workers is done, when each takes the next shard as it gets free

With shards of equal length that is ceil(shards / W) * (seconds of a shard). `simulate` adds what the formula leaves
out: steps that do not all take the same time, and workers that die, lose their shard and come back after a pause.
"""

from __future__ import annotations

import heapq
import math
import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch

from isostep.base.errors import InputError
from isostep.model.model import Model
from isostep.run.format import pack
from isostep.sampling.batch import sample_batch
from isostep.settings.resolve import build
from isostep.settings.schema import SamplerSettings

STEPS = 12  # measured, after two that warm up
RESTART, ROUNDS = 30.0, 20  # seconds until a dead worker is replaced; simulations
PILOT = 8  # graphs that are followed to the end, for the steps and the size of a graph


@dataclass(frozen=True)
class StepCost:
    """Of one worker with the batch size of the run."""

    step_seconds: tuple[float, ...]
    steps: float  # tried per batch
    calls_per_step: int
    decode_seconds: float
    batch_size: int
    bytes_per_graph: float
    memory: int  # bytes, the peak of this process

    @property
    def batch_seconds(self) -> float:
        return self.steps * statistics.fmean(self.step_seconds) + self.decode_seconds


@dataclass(frozen=True)
class Estimate:
    """Seconds, bytes: `seconds` by the formula, `low` and `high` a 90 % range of the simulation."""

    n: int
    workers: int
    shards: int
    seconds: float
    low: float
    high: float
    worker_seconds: float
    memory_per_worker: int
    disk: int
    network_calls: float


def measure_steps(model: Model, settings: SamplerSettings, batch_size: int, seed: int = 0) -> StepCost:
    """Take a few steps of one batch, and follow a few graphs to the end."""
    ticks: list[float] = []

    def tick(info: object) -> None:
        ticks.append(time.perf_counter())

    pilot = sample_batch(model, settings, torch.arange(min(PILOT, batch_size)), seed)
    few = settings.model_copy(update={"max_steps": min(settings.max_steps, STEPS + 2)})
    solution = sample_batch(model, few, torch.arange(batch_size), seed, hooks=(tick,))
    if len(ticks) < 3:
        raise InputError(f"a run of {len(ticks)} steps is too short to measure; plan 3 or more (--steps, --calls)")
    began = time.perf_counter()
    model.decode(solution.mean)
    decode = time.perf_counter() - began
    items = model.decode(pilot.mean)
    size = len(pack([item.to_line(i) for i, item in enumerate(items)])) / len(items)
    steps = np.diff(ticks)[1:] if len(ticks) > 3 else np.diff(ticks)
    sampler, calls = build(settings), pilot.calls.double()  # of rejected steps, too
    return StepCost(
        tuple(steps.tolist()),
        float(calls.max() if sampler.couples_graphs else calls.mean()) / sampler.solver.calls_per_step,
        sampler.solver.calls_per_step,
        decode,
        batch_size,
        size,
        _peak_memory(),
    )


def estimate(measured: StepCost, n: int, workers: int, shard_size: int, failures: float = 0.0) -> Estimate:
    """`failures` per worker and hour."""
    if n < 1 or workers < 1 or shard_size < 1 or failures < 0:
        raise InputError(f"n, workers and shard size must be at least 1, got {n}, {workers}, {shard_size}")
    shards = -(-n // shard_size)
    batches = -(-shard_size // measured.batch_size)
    shard_seconds = batches * measured.batch_seconds
    total = n / measured.batch_size * measured.batch_seconds
    random = np.random.default_rng(0)
    # A shard is a sum of many steps: normal, with the variance of a step times their number.
    spread = statistics.pstdev(measured.step_seconds) * math.sqrt(batches * measured.steps)
    ends = sorted(
        simulate(shard_seconds, spread, shards, workers, failures / 3600, RESTART, random) for _ in range(ROUNDS)
    )
    return Estimate(
        n,
        workers,
        shards,
        max(total / workers, -(-shards // workers) * shard_seconds if shards > 1 else total),
        ends[int(0.05 * (ROUNDS - 1))],
        ends[math.ceil(0.95 * (ROUNDS - 1))],
        total,
        measured.memory,
        int(n * measured.bytes_per_graph),
        -(-n // measured.batch_size) * measured.steps * measured.calls_per_step,
    )


def simulate(
    mean: float, spread: float, shards: int, workers: int, rate: float, restart: float, random: np.random.Generator
) -> float:
    """When the last shard is done; `rate` failures per second of work."""
    free = [0.0] * min(workers, shards)
    heapq.heapify(free)
    last, left = 0.0, shards
    while left:
        at = heapq.heappop(free)
        length = max(0.1 * mean, random.normal(mean, spread))
        dies = random.exponential(1 / rate) if rate else math.inf
        if dies < length:
            heapq.heappush(free, at + dies + restart)
            continue
        left -= 1
        last = max(last, at + length)
        heapq.heappush(free, at + length)
    return last


def _peak_memory() -> int:
    """Most bytes this process has held, or 0 where the system does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # pragma: no cover
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
