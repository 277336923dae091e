"""kill -9 of drivers and workers at random moments: no graph is lost, doubled or different."""

from __future__ import annotations

import os
import random
import signal

import pytest

from isostep.run.inspect import verify
from isostep.run.reading import read_run
from tests.reliability import driving


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> bytes:
    """The undisturbed run, in one process."""
    folder = tmp_path_factory.mktemp("calm") / "run"
    driving.drive(str(folder), 1, driving.writer.JOINED)
    return driving.content(folder)


def test_a_killed_driver_is_continued_by_the_same_command(tmp_path, expected):
    process = driving.start(tmp_path / "run", workers=1, joined=0)
    while len(list((tmp_path / "run" / "shards").glob("0*"))) < 3:
        process.join(0.02)
        assert process.exitcode is None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    run = read_run(tmp_path / "run")
    assert 0 < len(run.shards) < run.plan.count
    kept = {shard: run.path(shard).stat().st_mtime_ns for shard in run.shards}
    assert verify(tmp_path / "run", batches=0).ok
    driving.start(tmp_path / "run", workers=1, joined=0).join()
    assert driving.content(tmp_path / "run") == expected
    assert all(run.path(shard).stat().st_mtime_ns == time for shard, time in kept.items()), "made twice"


def test_a_killed_worker_is_replaced_and_its_shard_made_again(tmp_path, expected):
    process = driving.start(tmp_path / "run", workers=2)
    assert driving.kill(process, "worker", random.Random(1), wait=0.2), "the run ended before a worker could be killed"
    process.join()
    assert process.exitcode == 0
    assert driving.content(tmp_path / "run") == expected


@pytest.mark.slow
def test_twenty_kills(tmp_path, expected):
    result = driving.kill_rounds(tmp_path, 20, seed=3, expected=expected)
    assert result["driver"] + result["worker"] == 20
    assert result["different"] == 0
