"""Sampling many graphs: batches of consecutive indices through the loop, decoded, with an account of the work.

A graph is (model, settings, seed, index). With `clock="graph"` that is all it depends on; with `clock="batch"` the
batch, hence `batch_size`, belongs to it too, and batches are cut at multiples of `batch_size`, so a repeated or
resumed run meets the same batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.base.progress import listener, log, showing
from isostep.item import Item
from isostep.loop import Hook
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.noise import BrownianTree, Noise
from isostep.sampling.account import Account, warn_remarks
from isostep.sampling.batch import sample_batch
from isostep.sampling.calibrate import prepare
from isostep.sampling.extent import check_extent
from isostep.sampling.generated import Generated
from isostep.settings.resolve import auto_advice, build, resolve
from isostep.settings.schema import SamplerSettings
from isostep.solution import Solution, Status
from isostep.state import GraphState

DEFAULT_BATCH = 256
IN_MEMORY = 2**26  # graphs of one result
NoiseName = Literal["step", "path"]


@dataclass(frozen=True, eq=False)
class SampleResult(Generated):
    """Generated items in index order, and how they were made. `noise`: its name, None for a source of one's own.

    Example:
        >>> import isostep
        >>> result = isostep.sample("rings-and-stars", 4, schedule="uniform", steps=30)
        >>> result
        SampleResult(rings-and-stars: 4 of 4 graphs, 30 network calls)
        >>> result.to_networkx()[0].number_of_nodes(), result.summary()["calls_mean"]
        (8, 30.0)
    """

    model: Model
    settings: SamplerSettings
    seed: int
    solution: Solution
    items: list[Any]
    seconds: float
    batch_calls: int
    batch_size: int
    noise: NoiseName | None

    def __repr__(self) -> str:
        done = self.solution.counts()["done"]
        return f"SampleResult({self.model.info.name}: {done} of {len(self)} graphs, {self.batch_calls} network calls)"

    @property
    def item(self) -> type[Item]:
        return self.model.decoder.item

    @property
    def name(self) -> str:
        return self.model.info.name

    @property
    def tensors(self) -> GraphState:
        """The denoised output before decoding."""
        return self.solution.mean

    def records(self) -> list[dict[str, Any]]:
        s = self.solution
        rows = zip(s.index.tolist(), s.status.tolist(), s.steps.tolist(), s.calls.tolist(), self.items, strict=True)
        return [
            {"index": index, "status": Status(status).name.lower(), "steps": steps, "calls": calls, **item.row()}
            for index, status, steps, calls, item in rows
        ]

    def lines(self) -> list[str]:
        """As they stand in a run's file."""
        return [item.to_line(index) for index, item in zip(self.solution.index.tolist(), self.items, strict=True)]

    def account(self) -> Account:
        s, tally = self.solution, self.model.decoder.item.tally(self.items)
        return Account(
            len(self), s.counts(), int(s.steps.sum()), int(s.calls.sum()), self.batch_calls, self.seconds, tally,
            {name: int(count.sum()) for name, count in s.counted.items()},
        )  # fmt: skip

    def save(self, folder: str | Path, model: str | Path | None = None) -> None:
        """Write a finished run folder, as `isostep sample --out` does; `model`: where the model can be found again."""
        import isostep  # the package's face: run folders belong to a later room

        isostep.save_result(self, folder, model)

    def summary(self) -> dict[str, Any]:
        """The numbers of the summary table, ready for JSON."""
        return self.account().summary(self.model.info.name, self.settings, self.seed)


