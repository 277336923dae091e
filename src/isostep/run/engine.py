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
from isostep.base.progress import log, showing
from isostep.base.progress import progress as task_of
from isostep.base.versions import versions
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.noise import check_seed
from isostep.run.export import export_items
from isostep.run.format import Machine, RunPlan, seconds_of, shard_size_of
from isostep.run.reading import is_run, read_run
from isostep.run.workers import Job, Outcome, ProcessExecutor, Work, cores, dispatch, pack_shard, run_here
from isostep.run.writer import Writer, open_run
from isostep.sampling.account import Account, warn_remarks
from isostep.sampling.calibrate import prepare
from isostep.sampling.extent import MOST_BATCH, check_extent
from isostep.sampling.run import DEFAULT_BATCH, SampleResult, advise
from isostep.settings.resolve import make_solver, resolve
from isostep.settings.schema import SamplerSettings


@dataclass(frozen=True)
class Engine:
    """Who does the work: `workers` processes here or, with `ray`, actors on a cluster; `threads` each."""

    workers: int = 1
    ray: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 100_000 or (self.threads is not None and self.threads < 1):
            raise InputError(f"workers and threads must be at least 1, got {self.workers} and {self.threads}")

    def outcomes(
        self, work: Work, tasks: Iterator[Any], advance: Callable[[float], None], lost: list[str] | None = None
    ) -> Iterator[Outcome]:
        """What came of the tasks; `lost` hears of workers that were replaced."""
        if self.ray is not None:
            from isostep.run.ray import RayExecutor

            return dispatch(RayExecutor(work, self.ray, self.threads or 1), tasks, self.workers, advance, lost=lost)
        if self.workers > 1:
            # Together the workers use the cores once, not each of them all.
            threads = self.threads or max(1, cores() // self.workers)
            return dispatch(ProcessExecutor(work, threads), tasks, self.workers, advance, lost=lost)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return run_here(work, tasks, advance)


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
    sdf: bool = False,
    workers: int = 1,
    ray: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    advance: Callable[[float], None] = lambda graphs: None,
    **chosen: Any,
) -> dict[str, Any]:
    """Sample graphs `start` .. `start + n - 1` into the folder `out`, or finish what is there; returns the summary.

    `chosen`: sampler settings as for `sample`. `sdf=True` also writes molecules.sdf. `progress=True` shows how far it
    is; `advance` hears of graphs as they are made.

    Example:
        >>> import tempfile, isostep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     settings = {"schedule": "cosine", "solver": "exponential-2", "steps": 10}
        ...     summary = isostep.sample_run("rings-and-stars", 20, folder, **settings)
        >>> summary["done"], summary["calls_mean"]
        (20, 10.0)
    """
    check_extent(n, start, batch_size)
    size = shard_size_of(batch_size, shard_size)
    engine = Engine(workers, ray, threads)
    loaded = load_model(model, weights, device, preset)
    settings = resolve(loaded.info.sampler, calls, **chosen)
    name = loaded.info.name if isinstance(model, Model) else str(model)
    if sdf and "sdf" not in loaded.decoder.item.texts:
        raise InputError(f"{name} makes {loaded.info.kind}s, which cannot be written as sdf; leave it out")
    check_seed(seed)
    make_solver(settings).check(loaded.sde)
    advise(loaded, calls, **chosen)
    asked = {**json.loads(settings.model_dump_json()), "calls": calls}
    with showing(progress):
        settings = _measured_before(Path(out), asked, loaded) or prepare(loaded, settings, calls)
        plan = _plan(
            loaded, model=name, preset=None if preset is None else str(preset), asked=asked, settings=settings,
            seed=seed, start=start, n=n, batch_size=batch_size, shard_size=size, trace=trace,
        )  # fmt: skip
        with open_run(out, plan) as writer:
            summary = complete_run(writer, loaded, engine, advance)
    if sdf:
        export_items(out, Path(out) / "molecules.sdf", "sdf")
    return summary


