"""Shards made by several workers, each with its own copy of the model; a worker that dies loses only its shard.

    dispatch    hands shards out, one at a time to each worker, tries a lost one again, replaces the dead
    Processes   the crew of this machine: one process per worker, told what to do through a pipe

A worker computes and sends bytes back; the driver alone writes. So a dead worker leaves nothing behind, and no more
than one shard per worker is in flight.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol

from isostep.base.errors import InputError, IsostepError
from isostep.item.graph import Graph
from isostep.model.model import Model
from isostep.run.format import Made, Shard, Task, pack
from isostep.sampling.run import sample
from isostep.settings.schema import SamplerSettings
from isostep.solution import Status

ATTEMPTS = 3
TELL_EVERY = 0.5  # seconds between a worker's reports


@dataclass(frozen=True)
class Job:
    """What all shards of a run share."""

    model: Model
    settings: SamplerSettings
    seed: int
    batch_size: int
    trace: bool = False

    def dumps(self) -> bytes:
        """For a worker of this run: not the prepared forms of the network that `Model` keeps."""
        return pickle.dumps(
            (self.model.info, self.model.network, self.settings, self.seed, self.batch_size, self.trace)
        )

    @staticmethod
    def loads(data: bytes) -> Job:
        info, network, settings, seed, batch_size, trace = pickle.loads(data)
        return Job(Model(info, network), settings, seed, batch_size, trace)


def make_shard(job: Job, task: Task, tell: Callable[[float], None] | None = None) -> Shard:
    """Sample the graphs of one shard; `tell` hears which part of it is done."""
    trace, began = job.trace and task.shard == 0, time.process_time()
    result = sample(
        job.model, task.n, start=task.start, seed=job.seed, batch_size=job.batch_size, settings=job.settings,
        trace=int(trace), progress=tell,
    )  # fmt: skip
    s = result.solution
    lines = [to_line(index, item) for index, item in zip(s.index.tolist(), result.items, strict=True)]
    data = pack(lines)
    made = Made(
        shard=task.shard,
        sha256=sha256(data).hexdigest(),
        bytes=len(data),
        n=len(lines),
        counts=s.counts(),
        unfinished=tuple(s.index[s.status != Status.DONE].tolist()),
        steps=int(s.steps.sum()),
        calls=int(s.calls.sum()),
        batch_calls=result.batch_calls,
        valid=sum(not isinstance(item, Graph) and item.valid for item in result.items),
        seconds=result.seconds,
        cpu_seconds=time.process_time() - began,
    )
    return Shard(made, data, s.trace.to_dict() if trace and s.trace is not None else None)


def to_line(index: int, item: Any) -> str:
    """One graph or molecule as its line of a run's file."""
    return item.to_json() if isinstance(item, Graph) else f"{item.smiles}\t{index}\t{int(item.valid)}"


class Event(NamedTuple):
    """What a worker reports: `kind` is tell, done, refused (an error the user can mend) or lost."""

    worker: Any
    kind: str
    value: Any


class Crew(Protocol):
    """Somewhere to run workers."""

    def start(self) -> Any:
        """A new worker."""
        ...

    def give(self, worker: Any, task: Task) -> None: ...

    def wait(self, workers: list[Any]) -> Iterable[Event]:
        """What these busy workers report, soon."""
        ...

    def stop(self, worker: Any) -> None: ...


class Outcome(NamedTuple):
    """A shard, or why there is none."""

    task: Task
    shard: Shard | None
    reason: str = ""