def sample(
    model: str | Path | Model,
    n: int = 100,
    *,
    schedule: str | None = None,
    solver: str | None = None,
    steps: int | None = None,
    calls: int | None = None,
    seed: int = 0,
    start: int = 0,
    batch_size: int = DEFAULT_BATCH,
    corrector: str | None = None,
    clock: str | None = None,
    weights: str | None = None,
    device: str | None = None,
    trace: int = 0,
    snapshots: tuple[float, ...] = (),
    hooks: tuple[Hook, ...] = (),
    noise: Noise | NoiseName = "step",
    progress: bool | Callable[[float], None] | None = False,
    settings: SamplerSettings | None = None,
    **chosen: Any,
) -> SampleResult:
    """Generate graphs `start` .. `start + n - 1` of a model.

    `calls` is a budget of network calls per graph. What is not given comes from the model's preset. Further settings:
    `snr`, `scale`, `schedule_options`, `solver_options`, `max_steps`. The same seed and index give the same graph,
    whatever `n`, `start` and, with `clock="graph"`, `batch_size`. `noise="path"`: one Brownian path per graph, whatever
    the grid. `trace=1` notes every step (of the first batch only, unless graphs have clocks of their own), `snapshots`
    keeps the denoised means at these times, `hooks` see every step. `progress=True` shows how far it is; a function is
    told the share that is done. `settings`: those of another result, in the place of all choices.

    Example:
        >>> import isostep
        >>> settings = {"schedule": "cosine", "solver": "exponential-2", "steps": 10, "seed": 7}
        >>> many = isostep.sample("rings-and-stars", 5, **settings)
        >>> one = isostep.sample("rings-and-stars", 1, start=3, **settings)
        >>> many.lines()[3] == one.lines()[0]                        # graph 3, alone
        True
    """
    check_extent(n, start, batch_size)
    if n > IN_MEMORY:
        raise InputError(f"{n} graphs are more than the 2^26 that memory is for; write a run (--out DIR, sample_run)")
    chosen |= {"schedule": schedule, "solver": solver, "steps": steps, "corrector": corrector, "clock": clock}
    if settings is not None and (ignored := [k for k, v in {**chosen, "calls": calls}.items() if v is not None]):
        raise InputError(f"{', '.join(ignored)} beside settings would be ignored; give one or the other")
    loaded = load_model(model, weights, device)
    if settings is None:
        settings = resolve(loaded.info.sampler, calls, **chosen)
        advise(loaded, calls, **chosen)
    source = _noise(noise, seed)
    with showing(progress is True):
        settings = prepare(loaded, settings, calls)
        parts, items, began = [], [], time.perf_counter()
        with listener(progress, f"sampling {loaded.info.name}", n, "graphs") as upto:
            for done, rows in _batches(start, n, None if build(settings).own_clocks else batch_size):
                part = sample_batch(
                    loaded, settings, rows, seed, slots=batch_size, trace=trace, snapshots=snapshots, hooks=hooks,
                    noise=source,
                    progress=lambda f, d=done, r=rows: upto((d + f * len(r)) / n),
                )  # fmt: skip
                parts.append(part)
                items.extend(loaded.decode(part.mean))
    solution = join(parts)
    seconds = time.perf_counter() - began
    name = noise if isinstance(noise, str) else None
    result = SampleResult(
        loaded, settings, seed, solution, items, seconds, sum(p.batch_calls for p in parts), batch_size, name
    )
    warn_remarks(result.account(), settings)
    return result


def advise(model: Model, calls: int | None, **chosen: Any) -> None:
    """Say in one line where `auto` stands for something that nobody measured on this model."""
    if line := auto_advice(model.info.sampler, calls, **chosen):
        log.warning(line)


def _noise(noise: Noise | NoiseName, seed: int) -> Noise | None:
    """None: whatever the settings ask for, step by step."""
    if isinstance(noise, str) and noise not in get_args(NoiseName):
        raise InputError(f"noise must be step, path or a source of your own, got {noise!r}")
    return BrownianTree(seed) if noise == "path" else None if isinstance(noise, str) else noise


def join(parts: list[Solution]) -> Solution:
    """Several batches as one solution; the trace is that of the first batch, since clocks differ between batches."""
    if len(parts) == 1:
        return parts[0]
    times = sorted({t for p in parts for t in p.snapshots or {}})
    return Solution(
        state=GraphState.cat([p.state for p in parts]),
        mean=GraphState.cat([p.mean for p in parts]),
        index=torch.cat([p.index for p in parts]),
        t=torch.cat([p.t for p in parts]),
        steps=torch.cat([p.steps for p in parts]),
        calls=torch.cat([p.calls for p in parts]),
        status=torch.cat([p.status for p in parts]),
        batch_calls=sum(p.batch_calls for p in parts),
        trace=parts[0].trace,
        counted={name: torch.cat([p.counted[name] for p in parts]) for name in parts[0].counted},
        snapshots={
            t: GraphState.cat([p.snapshots[t] for p in parts if p.snapshots and t in p.snapshots]) for t in times
        }
        or None,
    )


def _batches(start: int, n: int, size: int | None) -> Iterator[tuple[int, Tensor]]:
    """(graphs before, indices) of each batch, cut at multiples of `size`.

    None, where graphs have clocks of their own: all go through one queue, a finished graph's slot is refilled.
    """
    first = start
    while first < start + n:
        last = start + n if size is None else min((first // size + 1) * size, start + n)
        yield first - start, torch.arange(first, last)
        first = last
