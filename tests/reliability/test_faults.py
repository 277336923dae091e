"""Full disks, damaged files, folders in use, networks that fail: a clear error, nothing lost, and the run goes on."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess

import pytest
import torch

from isostep.base.errors import InputError, IsostepError
from isostep.model.analytic import Exact, analytic_model
from isostep.model.model import Model
from isostep.network.analytic import rings_and_stars
from isostep.run import writer
from isostep.run.inspect import status, verify
from isostep.run.lock import in_use, locked
from isostep.run.reading import read_run
from tests.reliability.small import lines, run


@pytest.fixture(autouse=True)
def _sharded(monkeypatch):
    """Small runs that stay in shards, as large ones do."""
    monkeypatch.setattr(writer, "JOINED", 0)


def damage(path, chooser: random.Random) -> None:
    """Cut, overwrite or lengthen a file."""
    data = bytearray(path.read_bytes())
    place = chooser.randrange(len(data))
    match chooser.randrange(4):
        case 0:
            del data[place:]
        case 1:
            data[place : place + 9] = bytes(chooser.randrange(256) for _ in range(9))
        case 2:
            data[place:place] = b"\x00" * 50
        case 3:
            data[place] ^= 1 << chooser.randrange(8)
    path.write_bytes(bytes(data))


# --- who may write ---------------------------------------------------------------------------------------------------


def test_two_processes_cannot_write_one_folder(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(InputError, match=rf"in use by process {os.getpid()} on .* since .*; wait"),
    ):
        run(tmp_path)


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path, calm):
    (tmp_path / ".lock").write_text("process 999999 on nowhere since 2020-01-01 00:00:00\n")
    assert in_use(tmp_path) is None
    run(tmp_path)
    assert lines(tmp_path) == calm


@pytest.mark.parametrize("place", ["file", "proc"])
def test_a_folder_that_cannot_be_written(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        run(tmp_path / "file" / "run" if place == "file" else "/proc/isostep")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot write"):
        run(tmp_path)


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "graphs.jsonl").write_text("mine\n")
    with pytest.raises(InputError, match="but no"):
        run(tmp_path)
    assert (tmp_path / "graphs.jsonl").read_text() == "mine\n"


# --- full disks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 150, 400, 900])
def test_a_write_that_fails_is_named_and_the_run_goes_on_later(tmp_path, calm, room):
    """Files may not grow beyond `room` bytes: the plan, a shard or the manifest fails."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, old[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write .*: File too large"):
            run(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert not list(tmp_path.rglob("*.tmp"))
    run(tmp_path)
    assert lines(tmp_path) == calm


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 48 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True)
    except OSError as error:
        pytest.skip(f"no mount command: {error}")
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(small_disk, tmp_path, calm):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (48 * 1024 - 5 * 4096))
    with pytest.raises(InputError, match="No space left on device"):
        run(small_disk / "run")
    assert 0 < len(read_run(small_disk / "run").shards) < 4
    assert verify(small_disk / "run", batches=0).ok
    ballast.unlink()
    run(small_disk / "run")
    assert lines(small_disk / "run") == calm


# --- damage ----------------------------------------------------------------------------------------------------------


def test_an_interrupted_write_leaves_nothing_that_matters(tmp_path, calm):
    stopped(tmp_path, after=2)
    (tmp_path / "shards" / ".000002.jsonl.gz.abc.isostep.tmp").write_bytes(b"half")
    with open(tmp_path / "shards.jsonl", "ab") as manifest:
        manifest.write(b'{"shard": 2, "sha256": "12')
    assert status(tmp_path)["unreadable_lines"] == 1
    run(tmp_path)
    assert lines(tmp_path) == calm
    assert not list(tmp_path.rglob("*.tmp"))


def stopped(folder, after: int) -> None:
    """A run that ends after some shards, as if interrupted."""

    class Stop(Exception):
        pass

    done = 0

    def advance(graphs: float) -> None:
        nonlocal done
        done += graphs
        if done >= 8 * after + 4:
            raise Stop

    with pytest.raises(Stop):
        run(folder, advance=advance)
    assert len(read_run(folder).shards) == after


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_manifest_costs_time_not_graphs(tmp_path, calm, seed):
    run(tmp_path)
    damage(tmp_path / "shards.jsonl", random.Random(seed))
    run(tmp_path)
    assert lines(tmp_path) == calm


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_shard_is_found_taken_out_and_made_again(tmp_path, calm, seed):
    run(tmp_path)
    chooser = random.Random(seed)
    shard = chooser.randrange(4)
    damage(tmp_path / f"shards/{shard:06d}.jsonl.gz", chooser)
    verdict = verify(tmp_path, repair=True)
    assert [number for number, _ in verdict.bad] == [shard]
    run(tmp_path)
    assert lines(tmp_path) == calm
    assert verify(tmp_path).ok


