"""Runs in processes of their own, to be killed. Started by a server that has everything imported: quick to start."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import torch

from isostep.model.analytic import analytic_model
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.reading import read_run

GRAPHS, SHARD = 160, 8
PLAN = {"schedule": "uniform", "steps": 4, "batch_size": SHARD, "shard_size": SHARD, "seed": 7}


def context():
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.reliability.driving", "isostep.run.workers"])
    return server


def drive(folder: str, workers: int, joined: int) -> None:
    """The driver of a run: what `isostep sample --out` does."""
    torch.set_num_threads(1)
    writer.JOINED = joined
    sample_run(analytic_model(), GRAPHS, folder, workers=workers, **PLAN)


def start(folder: Path, workers: int, joined: int = writer.JOINED):
    process = context().Process(target=drive, args=(str(folder), workers, joined))
    process.start()
    return process


def worker_pids(driver: int) -> list[int]:
    """Children of the driver's children: its workers are started by a server."""
    return [pid for child in _children(driver) for pid in _children(child)]


def descendants(pid: int) -> list[int]:
    """All processes that come from this one."""
    return [found for child in _children(pid) for found in (child, *descendants(child))]


def _children(pid: int) -> list[int]:
    """Of any of its threads."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def kill(process, what: str, chooser: random.Random, wait: float) -> bool:
    """kill -9 of the driver or of one worker, `wait` seconds after workers are up; whether one was struck."""
    while process.exitcode is None and not worker_pids(process.pid):
        process.join(0.05)
    process.join(wait)
    if process.exitcode is not None:
        return False
    pids = [process.pid] if what == "driver" else worker_pids(process.pid)
    if not pids:
        return False
    try:
        os.kill(chooser.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_rounds(folder: Path, rounds: int, seed: int, expected: bytes) -> dict[str, int]:
    """Kill until `rounds` kills have struck; every finished run must hold the expected lines, each once."""
    chooser = random.Random(seed)
    struck = {"driver": 0, "worker": 0}
    finished = different = started = 0
    name = 0
    while sum(struck.values()) < rounds:
        run = folder / f"run{name}"
        process = start(run, workers=2, joined=writer.JOINED if name % 2 else 0)
        started += 1
        while process.exitcode is None and sum(struck.values()) < rounds:
            what = "driver" if struck["driver"] < struck["worker"] else "worker"
            struck[what] += kill(process, what, chooser, wait=chooser.uniform(0, 3))
            process.join(0.5)
        process.join()
        if process.exitcode == 0:
            finished += 1
            different += content(run) != expected
            name += 1
    # The last one, undisturbed.
    run = folder / f"run{name}"
    process = start(run, workers=2, joined=0)
    process.join()
    assert process.exitcode == 0
    different += content(run) != expected
    return {**struck, "drivers_started": started + 1, "runs": finished + 1, "different": different}


def content(folder: Path) -> bytes:
    """All lines of a finished run."""
    run = read_run(folder)
    assert run.complete
    return "".join(f"{index} {line}\n" for index, line in run.lines()).encode()
