"""Ray: the files of a local run, also when a worker is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from isostep.model.analytic import analytic_model
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.reading import read_run
from tests.reliability.driving import descendants

PLAN = {"schedule": "uniform", "steps": 4, "batch_size": 8, "shard_size": 8}


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_a_ray_cluster_of_two_workers_writes_the_same_files_even_if_one_is_killed(tmp_path, monkeypatch, ray):
    monkeypatch.setattr(writer, "JOINED", 0)
    sample_run(analytic_model(), 96, tmp_path / "here", **PLAN)
    killed = []

    def kill_once(graphs: float) -> None:
        """A worker process of the cluster, once some work is done."""
        if killed or graphs <= 0:
            return
        actors = [pid for pid in descendants(os.getpid()) if b"_Actor" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(actors[0], signal.SIGKILL)
        killed.append(actors[0])

    sample_run(analytic_model(), 96, tmp_path / "ray", workers=2, ray="auto", advance=kill_once, **PLAN)
    assert killed
    for path in (tmp_path / "here" / "shards").iterdir():
        assert path.read_bytes() == (tmp_path / "ray" / "shards" / path.name).read_bytes()
    assert not read_run(tmp_path / "ray").failed
