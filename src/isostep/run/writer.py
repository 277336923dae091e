"""The one writer of a run folder: files are written beside their place and renamed, the manifest grows by lines."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError
from isostep.base.files import TEMPORARY, remove, replacing, sync_folder, write_json
from isostep.base.progress import log
from isostep.base.versions import versions
from isostep.item import KINDS
from isostep.run.format import (
    MANIFEST,
    PLAN,
    RUN,
    SHARDS,
    TRACE,
    FailureRecord,
    JoinedFile,
    RunPlan,
    RunRecord,
    Shard,
    ShardRecord,
    own_files,
    stamp,
)
from isostep.run.lock import locked
from isostep.run.reading import RunFolder, is_run, read_run

JOINED = 100_000  # a run of up to so many items ends as one plain file


@contextlib.contextmanager
def open_run(folder: str | Path, plan: RunPlan) -> Iterator[Writer]:
    """The folder for writing, new or continued; another plan in it is refused."""
    folder = Path(folder)
    with locked(folder):
        if is_run(folder):
            run = read_run(folder)
            _same(plan, run.plan, folder)
            _same_machine(plan, run, folder)
            if not run.complete and not (folder / PLAN).is_file():
                write_json(folder / PLAN, run.plan.model_dump(mode="json"))
        else:
            names = (*(kind.file for kind in KINDS.values()), MANIFEST, SHARDS)
            if others := [name for name in names if (folder / name).exists()]:
                raise InputError(f"{folder} holds {others[0]} but no {PLAN}; choose another folder or empty it")
            write_json(folder / PLAN, plan.model_dump(mode="json"))
            run = RunFolder(folder, plan)
        writer = Writer(run)
        writer.mend()
        yield writer


def _same(wanted: RunPlan, there: RunPlan, folder: Path) -> None:
    ours, theirs = wanted.model_dump(mode="json"), there.model_dump(mode="json")
    for key in (k for k in ours if k not in ("asked", "settings", "model", "preset", "card", "machine")):
        _refuse_other(folder, key, theirs[key], ours[key])
    for key in ("asked", "settings"):
        for name, value in ours[key].items():
            _refuse_other(folder, name, theirs[key].get(name), value)


def _same_machine(wanted: RunPlan, run: RunFolder, folder: Path) -> None:
    """Another precision is refused; what changes a graph rarely is named."""
    there, here = run.plan.machine, wanted.machine
    if there is None or here is None or run.complete:
        return
    _refuse_other(folder, "precision", there.precision, here.precision)
    was = {"backend": there.backend, "device": there.device, **there.versions}
    now = {"backend": here.backend, "device": here.device, **here.versions}
    if changed := [f"{k} was {v}, now is {now.get(k, 'absent')}" for k, v in was.items() if now.get(k) != v]:
        log.warning("%s was begun elsewhere (%s): single graphs may differ from an undisturbed run", folder, changed[0])


def _refuse_other(folder: Path, key: str, there: Any, wanted: Any) -> None:
    if there != wanted:
        raise InputError(
            f"{folder} holds another run: its {key} is {str(there)[:60]}, not {str(wanted)[:60]}; "
            "choose another --out, or delete the folder"
        )


@dataclass
class Writer:
    run: RunFolder

    @property
    def manifest(self) -> Path:
        return self.run.folder / MANIFEST

    def mend(self) -> None:
        """Make good what a crash left: temporary files, cut manifest lines, records without their file."""
        run = self.run
        leftovers = [path for name in own_files() for path in run.folder.glob(f".{name}.*{TEMPORARY}")]
        for leftover in (*leftovers, *(run.folder / SHARDS).glob(f".*.gz.*{TEMPORARY}")):
            remove(leftover)
        damaged = list(run.damaged())
        lost = [shard for shard, _ in damaged if shard is not None]
        if run.complete and not damaged and not run.missing:
            self._clear()
        elif run.complete:
            self.reopen(lost)
        elif lost or run.unreadable or run.unlisted or run.failed:
            self.forget(lost)

    def forget(self, shards: list[int]) -> None:
        """Drop these shards and all failures: they will be made again."""
        run = self.run
        for shard in shards:
            run.shards.pop(shard, None)
            remove(run.path(shard))
        run.failed.clear()
        run.unreadable = run.unlisted = 0
        with replacing(self.manifest) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.writelines(record.model_dump_json() + "\n" for record in run.shards.values())

    def add(self, shard: Shard) -> None:
        """Write a finished shard, then its line: a line without its file cannot be."""
        data = stamp(shard.data, self.run.plan, shard.record)
        own = {"at": time.time(), "sha256": sha256(data).hexdigest(), "bytes": len(data)}
        record = shard.record.model_copy(update=own)
        with replacing(self.run.path(record.shard)) as temporary:
            temporary.write_bytes(data)
        if shard.trace is not None:
            write_json(self.run.folder / TRACE, shard.trace, indent=None)
        self._append(record)
        self.run.shards[record.shard] = record
        self.run.failed.pop(record.shard, None)

    def fail(self, shard: int, reason: str) -> None:
        record = FailureRecord(shard=shard, failed=reason[:500], at=time.time())
        self._append(record)
        self.run.failed[shard] = record

    def _append(self, record: ShardRecord | FailureRecord) -> None:
        """One line, all of it or (a full disk) none of it."""
        new = not self.manifest.exists()
        try:
            with open(self.manifest, "ab") as file:
                end = file.tell()
                try:
                    file.write(record.model_dump_json().encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    os.truncate(self.manifest, end)
                    raise
            if new:
                sync_folder(self.run.folder)
        except OSError as error:
            raise InputError(
                f"cannot write {self.manifest}: {error.strerror}; what is finished is kept, repeat the command to go on"
            ) from error

    def finish(self, summary: dict[str, Any], device: str) -> None:
        """All shards are there: write `run.json`, and one plain file for a small run."""
        run = self.run
        joined = self._join() if run.plan.n <= JOINED else None
        closing = {"joined": joined, "summary": summary, "device": device, "versions": versions()}
        record = RunRecord.model_validate({**run.plan.model_dump(), **closing})
        write_json(run.folder / RUN, record.model_dump(mode="json"))
        run.record = record
        self._clear()

    def _join(self) -> JoinedFile:
        digest, size = sha256(), 0
        with replacing(self.run.plain) as temporary, open(temporary, "wb") as file:
            for _, line in self.run.lines():
                data = line.encode() + b"\n"
                file.write(data)
                digest.update(data)
                size += len(data)
        return JoinedFile(sha256=digest.hexdigest(), bytes=size, unfinished=tuple(sorted(self.run.unfinished())))

    def _clear(self) -> None:
        """What a complete run no longer needs."""
        remove(self.run.folder / PLAN)
        if self.run.joined is not None:
            remove(self.manifest)
            shutil.rmtree(self.run.folder / SHARDS, ignore_errors=True)

    def reopen(self, bad: list[int]) -> None:
        """Take back a complete or damaged run: forget the bad shards so that the sample command makes them again."""
        run = self.run
        if run.joined is not None:
            remove(run.plain)
        write_json(run.folder / PLAN, run.plan.model_dump(mode="json"))
        remove(run.folder / RUN)
        run.record = None
        self.forget(bad)