def _plan(model: Model, /, **fields: Any) -> RunPlan:
    fast, info = model.fast_settings, model.info
    return RunPlan(
        card={name: getattr(info, name) for name in ("name", "sha256", "weights", "dataset")},
        fingerprint=model.fingerprint(),
        kind=info.kind,
        machine=Machine(precision=fast.precision, backend=fast.backend, device=str(model.device), versions=versions()),
        **fields,
    )


def _measured_before(out: Path, asked: dict[str, Any], model: Model) -> SamplerSettings | None:
    """What a run that is continued has measured."""
    if not is_run(out):
        return None
    plan = read_run(out).plan
    return plan.settings if plan.asked == asked and plan.fingerprint == model.fingerprint() else None


def complete_run(writer: Writer, model: Model, engine: Engine, advance: Callable[[float], None]) -> dict[str, Any]:
    """Make what is missing; returns the summary of the whole run."""
    run, plan = writer.run, writer.run.plan
    advance(run.count)
    if run.record is not None:
        return run.record.summary
    began, before = time.perf_counter(), seconds_of(run.shards.values())
    lost: list[str] = []
    job = Job(model, plan.settings, plan.seed, plan.batch_size, plan.noise, plan.trace)

    def kept() -> str:
        return f"{run.folder} keeps {run.count} of {plan.n} graphs; the same command goes on"

    with task_of(f"sampling {model.info.name}", plan.n, "graphs", had=run.count, kept=kept) as shown:

        def more(graphs: float) -> None:
            shown(graphs)
            advance(graphs)

        with contextlib.closing(engine.outcomes(job, run.todo(), more, lost)) as outcomes:  # type: ignore[type-var]
            for task, shard, reason in outcomes:
                if shard is not None:
                    writer.add(shard)
                else:
                    writer.fail(task.shard, reason)
    if run.failed:
        first = min(run.failed)
        raise IsostepError(
            f"{len(run.failed)} of {plan.count} shards failed, the first is {first} ({run.failed[first].failed}); "
            "the others are kept: repeat the command to try these again"
        )
    account = Account.total(record.account for record in run.shards.values())
    warn_remarks(account, plan.settings)
    summary = account.summary(model.info.name, plan.settings, plan.seed)
    if all(shard.at for shard in run.shards.values()):  # one whose line was lost does not say when it was made
        summary["wall_seconds"] = before + time.perf_counter() - began
    if lost:
        summary["workers_replaced"] = len(lost)
        log.warning("%d workers were replaced (%s); their shards were made again", len(lost), lost[0])
    writer.finish(summary, str(model.device))
    return summary


def save_result(result: SampleResult, out: str | Path, name: str | Path | None = None) -> None:
    """Write what was sampled in memory as a finished run of one shard; `name` is where the model can be found again.

    Example:
        >>> import tempfile, isostep
        >>> result = isostep.sample("rings-and-stars", 3, schedule="uniform", steps=10)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     isostep.save_result(result, out)
        ...     isostep.load_run(out).items[0].edges.tolist() == result.graphs[0].edges.tolist()
        True
    """
    start, n = int(result.solution.index[0]), len(result)
    size = -(-(start + n) // result.batch_size) * result.batch_size
    if size > MOST_BATCH or result.noise is None:
        raise InputError(
            "only results of indices below 2^20 and of noise by name can be saved, since a run can be repeated; "
            "use sample_run, or noise='step' or 'path'"
        )
    plan = _plan(
        result.model, model=str(name or result.model.info.name), asked=json.loads(result.settings.model_dump_json()),
        settings=result.settings, seed=result.seed, start=start, n=n, batch_size=result.batch_size, shard_size=size,
        noise=result.noise, trace=result.solution.trace is not None,
    )  # fmt: skip
    with open_run(out, plan) as writer:
        if not writer.run.complete:
            writer.add(pack_shard(result, 0))
            writer.finish(result.summary(), str(result.model.device))