def dispatch(
    crew: Crew, tasks: Iterator[Task], workers: int, advance: Callable[[float], None], attempts: int = ATTEMPTS
) -> Iterator[Outcome]:
    """Outcomes of all tasks in the order in which they end; `advance` hears of graphs as they progress."""
    again: deque[tuple[Task, int]] = deque()
    idle: list[Any] = []
    busy: dict[Any, tuple[Task, int, float]] = {}  # worker -> task, attempt, graphs told
    streak = 0  # losses since the last success
    try:
        while True:
            while len(busy) < workers and (given := _next(again, tasks)) is not None:
                worker = idle.pop() if idle else crew.start()
                busy[worker] = (*given, 0.0)
                crew.give(worker, given[0])
            if not busy:
                return
            for worker, kind, value in crew.wait(list(busy)):
                task, attempt, told = busy[worker]
                if kind == "tell":
                    advance(max(0.0, value * task.n - told))
                    busy[worker] = (task, attempt, max(told, value * task.n))
                    continue
                del busy[worker]
                if kind == "refused":
                    crew.stop(worker)
                    raise InputError(value)
                if kind == "done":
                    idle.append(worker)
                    advance(task.n - told)
                    streak = 0
                    yield Outcome(task, value)
                    continue
                crew.stop(worker)
                advance(-told)
                streak += 1
                if streak > attempts * max(2, workers):
                    raise IsostepError(f"workers keep dying: {value}; what is finished is kept")
                if attempt < attempts:
                    again.append((task, attempt + 1))
                else:
                    yield Outcome(task, None, f"{attempts} attempts: {value}")
    finally:
        for worker in (*busy, *idle):
            crew.stop(worker)


def _next(again: deque[tuple[Task, int]], tasks: Iterator[Task]) -> tuple[Task, int] | None:
    if again:
        return again.popleft()
    task = next(tasks, None)
    return None if task is None else (task, 1)


def run_here(job: Job, tasks: Iterator[Task], advance: Callable[[float], None]) -> Iterator[Outcome]:
    """Outcomes of tasks run in this process, one after the other."""
    for task in tasks:
        told = 0.0

        def tell(fraction: float, n: int = task.n) -> None:
            nonlocal told
            advance(max(0.0, fraction * n - told))
            told = max(told, fraction * n)

        shard = make_shard(job, task, tell)
        advance(task.n - told)
        yield Outcome(task, shard)


@dataclass(eq=False)
class _Process:
    process: Any
    pipe: Connection
    ready: bool = False
    task: Task | None = None


class Processes:
    """Workers as processes of this machine, `threads` each."""

    def __init__(self, job: Job, threads: int) -> None:
        self.data, self.threads = job.dumps(), threads
        self.context = _context()

    def start(self) -> _Process:
        here, there = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(there, self.threads), daemon=True)
        process.start()
        there.close()
        return _Process(process, here)

    def give(self, worker: _Process, task: Task) -> None:
        worker.task = task
        if worker.ready:
            _send(worker, task)

    def wait(self, workers: list[_Process]) -> Iterator[Event]:
        ready = wait([worker.pipe for worker in workers], timeout=1.0)
        for worker in workers:
            if worker.pipe not in ready:
                continue
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):  # the other end is gone
                worker.process.join(timeout=5)
                kind, value = "lost", f"a worker process ended with code {worker.process.exitcode}"
            if kind == "ready":  # only now: a model sent to a worker that is still starting would block the driver
                worker.ready = True
                _send(worker, self.data)
                _send(worker, worker.task)
            else:
                yield Event(worker, kind, value)

    def stop(self, worker: _Process) -> None:
        worker.pipe.close()
        worker.process.terminate()
        worker.process.join(timeout=10)
        if worker.process.is_alive():
            worker.process.kill()


def _context() -> Any:
    """New processes from a server that has imported everything and computed nothing: a worker starts at once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _send(worker: _Process, value: Any) -> None:
    with contextlib.suppress(OSError):  # a dead worker shows in `wait`
        worker.pipe.send(value)


def _serve(pipe: Connection, threads: int) -> None:
    """A worker's life: take a task, send a shard, until the driver is gone."""
    import torch

    torch.set_num_threads(threads)
    _die_with_parent()
    try:
        pipe.send(("ready", None))
        job = Job.loads(pipe.recv())
        while True:
            task = pipe.recv()
            pipe.send(_attempt(job, task, Throttled(lambda fraction: pipe.send(("tell", fraction)))))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _attempt(job: Job, task: Task, tell: Callable[[float], None]) -> tuple[str, Any]:
    try:
        return "done", make_shard(job, task, tell)
    except IsostepError as error:
        return "refused", str(error)
    except (EOFError, OSError):
        raise
    except Exception as error:  # anything else may be this machine's: let another worker try
        return "lost", f"{type(error).__name__}: {error}"


class Throttled:
    """Calls at most once in TELL_EVERY seconds."""

    def __init__(self, call: Callable[[float], None]) -> None:
        self.call, self.last = call, time.monotonic()

    def __call__(self, value: float) -> None:
        if time.monotonic() - self.last >= TELL_EVERY:
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
