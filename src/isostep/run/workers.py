"""Tasks done by several workers, each with its own copy of the job; a worker that dies loses only its task.

    dispatch          hands tasks out, one at a time to each worker, tries a lost one again, replaces the dead
    ProcessExecutor   the workers of this machine: one process each, told what to do through a pipe

The tasks are a run's shards (`Job` here) or a study's cells (`study/compute.py`). A worker computes a shard and sends
bytes back; the driver alone writes. So a dead worker leaves nothing behind, and no more than one shard per worker is in
flight.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from isostep.base.errors import InputError, IsostepError
from isostep.base.processes import safe_path
from isostep.model.model import Model
from isostep.run.format import Shard, ShardRecord, Task, pack
from isostep.sampling.run import NoiseName, SampleResult, sample
from isostep.settings.schema import SamplerSettings
from isostep.solution import Status

ATTEMPTS = 3
REPORT_EVERY = 0.5  # seconds between a worker's reports
TIMES, QUIET, QUIET_AT_FIRST = 3, 60.0, 3600.0  # a worker may be silent for so many shards, at least so many seconds


class Work(Protocol):
    """What all tasks share, sent to a worker once. `run` does one of them (a frozen record of `n` items) and says which
    part of it is done."""

    def dumps(self) -> bytes: ...

    def run(self, task: Any, progress: Callable[[float], None] | None = None) -> Any: ...


def dump_work(work: Any) -> bytes:
    """For a worker; a fresh `Model` has no prepared forms of its network yet."""
    try:
        return pickle.dumps(replace(work, model=replace(work.model, fast=work.model.fast_settings)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"this model cannot be sent to other processes ({str(error).splitlines()[0][:200]}); define its parts "
            "at the top of an importable module, or leave out --workers"
        ) from error


@dataclass(frozen=True)
class Job:
    """What all shards of a run share."""

    model: Model
    settings: SamplerSettings
    seed: int
    batch_size: int
    noise: NoiseName = "step"
    trace: bool = False

    def dumps(self) -> bytes:
        return dump_work(self)

    def run(self, task: Task, progress: Callable[[float], None] | None = None) -> Shard:
        """Sample the items of one shard."""
        began = time.process_time()
        result = sample(
            self.model, task.n, start=task.start, seed=self.seed, batch_size=self.batch_size, settings=self.settings,
            noise=self.noise, trace=int(self.trace and task.shard == 0), progress=progress,
        )  # fmt: skip
        return pack_shard(result, task.shard, time.process_time() - began)


def pack_shard(result: SampleResult, shard: int, cpu_seconds: float = 0.0) -> Shard:
    """What was sampled, as bytes and the manifest's line."""
    solution = result.solution
    data = pack(result.lines())
    record = ShardRecord(
        shard=shard,
        sha256=sha256(data).hexdigest(),
        bytes=len(data),
        unfinished=tuple(solution.index[solution.status != Status.DONE].tolist()),
        cpu_seconds=cpu_seconds,
        **asdict(result.account()),
    )
    return Shard(record, data, None if solution.trace is None else solution.trace.to_dict())


class Event(NamedTuple):
    """What a worker reports: `what` is progress, done, refused (an error the user can mend) or lost."""

    worker: Any
    what: str
    value: Any


class Executor(Protocol):
    """Somewhere to run workers."""

    def start(self) -> Any:
        """A new worker."""
        ...

    def submit(self, worker: Any, task: Any) -> None: ...

    def wait(self, workers: list[Any]) -> Iterable[Event]:
        """What these busy workers report, soon."""
        ...

    def stop(self, worker: Any) -> None: ...


class Outcome(NamedTuple):
    """What came of a task, or None and why."""

    task: Any
    result: Any
    reason: str = ""


