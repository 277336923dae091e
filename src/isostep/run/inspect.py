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
from isostep.run.format import Plan, State, Writer, damaged, in_use, locked, read_state
from isostep.run.workers import to_line
from isostep.sampling.run import sample

RECENT = 50  # shards that the rate is measured over


def status(folder: str | Path) -> dict[str, Any]:
    state = read_state(folder)
    holder = in_use(state.folder)
    rate = _rate(state)
    left = state.plan.n - state.graphs
    return {
        "folder": str(folder),
        "model": state.plan.model,
        "state": "complete" if state.complete else "running" if holder else "stopped",
        "holder": holder,
        "graphs": state.graphs,
        "n": state.plan.n,
        "shards": state.plan.count,
        "shards_done": state.plan.count if state.complete else len(state.made),
        "graphs_per_second": rate,
        "seconds_left": left / rate if rate and not state.complete else None,
        "failed": {str(k): failed.failed for k, failed in sorted(state.failed.items())},
        "unfinished_graphs": len(state.unfinished()),
        "unreadable_lines": state.unreadable,
    }


def _rate(state: State) -> float | None:
    """Graphs per second over the shards finished last; None where there are too few of them."""
    if state.complete and state.run is not None and state.joined is not None:
        seconds = state.run["summary"].get("wall_seconds")
        return state.plan.n / seconds if seconds else None
    made = sorted(state.made.values(), key=lambda part: part.at)[-RECENT:]
    if len(made) < 2 or made[-1].at <= made[0].at:
        return None
    return sum(part.n for part in made[1:]) / (made[-1].at - made[0].at)


@dataclass
class Verdict:
    """`bad`: what is wrong, by shard (None: the one file of a small run). `missing`: shards not there yet."""

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
    model: str | Model | None = None,
    batches: int = 1,
    repair: bool = False,
    chooser: random.Random | None = None,
) -> Verdict:
    """Check all sums, then sample `batches` random batches again and compare line by line.

    `model`: where it is now, if not where the run found it. `repair`: bad shards are taken out of the run, and the
    sample command makes them again.
    """
    state = read_state(folder)
    verdict = Verdict(files=1 if state.joined is not None else len(state.made))
    verdict.missing = 0 if state.joined is not None else state.plan.count - len(state.made)
    verdict.bad = list(damaged(state))
    if batches and verdict.ok and verdict.files:
        loaded = _load(state.plan, model)
        chooser = chooser or random.Random(time.time_ns())
        for _ in range(batches):
            _regenerate(state, loaded, chooser, verdict)
    if repair and verdict.bad:
        with locked(state.folder):
            Writer(read_state(folder)).reopen([shard for shard, _ in verdict.bad if shard is not None])
        verdict.repaired = True
    return verdict


def _load(plan: Plan, model: str | Model | None) -> Model:
    loaded = load_model(model or plan.model, plan.card.get("weights"), preset=plan.preset)
    if loaded.fingerprint() != plan.fingerprint:
        raise InputError(f"the model {model or plan.model} is not the one of this run (its weights or card differ)")
    return loaded


def _regenerate(state: State, model: Model, chooser: random.Random, verdict: Verdict) -> None:
    """Sample one batch of a random shard as the run did, and compare."""
    plan = state.plan
    shard = chooser.choice(sorted(state.made)) if state.made else chooser.randrange(plan.count)
    task = plan.task(shard)
    first = chooser.randrange(task.start, task.start + task.n) // plan.batch_size * plan.batch_size
    low, high = max(first, task.start), min(first + plan.batch_size, task.start + task.n)
    result = sample(
        model, high - low, start=low, seed=plan.seed, batch_size=plan.batch_size, settings=plan.settings
    )  # fmt: skip
    expected = {i: to_line(i, item) for i, item in zip(range(low, high), result.items, strict=True)}
    stored = state.part(shard, low, high)
    different = [i for i, line in expected.items() if stored.get(i) != line]
    verdict.regenerated += len(expected)
    if different:
        what = f"{len(different)} of {len(expected)} graphs differ when sampled again, the first is {different[0]}"
        verdict.bad.append((None if state.joined is not None else shard, what))
