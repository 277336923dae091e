"""The same tasks on a Ray cluster: one actor per worker, one model copy each, results brought back to the driver.

The workers need Isostep installed, and no shared file system: the model goes out through Ray's object store, shards
come back as bytes.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from typing import Any

from isostep.base.errors import InputError, IsostepError, require
from isostep.run.workers import Event, Work

POLL = 1.0  # seconds


class _Actor:
    """Runs on the cluster. Two threads: one does the task, the other answers how far it is."""

    def __init__(self, data: bytes, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.work: Work = pickle.loads(data)
        self.reported: tuple[Any, float] = (None, 0.0)

    def run(self, task: Any) -> Any:
        def progress(fraction: float) -> None:
            self.reported = (task, fraction)

        return self.work.run(task, progress)

    def done(self, task: Any) -> float:
        return self.reported[1] if self.reported[0] == task else 0.0


class RayExecutor:
    """Workers as actors. `address`: "auto" is the cluster of this machine, started if there is none."""

    def __init__(self, work: Work, address: str, threads: int) -> None:
        self.ray: Any = require("ray", "ray", "--ray")
        self.threads = threads
        self._connect(address)
        self.data = self.ray.put(work.dumps())
        self.actor = self.ray.remote(num_cpus=threads, max_concurrency=2)(_Actor)
        self.running: dict[Any, tuple[Any, Any, Any]] = {}  # worker -> its task, the result to come, how far it is

    def _connect(self, address: str) -> None:
        options = {"logging_level": "ERROR", "log_to_driver": False, "ignore_reinit_error": True}
        try:
            if address != "auto":
                self.ray.init(address=address, **options)
                return
            try:
                self.ray.init(address="auto", **options)
            except ConnectionError:
                self.ray.init(include_dashboard=False, **options)
        except Exception as error:  # Ray raises that very class where a cluster does not start
            cause = str(error).split("\n")[0]
            raise InputError(
                f"cannot reach the Ray cluster {address!r}: {cause}; start one, or leave out --ray"
            ) from error

    def start(self) -> Any:
        return self.actor.remote(self.data, self.threads)

    def submit(self, worker: Any, task: Any) -> None:
        self.running[worker] = (task, worker.run.remote(task), worker.done.remote(task))

    def wait(self, workers: list[Any]) -> Iterator[Event]:
        coming = {self.running[worker][1]: worker for worker in workers}
        ready, _ = self.ray.wait(list(coming), num_returns=1, timeout=POLL)
        for reference in ready:
            yield Event(coming[reference], *self._fetch(reference))
        finished = {coming[reference] for reference in ready}
        yield from self._progress([worker for worker in workers if worker not in finished])

    def _fetch(self, reference: Any) -> tuple[str, Any]:
        try:
            return "done", self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, IsostepError):
                return "refused", str(error.cause)
            return "lost", f"{type(error.cause).__name__}: {error.cause}"
        except self.ray.exceptions.RayError as error:
            return "lost", f"{type(error).__name__}: {str(error).splitlines()[0]}"

    def _progress(self, workers: list[Any]) -> Iterator[Event]:
        asked = {self.running[worker][2]: worker for worker in workers if worker in self.running}
        if not asked:
            return
        ready, _ = self.ray.wait(list(asked), num_returns=len(asked), timeout=0)
        for reference in ready:
            worker = asked[reference]
            with contextlib.suppress(self.ray.exceptions.RayError):  # a dead one shows in `_fetch`
                fraction = self.ray.get(reference)
                task, result, _ = self.running[worker]
                self.running[worker] = (task, result, worker.done.remote(task))
                yield Event(worker, "progress", fraction)

    def stop(self, worker: Any) -> None:
        self.running.pop(worker, None)
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.kill(worker)