@pytest.mark.parametrize("name", ["plan.json", "run.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 2}', '{"format": 1}', "\x00\xff"])
def test_a_damaged_plan_is_refused_with_one_line(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    for act in (run, read_run, status, verify):
        with pytest.raises(InputError) as caught:
            act(tmp_path)
        assert "\n" not in str(caught.value)


def test_graphs_of_another_seed_are_not_the_run(tmp_path):
    """Sums alone would not notice: a shard of another run, with its own manifest line."""
    run(tmp_path / "a")
    run(tmp_path / "b", seed=1)
    for name in ("shards", "shards.jsonl"):
        subprocess.run(["rm", "-r", str(tmp_path / "a" / name)], check=True)
        os.rename(tmp_path / "b" / name, tmp_path / "a" / name)
    verdict = verify(tmp_path / "a")
    assert "differ when sampled again" in verdict.bad[0][1]


# --- plans of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [({"seed": 1}, "seed is 0, not 1"), ({"n": 31}, "n is 30, not 31"), ({"steps": 4}, "steps is 3, not 4")],
)
def test_another_setting_in_the_same_folder_is_refused(tmp_path, change, named):
    run(tmp_path)
    with pytest.raises(InputError, match=f"holds another run: its {named}"):
        run(tmp_path, **change)


def test_a_declared_size_of_a_million_million_is_not_allocated(tmp_path):
    run(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    for key, value in (("n", 10**12), ("shard_size", 10**12), ("batch_size", 10**12), ("n", 10**13)):
        (tmp_path / "run.json").write_text(json.dumps({**record, key: value}))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if value == 10**12 and key == "n":
            assert status(tmp_path)["n"] == value
            with pytest.raises(InputError, match="not complete"):
                lines(tmp_path)
        else:
            with pytest.raises(InputError):
                status(tmp_path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_no_path_is_read_from_a_run_folder(tmp_path):
    run(tmp_path / "run")
    path = tmp_path / "run" / "shards.jsonl"
    first, *others = path.read_text().splitlines()
    outside = {**json.loads(first), "file": "../../outside"}
    path.write_text("\n".join([json.dumps(outside), *others]) + "\n")
    state = read_run(tmp_path / "run")
    assert state.unreadable == 1
    assert 0 not in state.shards


# --- networks --------------------------------------------------------------------------------------------------------


class SometimesNan(Exact):
    """NaN for graphs whose first feature is large."""

    def forward(self, x, a, mask, t):
        clean_x, clean_a = super().forward(x, a, mask, t)
        bad = x[:, 0, 0] > 1
        return torch.where(bad[:, None, None], torch.nan, clean_x), clean_a


class Broken(Exact):
    """An error nobody foresaw."""

    def forward(self, x, a, mask, t):
        if bool((x[:, 0, 0] < -2).any()):  # graphs of shard 0 only
            raise RuntimeError("out of memory")
        return super().forward(x, a, mask, t)


def with_network(kind: type[Exact]) -> Model:
    info = analytic_model().info
    return Model(info, kind(rings_and_stars(info.processes())))


def test_nan_of_some_graphs_is_counted_and_leaves_the_others_alone(tmp_path, calm):
    summary = run(tmp_path, model=with_network(SometimesNan))
    state = read_run(tmp_path)
    bad = state.unfinished()
    assert 0 < len(bad) < 30
    assert summary["non_finite"] == len(bad) == status(tmp_path)["unfinished_graphs"]
    assert [pair for pair in lines(tmp_path) if pair[0] not in bad] == [pair for pair in calm if pair[0] not in bad]


@pytest.mark.parametrize(("workers", "tried"), [(1, ""), (2, "3 attempts: ")])
def test_a_shard_that_keeps_failing_is_reported_and_the_others_are_kept(tmp_path, workers, tried):
    model, made = with_network(Broken), []
    with pytest.raises(IsostepError, match=rf"1 of 3 shards failed, the first is \d \({tried}RuntimeError: out of"):
        run(tmp_path, model=model, workers=workers, n=24, advance=made.append)
    assert sum(made) == pytest.approx(16)
    report = status(tmp_path)
    assert report["state"] == "stopped"
    assert report["failed"]
    assert report["shards_done"] + len(report["failed"]) == report["shards"]


class Never(Exact):
    """Fails with an error of a kind."""

    error: type[BaseException] = RuntimeError

    def forward(self, x, a, mask, t):
        raise self.error("no such luck")


def test_a_run_without_workers_in_which_everything_fails_ends_early(tmp_path):
    with pytest.raises(IsostepError, match="3 in a row failed, the last with RuntimeError: no such luck"):
        run(tmp_path, model=with_network(Never))
    assert [*status(tmp_path)["failed"]] == ["0", "1", "2"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, OSError, InputError])
def test_what_is_not_of_one_shard_ends_a_run_without_workers(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(Never, "error", kind)
    with pytest.raises(kind):
        run(tmp_path, model=with_network(Never))
    assert not status(tmp_path)["failed"]
