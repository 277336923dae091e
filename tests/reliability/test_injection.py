"""Every write, fsync, rename, deletion and new folder of a run fails once: one line, and the next command ends it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from isostep.base.errors import InputError
from isostep.model.analytic import analytic_model
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.inspect import verify
from isostep.run.reading import read_run

PLAN = {"schedule": "uniform", "steps": 2, "batch_size": 4, "shard_size": 4}
CALLS = {
    "fsync": (os, "fsync"),
    "replace": (os, "replace"),
    "unlink": (os, "unlink"),
    "mkdir": (os, "mkdir"),
    "write_bytes": (Path, "write_bytes"),
    "write_text": (Path, "write_text"),
    "truncate": (os, "truncate"),
    "chmod": (os, "chmod"),
}


def run(folder: Path) -> None:
    sample_run(analytic_model(), 10, folder, **PLAN)


def refusal(folder: Path) -> str:
    """What the run says, nothing if it went through."""
    try:
        run(folder)
    except InputError as error:
        return str(error)
    return ""


class Faults:
    """The k-th call raises; the others do their work. k = -1 counts."""

    def __init__(self, monkeypatch, name: str, k: int, code: int, below: Path) -> None:
        self.seen = 0
        home, attribute = CALLS[name]
        real = getattr(home, attribute)

        def call(*args, **kwargs):
            if name != "fsync" and not str(args[0]).startswith(str(below)) and not kwargs.get("dir_fd"):
                return real(*args, **kwargs)
            self.seen += 1
            if self.seen - 1 == k:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        monkeypatch.setattr(home, attribute, call)


@pytest.mark.parametrize("joined", [0, 1000], ids=["shards", "one file"])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_may_fail(tmp_path, monkeypatch, name, joined):
    monkeypatch.setattr(writer, "JOINED", joined)
    run(tmp_path / "calm")
    expected = list(read_run(tmp_path / "calm").lines())
    with monkeypatch.context() as patched:
        count = Faults(patched, name, -1, 0, tmp_path)
        run(tmp_path / "counted")
    for k in range(count.seen):
        folder = tmp_path / f"run{k}"
        code = (errno.EIO, errno.ENOSPC, errno.EACCES)[k % 3]
        with monkeypatch.context() as patched:
            Faults(patched, name, k, code, tmp_path)
            message = refusal(folder)
        assert "\n" not in message
        assert not message or os.strerror(code) in message
        run(folder)
        assert list(read_run(folder).lines()) == expected
        assert verify(folder, analytic_model(), batches=0).ok
        assert not list(folder.rglob("*.tmp"))
    if name in ("fsync", "replace"):
        assert count.seen > 4
