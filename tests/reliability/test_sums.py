"""What a run folder says of itself is checked against its files; lost files cost as little as they can."""

from __future__ import annotations

import json
import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from isostep.base.errors import InputError
from isostep.base.files import replacing, write_text
from isostep.metric.items import gather
from isostep.model.analytic import analytic_model
from isostep.run.format import pack
from isostep.run.inspect import status, verify
from isostep.run.reading import read_run
from tests.reliability.small import lines, run


def lose_manifest(folder: Path) -> None:
    (folder / "shards.jsonl").unlink()


def lose_a_shard(folder: Path) -> None:
    path = folder / "shards.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"shard":2,' not in line))
    next(folder.glob("shards/000002*")).unlink()


@pytest.mark.parametrize("lose", [lose_manifest, lose_a_shard])
def test_a_complete_run_that_misses_shards_is_not_ok(tmp_path, calm, lose):
    run(tmp_path)
    lose(tmp_path)
    report = status(tmp_path)
    assert report["state"] == "damaged"
    assert report["shards_done"] < report["shards"]
    verdict = verify(tmp_path)
    assert not verdict.ok
    assert verdict.missing
    verify(tmp_path, repair=True)
    run(tmp_path)
    assert lines(tmp_path) == calm
    assert verify(tmp_path).ok