def dispatch(
    executor: Executor,
    tasks: Iterator[Any],
    workers: int,
    advance: Callable[[float], None],
    attempts: int = ATTEMPTS,
    lost: list[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Outcome]:
    """Outcomes of all tasks in the order in which they end; `advance` hears of items as they progress, `lost` of every
    worker that was replaced. One that makes no progress for long (`patience`) is taken for dead.
    """
    again: deque[tuple[Any, int]] = deque()
    idle: list[Any] = []
    busy: dict[Any, _Busy] = {}
    times: list[float] = []  # that tasks took
    streak = 0  # losses since the last success
    try:
        while True:
            while len(busy) < workers and (given := _next(again, tasks)) is not None:
                worker = idle.pop() if idle else executor.start()
                busy[worker] = _Busy(*given, clock())
                executor.submit(worker, given[0])
            if not busy:
                return
            # Who is silent is asked once all that was said has been heard.
            for worker, what, value in itertools.chain(executor.wait(list(busy)), _silent(busy, times, clock)):
                if worker not in busy:
                    continue
                task, attempt, reported = busy[worker].task, busy[worker].attempt, busy[worker].reported
                if what == "progress":
                    busy[worker].progress(value * task.n, clock())
                    advance(busy[worker].reported - reported)
                    continue
                took = clock() - busy.pop(worker).began
                if what == "refused":
                    executor.stop(worker)
                    raise InputError(value)
                if what == "done":
                    idle.append(worker)
                    advance(task.n - reported)
                    streak = 0
                    times.append(took)
                    yield Outcome(task, value)
                    continue
                if lost is not None:
                    lost.append(str(value))
                executor.stop(worker)
                advance(-reported)
                streak += 1
                if streak > attempts * max(2, workers):
                    raise IsostepError(f"workers keep dying: {value}; what is finished is kept")
                if attempt < attempts:
                    again.append((task, attempt + 1))
                else:
                    yield Outcome(task, None, f"{attempts} attempts: {value}")
    finally:
        for worker in (*busy, *idle):
            executor.stop(worker)


@dataclass
class _Busy:
    """What a worker is at, and when it was last heard of."""

    task: Any
    attempt: int
    began: float
    reported: float = 0.0  # items
    heard: float = 0.0

    def __post_init__(self) -> None:
        self.heard = self.began

    def progress(self, items: float, now: float) -> None:
        if items > self.reported:  # the same answer again is no sign of life
            self.reported, self.heard = items, now


def patience(times: list[float]) -> float:
    """Seconds that a worker may be silent, from those that finished tasks took."""
    return max(QUIET, TIMES * max(times)) if times else QUIET_AT_FIRST


def _silent(busy: dict[Any, _Busy], times: list[float], clock: Callable[[], float]) -> Iterator[Event]:
    """Workers to be given up."""
    most = patience(times)
    for worker, work in list(busy.items()):
        if (silence := clock() - work.heard) > most:
            yield Event(worker, "lost", f"a worker was silent for {silence:.0f} s")


def _next(again: deque[tuple[Any, int]], tasks: Iterator[Any]) -> tuple[Any, int] | None:
    if again:
        return again.popleft()
    task = next(tasks, None)
    return None if task is None else (task, 1)


def run_here(work: Work, tasks: Iterator[Any], advance: Callable[[float], None]) -> Iterator[Outcome]:
    """Outcomes of tasks run in this process, one after the other. One that fails is not tried again: it would meet the
    same. After ATTEMPTS failures in a row, so would the others."""
    streak = 0
    for task in tasks:
        reported, reason = 0.0, ""

        def progress(fraction: float, n: int = task.n) -> None:
            nonlocal reported
            advance(max(0.0, fraction * n - reported))
            reported = max(reported, fraction * n)

        try:
            result = work.run(task, progress)
        except (IsostepError, OSError, MemoryError):  # no other task would fare better
            raise
        except Exception as error:
            result, reason = None, f"{type(error).__name__}: {error}"
        advance((0 if reason else task.n) - reported)
        streak = streak + 1 if reason else 0
        yield Outcome(task, result, reason)
        if streak == ATTEMPTS:
            raise IsostepError(f"{streak} in a row failed, the last with {reason}; what is finished is kept")


@dataclass(eq=False)
class _Process:
    process: Any
    pipe: Connection
    tasks: SimpleQueue[Any]  # to be sent; None: no more


class ProcessExecutor:
    """Workers as processes of this machine, `threads` each.

    A thread talks to each: a process that is stopped in the middle of a message keeps its thread, not the driver.
    """

    def __init__(self, work: Work, threads: int) -> None:
        self.data, self.threads = work.dumps(), threads
        self.context = _context(type(work).__module__)
        self.events: SimpleQueue[Event] = SimpleQueue()

    def start(self) -> _Process:
        here, there = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(there, self.threads), daemon=True)
        with safe_path():
            process.start()
        there.close()
        worker = _Process(process, here, SimpleQueue())
        threading.Thread(target=self._talk, args=(worker,), daemon=True).start()
        return worker

    def _talk(self, worker: _Process) -> None:
        try:
            with worker.pipe as pipe:
                pipe.send(self.data)
                for task in iter(worker.tasks.get, None):
                    pipe.send(task)
                    what = "progress"
                    while what == "progress":
                        what, value = pipe.recv()
                        self.events.put(Event(worker, what, value))
        except (EOFError, OSError):  # the other end is gone
            worker.process.join(timeout=5)
            reason = f"a worker process ended with code {worker.process.exitcode}"
            self.events.put(Event(worker, "lost", reason))

    def submit(self, worker: _Process, task: Any) -> None:
        worker.tasks.put(task)

    def wait(self, workers: list[_Process]) -> Iterator[Event]:
        with contextlib.suppress(Empty):
            yield self.events.get(timeout=1.0)
            while True:
                yield self.events.get_nowait()

    def stop(self, worker: _Process) -> None:
        worker.tasks.put(None)
        worker.process.terminate()
        worker.process.join(timeout=3)
        if worker.process.is_alive():  # one that is stopped does not even see the signal
            worker.process.kill()
            worker.process.join(timeout=3)


