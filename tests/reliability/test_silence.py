"""A worker that hangs is replaced, its shard made again, and the summary says so."""

from __future__ import annotations

import os
import pickle
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from isostep.model.analytic import Exact, analytic_model
from isostep.model.model import Model
from isostep.network.analytic import rings_and_stars
from isostep.run import workers, writer
from isostep.run.engine import sample_run
from isostep.run.format import ShardRecord
from isostep.run.inspect import status
from isostep.run.reading import read_run
from isostep.run.workers import Event, ProcessExecutor, dispatch, patience

PLAN = {"schedule": "uniform", "steps": 4, "batch_size": 8, "shard_size": 8}


class HangsOnce(Exact):
    """Sleeps for ever in the first shard, unless another worker has done so already."""

    mark = ""

    def forward(self, x, a, mask, t):
        if self.mark and not Path(self.mark).exists():
            Path(self.mark).touch()
            time.sleep(3600)
        return super().forward(x, a, mask, t)


def hanging(folder: Path) -> Model:
    info = analytic_model().info
    network = HangsOnce(rings_and_stars(info.processes()))
    network.mark = str(folder / "hung")
    return Model(info, network)


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "JOINED", 0)
    monkeypatch.setattr(workers, "QUIET", 2.0)
    monkeypatch.setattr(workers, "QUIET_AT_FIRST", 20.0)
    sample_run(analytic_model(), 40, tmp_path / "calm", **PLAN)
    summary = sample_run(hanging(tmp_path), 40, tmp_path / "run", workers=2, **PLAN)
    assert summary["workers_replaced"] == 1
    assert list(read_run(tmp_path / "run").lines()) == list(read_run(tmp_path / "calm").lines())
    assert "workers_replaced" not in read_run(tmp_path / "calm").record.summary


class Task:
    n = 10


class Scripted:
    """Workers that say what a list says, at times that a clock says."""

    def __init__(self, said: list[tuple[float, list[tuple[int, str, object]]]]) -> None:
        self.said, self.now, self.started, self.stopped = list(said), 0.0, 0, []

    def clock(self) -> float:
        return self.now

    def start(self) -> int:
        self.started += 1
        return self.started

    def submit(self, worker: int, task: Task) -> None: ...

    def wait(self, busy: list[int]) -> list[Event]:
        after, events = self.said.pop(0) if self.said else (1e9, [(worker, "done", worker) for worker in busy])
        self.now += after
        return [Event(*event) for event in events]

    def stop(self, worker: int) -> None:
        self.stopped.append(worker)


def test_silence_is_measured_in_shards():
    """Nothing is known at first; then a shard of 100 s allows 300 s of silence."""
    assert patience([]) == workers.QUIET_AT_FIRST
    assert patience([0.01, 0.02]) == workers.QUIET
    assert patience([100.0, 40.0]) == 100.0 * workers.TIMES


@pytest.mark.parametrize(("silent", "replaced"), [(299.0, 0), (301.0, 1)])
def test_only_progress_counts_as_life(silent, replaced):
    """An actor of Ray answers how far it is while the work hangs: the same answer again is silence."""
    executor = Scripted(
        [
            (100.0, [(1, "done", "first"), (2, "progress", 0.5)]),
            (silent, [(2, "progress", 0.5)]),
            (0.0, [(1 if replaced else 2, "done", "second")]),  # the idle one takes it over
        ]
    )
    lost: list[str] = []
    outcomes = list(dispatch(executor, iter([Task(), Task()]), 2, lambda items: None, lost=lost, clock=executor.clock))
    assert sorted(outcome.result for outcome in outcomes) == ["first", "second"]
    assert len(lost) == replaced
    assert (2 in executor.stopped[:1]) == bool(replaced)


@dataclass(frozen=True)
class Piece:
    n: int
    stops: str = ""  # the worker stops in the middle of sending, unless this file is there
    ballast: bytes = b""


@dataclass(frozen=True)
class Stopping:
    """Work of a process that can stop (SIGSTOP) when half of a message is sent."""

    def dumps(self) -> bytes:
        return pickle.dumps(self)

    def run(self, task: Piece, progress=None) -> int:
        if task.stops and not Path(task.stops).exists():
            Path(task.stops).touch()
            Connection._send = _half  # type: ignore[attr-defined]
        return task.n


def _half(self: Connection, message: bytes) -> None:
    os.write(self.fileno(), message[: len(message) // 2])
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.fixture
def bounded():
    """A driver that waits for ever fails instead."""

    def late(*_):
        raise AssertionError("the driver waits for a process that is stopped")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_worker_stopped_while_it_sends_is_replaced(tmp_path, monkeypatch, bounded):
    monkeypatch.setattr(workers, "QUIET", 3.0)
    tasks = [Piece(1), Piece(2, stops=str(tmp_path / "stopped")), Piece(3)]
    lost: list[str] = []
    outcomes = list(dispatch(ProcessExecutor(Stopping(), 1), iter(tasks), 1, lambda items: None, lost=lost))
    assert sorted(outcome.result for outcome in outcomes) == [1, 2, 3]
    assert len(lost) == 1
    assert "silent" in lost[0]


def test_a_stopped_worker_keeps_nobody(bounded):
    """It takes no task (more than a pipe holds), and SIGTERM waits for it; neither may keep the driver."""
    executor = ProcessExecutor(Stopping(), 1)
    worker = executor.start()
    executor.submit(worker, Piece(1))
    while not [event for event in executor.wait([worker]) if event.what == "done"]:
        pass
    os.kill(worker.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    executor.submit(worker, Piece(2, ballast=bytes(2**22)))
    assert not list(executor.wait([worker]))
    executor.stop(worker)
    assert time.monotonic() - began < 10
    assert not worker.process.is_alive()


def test_a_silent_run_has_no_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "JOINED", 0)
    sample_run(analytic_model(), 40, tmp_path, **PLAN)
    run = read_run(tmp_path)
    writer.Writer(run).reopen([4])
    manifest = tmp_path / "shards.jsonl"
    records = [ShardRecord.model_validate_json(line) for line in manifest.read_text().splitlines()]
    ago = [record.model_copy(update={"at": time.time() - 1000 + 2 * k}) for k, record in enumerate(records)]
    manifest.write_text("".join(record.model_dump_json() + "\n" for record in ago))
    from isostep.run.lock import locked

    with locked(tmp_path):
        report = status(tmp_path)
    assert report["state"] == "running"
    assert report["seconds_left"] is None
    assert report["silent_seconds"] > 900


@pytest.mark.slow
def test_a_ray_actor_that_hangs_is_replaced(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        monkeypatch.setattr(writer, "JOINED", 0)
        monkeypatch.setattr(workers, "QUIET", 5.0)
        monkeypatch.setattr(workers, "QUIET_AT_FIRST", 60.0)
        sample_run(analytic_model(), 40, tmp_path / "calm", **PLAN)
        summary = sample_run(hanging(tmp_path), 40, tmp_path / "run", workers=2, ray="auto", **PLAN)
    finally:
        ray.shutdown()
    assert summary["workers_replaced"] == 1
    assert list(read_run(tmp_path / "run").lines()) == list(read_run(tmp_path / "calm").lines())
