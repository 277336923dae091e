"""How a run stands, and whether its files are what they were.

status    finished graphs, the recent rate, the time left at that rate, failed shards
verify    checksums of all files, and some batches sampled anew: the same lines, or the run is not what it says
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.model.own import is_reference
from isostep.run.format import RunPlan, seconds_of
from isostep.run.lock import in_use, locked
from isostep.run.reading import RunFolder, read_run
from isostep.run.workers import QUIET
from isostep.run.writer import Writer
from isostep.sampling.run import sample
from isostep.settings.resolve import build

RECENT = 50  # shards that the rate is measured over
SHARDS_LATE = 5


def status(folder: str | Path) -> dict[str, Any]:
    run = read_run(folder)
    holder = in_use(run.folder)
    rate = _rate(run)
    silent = _silence(run) if holder else None
    left = run.plan.n - run.count
    return {
        "folder": str(folder),
        "model": run.plan.model,
        "state": _state(run, holder),
        "holder": holder,
        "graphs": run.count,
        "n": run.plan.n,
        "shards": run.plan.count,
        "shards_done": run.plan.count - run.missing,
        "graphs_per_second": rate,
        "seconds_left": left / rate if rate and not run.complete and silent is None else None,
        "silent_seconds": silent,
        "failed": {str(k): failed.failed for k, failed in sorted(run.failed.items())},
        "unfinished_graphs": len(run.unfinished()),
        "unreadable_lines": run.unreadable,
    }


def _state(run: RunFolder, holder: str | None) -> str:
    if run.complete:
        return "damaged" if run.missing or next(run.damaged(), None) else "complete"
    return "running" if holder else "stopped"


def _silence(run: RunFolder) -> float | None:
    """Seconds since the last shard, where that is far longer than shards take; then nothing can be said of the end."""
    times = sorted(shard.at for shard in run.shards.values())[-RECENT:]
    if len(times) < 2:
        return None
    silence = time.time() - times[-1]
    return silence if silence > max(QUIET, SHARDS_LATE * (times[-1] - times[0]) / (len(times) - 1)) else None


def _rate(run: RunFolder) -> float | None:
    """Graphs per second over the shards finished last, pauses left out; None where there are too few of them."""
    if run.record is not None and run.joined is not None:
        seconds = run.record.summary.get("wall_seconds")
        return run.plan.n / seconds if seconds else None
    timed = (shard for shard in run.shards.values() if shard.at)  # a line that was lost had the time
    recent = sorted(timed, key=lambda shard: shard.at)[-RECENT:]
    seconds = seconds_of(recent[1:], since=recent[0].at) if recent else 0.0
    return sum(shard.n for shard in recent[1:]) / seconds if seconds else None


@dataclass
class Verdict:
    """`bad`: what is wrong, by shard (None: the whole run). `missing`: shards that are not there."""

    files: int
    bad: list[tuple[int | None, str]] = field(default_factory=list)
    missing: int = 0
    regenerated: int = 0
    repaired: bool = False

    @property
    def ok(self) -> bool:
        return not self.bad


def verify(
    folder: str | Path,
    model: str | Path | Model | None = None,
    batches: int = 1,
    repair: bool = False,
) -> Verdict:
    """Check all sums, then sample `batches` random batches again and compare line by line.

    `model`: where it is now, if not where the run found it. `repair`: bad shards are taken out of the run, and the
    sample command makes them again.
    """
    run = read_run(folder)
    verdict = Verdict(files=1 if run.joined is not None else len(run.shards))
    verdict.missing = run.missing
    verdict.bad = list(run.damaged())
    if run.complete and run.missing:
        verdict.bad.append((None, f"{run.missing} of {run.plan.count} shards are not there, but the run is complete"))
    if batches and verdict.ok and verdict.files:
        loaded = _load(run.plan, model)
        chooser = random.Random(time.time_ns())
        for _ in range(batches):
            _regenerate(run, loaded, chooser, verdict)
    if repair and verdict.bad:
        with locked(run.folder):
            Writer(read_run(folder)).reopen([shard for shard, _ in verdict.bad if shard is not None])
        verdict.repaired = True
    return verdict


def _load(plan: RunPlan, model: str | Path | Model | None) -> Model:
    if model is None and is_reference(plan.model):
        # A folder that came from elsewhere must not choose which code runs here.
        raise InputError(f"this run's model is code ({plan.model}); name it with --model to let it run")
    preset = None if isinstance(model, Model) else plan.preset
    loaded = load_model(model or plan.model, plan.card.get("weights"), preset=preset)
    if loaded.fingerprint() != plan.fingerprint:
        raise InputError(f"the model {model or plan.model} is not the one of this run (its weights or card differ)")
    return loaded


def _regenerate(run: RunFolder, model: Model, chooser: random.Random, verdict: Verdict) -> None:
    """Sample one batch of a random shard as the run did, and compare.

    Where graphs have clocks of their own, places are refilled and the batch is the shard.
    """
    plan = run.plan
    shard = chooser.choice(sorted(run.shards)) if run.shards else chooser.randrange(plan.count)
    task = plan.task(shard)
    first = chooser.randrange(task.start, task.start + task.n) // plan.batch_size * plan.batch_size
    low, high = max(first, task.start), min(first + plan.batch_size, task.start + task.n)
    if build(plan.settings).own_clocks:
        low, high = task.start, task.start + task.n
    result = sample(
        model, high - low, start=low, seed=plan.seed, batch_size=plan.batch_size, settings=plan.settings,
        noise=plan.noise,
    )  # fmt: skip
    expected = dict(zip(range(low, high), result.lines(), strict=True))
    stored = run.part(shard, low, high)
    different = [i for i, line in expected.items() if stored.get(i) != line]
    verdict.regenerated += len(expected)
    if different:
        what = f"{len(different)} of {len(expected)} graphs differ when sampled again, the first is {different[0]}"
        verdict.bad.append((None if run.joined is not None else shard, what))