def _context(module: str) -> Any:
    """New processes from a server that has imported everything and computed nothing: a worker starts at once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module])
    return context


def _serve(pipe: Connection, threads: int) -> None:
    """A worker's life: take a task, send what came of it, until the driver is gone."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes; the driver stops us
    torch.set_num_threads(threads)
    _die_with_parent()
    try:
        work = pickle.loads(pipe.recv())
        while True:
            task = pipe.recv()
            pipe.send(_attempt(work, task, Throttled(lambda fraction: pipe.send(("progress", fraction)))))
    except (EOFError, OSError):
        return


def _attempt(work: Work, task: Any, progress: Callable[[float], None]) -> tuple[str, Any]:
    try:
        return "done", work.run(task, progress)
    except IsostepError as error:
        return "refused", str(error)
    except (EOFError, OSError):
        raise
    except Exception as error:  # anything else may be this machine's: let another worker try
        return "lost", f"{type(error).__name__}: {error}"


class Throttled:
    """Calls at most once in REPORT_EVERY seconds."""

    def __init__(self, call: Callable[[float], None]) -> None:
        self.call, self.last = call, time.monotonic()

    def __call__(self, value: float) -> None:
        if time.monotonic() - self.last >= REPORT_EVERY:
            self.last = time.monotonic()
            self.call(value)


def _die_with_parent() -> None:
    """A killed driver cannot tell its workers: they watch it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_workers(asked: str | int) -> int:
    """How many processes `--workers` means: a number, or `auto`, one for every core."""
    if asked == "auto":
        return cores()
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if not 1 <= count <= 100_000:
        raise InputError(f"--workers takes a number from 1 on, or auto (one process a core), got {asked!r}")
    return count
