"""A run folder as it stands, read without touching it.

A manifest line that cannot be read counts as not written: its shard is made again, to the same bytes, because an item
is (model, settings, seed, index).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError, located
from isostep.base.files import read_json, sha256
from isostep.base.limits import limit
from isostep.base.schema import M, checked
from isostep.run.format import (
    MANIFEST,
    PLAN,
    RUN,
    SHARDS,
    FailureRecord,
    JoinedFile,
    RunPlan,
    RunRecord,
    ShardRecord,
    Task,
    read_stamp,
    unpack,
)


@dataclass
class RunFolder:
    """Its plan, finished and failed shards, unreadable manifest lines, and the closing record if complete."""

    folder: Path
    plan: RunPlan
    shards: dict[int, ShardRecord] = field(default_factory=dict)
    failed: dict[int, FailureRecord] = field(default_factory=dict)
    unreadable: int = 0
    unlisted: int = 0  # shards known by their own word, not by the manifest
    record: RunRecord | None = None

    @property
    def complete(self) -> bool:
        return self.record is not None

    @property
    def missing(self) -> int:
        """Shards that are not there."""
        return 0 if self.joined is not None else self.plan.count - len(self.shards)

    @property
    def count(self) -> int:
        """Items that are there."""
        return self.plan.n if self.complete else sum(shard.n for shard in self.shards.values())

    @property
    def joined(self) -> JoinedFile | None:
        return None if self.record is None else self.record.joined

    @property
    def plain(self) -> Path:
        """Where the one plain file of a complete small run is."""
        return self.folder / self.plan.item.file

    def path(self, shard: int) -> Path:
        return self.folder / self.plan.file(shard)

    def todo(self) -> Iterator[Task]:
        """Shards not finished, in order."""
        return (self.plan.task(k) for k in range(self.plan.count) if k not in self.shards)

    def files(self) -> list[Path]:
        """The files of a finished run in index order."""
        if self.joined is not None:
            return [self.plain]
        if len(self.shards) < self.plan.count:
            raise InputError(
                f"{self.folder} is not complete ({len(self.shards)} of {self.plan.count} shards): repeat the command"
            )
        return [self.path(shard) for shard in range(self.plan.count)]

    def lines(self, partial: bool = False) -> Iterator[tuple[int, str]]:
        """(index, line) of every item in index order; `partial`: what there is of an unfinished run."""
        if self.joined is not None:
            yield from _numbered(self.plain, self.joined.sha256, self.plan.start, self.plan.n)
            return
        if not partial:
            self.files()
        for shard, record in sorted(self.shards.items()):
            task = self.plan.task(shard)
            yield from _numbered(self.path(shard), record.sha256, task.start, task.n)

    def items(self, partial: bool = False) -> Iterator[tuple[int, Any]]:
        """(index, item) in index order."""
        for index, line in self.lines(partial):
            with located(f"{self.folder}, item {index}"):
                yield index, self.plan.item.from_line(line, index)

    def part(self, shard: int, low: int, high: int) -> dict[int, str]:
        """Lines of items `low` .. `high - 1`, all of this shard."""
        if self.joined is not None:
            start, lines = self.plan.start, unpack(self.plain)
        else:
            start, lines = self.plan.task(shard).start, unpack(self.path(shard))
        return dict(zip(range(low, high), itertools.islice(lines, low - start, high - start), strict=False))

    def unfinished(self) -> set[int]:
        """Indices of items that did not reach the end."""
        if self.joined is not None:
            return set(self.joined.unfinished)
        return {index for shard in self.shards.values() for index in shard.unfinished}

    def damaged(self) -> Iterator[tuple[int | None, str]]:
        """(shard, what is wrong) by checksum; shard None is the one plain file."""
        if self.joined is not None:
            if (reason := differs(self.plain, self.joined.sha256)) is not None:
                yield None, reason
            return
        for shard, record in sorted(self.shards.items()):
            if (reason := differs(self.path(shard), record.sha256)) is not None:
                yield shard, reason


def _numbered(path: Path, wanted: str, start: int, n: int) -> Iterator[tuple[int, str]]:
    """(index, line) of a file that must have this sum and `n` lines."""
    if (reason := differs(path, wanted)) is not None:
        raise InputError(f"{reason}: `isostep runs verify --repair`, then repeat the run")
    seen = 0
    for seen, line in enumerate(unpack(path), start=1):
        yield start + seen - 1, line
    if seen != n:
        raise InputError(f"{path} has {seen} lines, expected {n}: `isostep runs verify --repair`, then repeat the run")


def differs(path: Path, wanted: str) -> str | None:
    try:
        found = sha256(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None if found == wanted else f"{path}: sha256 {found[:12]}..., the manifest says {wanted[:12]}..."


def is_run(folder: Path) -> bool:
    """Whether there is a run, finished or not."""
    return (folder / RUN).is_file() or (folder / PLAN).is_file() or _recovered(folder) is not None


def _recovered(folder: Path) -> RunPlan | None:
    """The plan by what a shard says, where the file is lost."""
    stamps = (read_stamp(path) for path in sorted((folder / SHARDS).glob("*.gz")))
    return next((stamp[0] for stamp in stamps if stamp is not None), None)


def _add_lost(run: RunFolder) -> None:
    """Shards that are there but not in the manifest, if they say that they are this run's."""
    wanted = run.plan.model_dump(exclude={"machine"})
    for path in sorted((run.folder / SHARDS).glob("*.gz")):
        known = path.name.split(".")[0]
        if not known.isdecimal() or int(known) in run.shards or path != run.path(int(known)):
            continue
        said = read_stamp(path)
        if said is None or said[0].model_dump(exclude={"machine"}) != wanted or said[1].shard != int(known):
            continue
        if said[1].fits(run.plan):
            run.shards[said[1].shard] = said[1]
            run.unlisted += 1


def read_run(folder: str | Path) -> RunFolder:
    folder = Path(folder)
    if (folder / RUN).is_file():
        record = _parse(RunRecord, folder / RUN)
        run = RunFolder(folder, record.plan, record=record)
    elif (folder / PLAN).is_file():
        run = RunFolder(folder, _parse(RunPlan, folder / PLAN).check())
    elif (plan := _recovered(folder)) is not None:
        run = RunFolder(folder, plan)
    else:
        raise InputError(f"{folder} is not a run folder: no {RUN} or {PLAN} in it")
    _read_manifest(run)
    if not run.complete:
        _add_lost(run)
    return run


def _parse(schema: type[M], path: Path) -> M:
    return checked(schema, read_json(path), str(path), "restore the file, or start in a new folder")


def _read_manifest(run: RunFolder) -> None:
    path = run.folder / MANIFEST
    if not path.is_file():
        return
    try:
        with open(path, "rb") as file:
            while line := file.readline(limit("line_bytes")):
                _add_line(run, line)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the file") from error


def _add_line(run: RunFolder, line: bytes) -> None:
    record = _manifest_line(line)
    if record is None or record.shard >= run.plan.count:
        run.unreadable += 1
    elif isinstance(record, FailureRecord):
        run.failed[record.shard] = record
    elif not record.fits(run.plan):
        run.unreadable += 1
    else:
        run.shards[record.shard] = record
        run.failed.pop(record.shard, None)


def _manifest_line(line: bytes) -> ShardRecord | FailureRecord | None:
    """None for a line that was cut short or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
        schema = FailureRecord if isinstance(record, dict) and "failed" in record else ShardRecord
        return schema.model_validate(record)
    except (ValueError, RecursionError):  # also pydantic's and Unicode errors
        return None