def forged(path: Path) -> bytes:
    """Other bytes of the same length."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    return bytes(data)


def test_a_forged_shard_of_equal_size_is_not_joined(tmp_path, calm):
    """The run is stopped with one shard missing, a shard is changed, the run goes on to one plain file."""
    run(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(tmp_path)))
    (tmp_path / "run.json").unlink()
    lose_a_shard(tmp_path)
    shard = next(tmp_path.glob("shards/000001*"))
    shard.write_bytes(forged(shard))
    run(tmp_path, joined=1000)
    assert lines(tmp_path) == calm


def plan_of(folder: Path) -> dict:
    return read_run(folder).plan.model_dump(mode="json")


def test_a_changed_file_of_a_finished_run_is_not_taken_for_it(tmp_path, calm):
    run(tmp_path, joined=1000)
    plain = tmp_path / "graphs.jsonl"
    plain.write_bytes(forged(plain))
    assert status(tmp_path)["state"] == "damaged"
    with pytest.raises(InputError, match=r"sha256 .*verify --repair"):
        lines(tmp_path)
    with pytest.raises(InputError, match="sha256"):
        gather(tmp_path)
    run(tmp_path, joined=1000)  # the same command makes it again
    assert lines(tmp_path) == calm


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 10**30},
        {"calls": 10**15},
        {"counts": {"done": 10**9}},
        {"counts": {"done": 9, "max_steps": -1}},
        {"tally": {"valid": 10**9}},
        {"unfinished": [10**6]},
        {"seconds": 1e300},
        {"at": 1e300},
        {"batch_calls": 10**15},
    ],
)
def test_absurd_counts_are_not_summed(tmp_path, change):
    run(tmp_path)
    path = tmp_path / "shards.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), **change}), *others]) + "\n")
    assert read_run(tmp_path).unreadable == 1


def test_shards_are_used_when_the_plan_is_lost(tmp_path, calm):
    run(tmp_path)
    for name in ("run.json", "shards.jsonl"):
        (tmp_path / name).unlink()
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("shards/*")}
    assert len(made) == 4
    next(iter(made)).unlink()
    assert status(tmp_path)["graphs"] < 30
    run(tmp_path)
    assert lines(tmp_path) == calm
    kept = [path for path, at in made.items() if path.stat().st_mtime_ns == at]
    assert len(kept) == 3
    assert verify(tmp_path).ok


def test_shards_of_another_plan_are_not_used(tmp_path):
    run(tmp_path, seed=5)
    for name in ("run.json", "shards.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(InputError, match="holds another run: its seed is 5, not 0"):
        run(tmp_path)


def test_a_shard_that_says_nothing_of_its_plan_is_not_used(tmp_path):
    """Nor is one cut short: its sum is gone with the manifest, but not its length and check sum inside."""
    run(tmp_path)
    for name in ("run.json", "shards.jsonl"):
        (tmp_path / name).unlink()
    paths = sorted(tmp_path.glob("shards/*"))
    paths[1].write_bytes(paths[1].read_bytes()[:-5])
    paths[2].write_bytes(pack(["{}"] * 8))
    assert sorted(read_run(tmp_path).shards) == [0, 3]


def test_a_shard_is_plain_gzip(tmp_path, calm):
    import gzip

    run(tmp_path)
    texts = [gzip.decompress(path.read_bytes()).decode() for path in sorted(tmp_path.glob("shards/*"))]
    assert "".join(texts).splitlines() == [line for _, line in calm]


# --- resuming elsewhere ----------------------------------------------------------------------------------------------


def stopped(folder) -> None:
    """A run with one shard missing."""
    run(folder)
    (folder / "plan.json").write_text(json.dumps(plan_of(folder)))
    (folder / "run.json").unlink()
    lose_a_shard(folder)


def test_another_precision_is_refused(tmp_path, monkeypatch):
    stopped(tmp_path)
    monkeypatch.setenv("ISOSTEP_PRECISION", "bfloat16")
    with pytest.raises(InputError, match=r"holds another run: its precision is float32, not bfloat16"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "reference"}, "backend was reference, now is auto"),
        ({"device": "cuda:0"}, "device was cuda:0, now is cpu"),
        ({"versions": {"torch": "1.0"}}, "torch was 1.0, now is "),
    ],
)
def test_another_machine_is_named(tmp_path, caplog, change, words):
    stopped(tmp_path)
    plan = plan_of(tmp_path)
    plan["machine"] |= change
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    run(tmp_path)
    assert words in caplog.text


def test_workers_have_the_drivers_precision(monkeypatch):
    import pickle

    from isostep.run.workers import Job
    from isostep.settings.schema import SamplerSettings

    monkeypatch.setenv("ISOSTEP_PRECISION", "bfloat16")
    data = Job(analytic_model(), SamplerSettings(), 0, 4).dumps()
    monkeypatch.delenv("ISOSTEP_PRECISION")
    assert pickle.loads(data).model._fast.settings.precision == "bfloat16"


# --- output paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_not_a_file_is_not_replaced(tmp_path, kind):
    path = tmp_path / "out"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        try:  # one of our own: a failing test must not cost the machine its own
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError as error:
            pytest.skip(f"cannot make a device: {error}")
    before = path.lstat()
    with pytest.raises(InputError, match=r"is not a (regular )?file"):
        write_text(path, "text")
    assert path.lstat().st_ino == before.st_ino
    assert not list(tmp_path.glob(".*"))


def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/target.txt")
    write_text(link, "one")  # the target is made
    write_text(link, "two")
    assert link.is_symlink()
    assert (tmp_path / "there" / "target.txt").read_text() == "two"
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(InputError, match="cannot write"):
        write_text(loop, "text")


def test_temporary_files_of_others_are_left_alone(tmp_path, calm):
    mine = [tmp_path / ".notes.tmp", tmp_path / ".graphs.jsonl.abc.tmp", tmp_path / "shards" / ".draft.tmp"]
    stopped(tmp_path)
    for path in mine:
        path.write_text("mine")
    with replacing(tmp_path / "graphs.jsonl") as half:
        left = half.with_name(half.name.replace(".jsonl.", ".jsonl.x"))
        left.write_text("of a crash")
    (tmp_path / "graphs.jsonl").unlink()
    run(tmp_path)
    assert lines(tmp_path) == calm
    assert all(path.read_text() == "mine" for path in mine)
    assert not left.exists()


def test_a_shard_that_is_a_folder_is_one_line(tmp_path):
    stopped(tmp_path)
    shard = next(tmp_path.glob("shards/000001*"))
    shard.unlink()
    shard.mkdir()
    assert not verify(tmp_path).ok
    with pytest.raises(InputError, match=r"cannot remove .*000001"):
        run(tmp_path)


def test_the_folder_is_synchronised_after_a_rename(tmp_path, monkeypatch):
    """A rename is on disk only once its folder is."""
    done = []
    replace, fsync = os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd))[1])
    write_text(tmp_path / "new" / "file.txt", "text")
    assert done[-2:] == ["replace", tmp_path / "new"]
    assert tmp_path in done  # the new folder's own name


def test_sums_are_those_of_the_files(tmp_path):
    run(tmp_path)
    for shard, record in read_run(tmp_path).shards.items():
        data = read_run(tmp_path).path(shard).read_bytes()
        assert (record.sha256, record.bytes) == (sha256(data).hexdigest(), len(data))
    shutil.rmtree(tmp_path)
