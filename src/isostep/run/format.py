"""A run folder: graphs `start` .. `start + n - 1` of one plan, cut at multiples of `shard_size` into shards.

    plan.json             what decides the graphs; while the run is not finished
    shards.jsonl          the manifest: one line per finished (or failed) shard, with its checksum; only ever appended
    shards/000003.jsonl.gz
    run.json              the plan and the summary; written last, so a folder that has it is complete

A run of up to `JOINED` graphs ends as `graphs.jsonl` or `molecules.smi` beside `run.json`, and nothing else.

Every file is written beside its place and renamed. A manifest line that cannot be read counts as not written: its shard
is made again, to the same bytes, because a graph is (model, settings, seed, index). File names follow from shard
numbers; no path is ever read from a file.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import shutil
import socket
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isostep.base.errors import InputError
from isostep.base.files import LONGEST_LINE, bounded_lines, read_json, replacing, write_json
from isostep.base.files import sha256 as file_sha256
from isostep.settings.schema import SamplerSettings, one_line

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

PLAN, RUN, MANIFEST, SHARDS, LOCK, TRACE = "plan.json", "run.json", "shards.jsonl", "shards", ".lock", "trace.json"
PLAIN = {"graph": "graphs.jsonl", "molecule": "molecules.smi"}
JOINED = 100_000
Sha = Field(pattern=r"^[0-9a-f]{64}$")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Plan(_Frozen):
    """What decides the graphs of a run, and how they are cut. `settings` are final: nothing is left to measure."""

    format: Literal[2] = 2
    model: str
    preset: str | None = None
    card: dict[str, Any]
    fingerprint: str = Sha  # of card and weights
    kind: Literal["graph", "molecule"]
    asked: dict[str, Any]  # settings as given, before anything was measured
    settings: SamplerSettings
    seed: int
    start: int = Field(ge=0, le=2**40)
    n: int = Field(ge=1, le=2**40)
    batch_size: int = Field(ge=1, le=2**20)
    shard_size: int = Field(ge=1, le=2**20)
    trace: bool = False

    def check(self) -> Plan:
        if self.shard_size % self.batch_size:
            raise InputError(
                f"shard size {self.shard_size} is not a multiple of the batch size {self.batch_size}: "
                "a shard must hold whole batches"
            )
        return self

    @property
    def first(self) -> int:
        """Number of the first shard."""
        return self.start // self.shard_size

    @property
    def count(self) -> int:
        return (self.start + self.n - 1) // self.shard_size - self.first + 1

    def task(self, shard: int) -> Task:
        """Shard `shard` (from 0): its part of the indices."""
        low = max((self.first + shard) * self.shard_size, self.start)
        high = min((self.first + shard + 1) * self.shard_size, self.start + self.n)
        return Task(shard, low, high - low)

    @property
    def suffix(self) -> str:
        return ".jsonl.gz" if self.kind == "graph" else ".smi.gz"

    def file(self, shard: int) -> str:
        return f"{SHARDS}/{shard:06d}{self.suffix}"


@dataclass(frozen=True)
class Task:
    """Graphs `start` .. `start + n - 1`."""

    shard: int
    start: int
    n: int


class Made(_Frozen):
    """The account of a finished shard: sums over its graphs. `unfinished`: indices that did not reach the end."""

    shard: int = Field(ge=0, le=2**40)
    sha256: str = Sha
    bytes: int = Field(ge=0)
    n: int = Field(ge=1)
    counts: dict[str, int]
    unfinished: tuple[int, ...] = ()
    steps: int = Field(ge=0)
    calls: int = Field(ge=0)
    batch_calls: int = Field(ge=0)
    valid: int = Field(0, ge=0)
    seconds: float = Field(ge=0)
    cpu_seconds: float = Field(0.0, ge=0)
    at: float = 0.0


class Failed(_Frozen):
    """A shard given up after several attempts; the next command tries it again."""

    shard: int = Field(ge=0, le=2**40)
    failed: str
    at: float = 0.0


@dataclass(frozen=True)
class Shard:
    """A shard on its way from a worker to the folder."""

    made: Made
    data: bytes
    trace: dict[str, list] | None = None


def pack(lines: list[str]) -> bytes:
    """Lines of a shard as gzip bytes: the same lines give the same bytes."""
    return gzip.compress("".join(line + "\n" for line in lines).encode(), 6, mtime=0)


def unpack(path: Path) -> Iterator[str]:
    """Lines of a shard file or of a plain one."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            for line in bounded_lines(file, path):
                yield line.decode().rstrip("\n")
    except (EOFError, zlib.error, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged ({error}): `isostep runs verify --repair`, then repeat the run") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the file") from error


def _numbered(path: Path, start: int, n: int) -> Iterator[tuple[int, str]]:
    """(index, line) of a file that must have `n` lines."""
    seen = 0
    for seen, line in enumerate(unpack(path), start=1):
        yield start + seen - 1, line
    if seen != n:
        raise InputError(f"{path} has {seen} lines, expected {n}: `isostep runs verify --repair`, then repeat the run")


@dataclass
class State:
    """What a folder holds: its plan, finished and failed shards, unreadable manifest lines, the summary if complete."""

    folder: Path
    plan: Plan
    made: dict[int, Made] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    unreadable: int = 0
    run: dict[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self.run is not None

    @property
    def graphs(self) -> int:
        return self.plan.n if self.complete else sum(made.n for made in self.made.values())

    @property
    def joined(self) -> Path | None:
        """The one plain file of a complete small run."""
        return self.folder / PLAIN[self.plan.kind] if self.run is not None and self.run["joined"] else None

    def path(self, shard: int) -> Path:
        return self.folder / self.plan.file(shard)

    def todo(self) -> Iterator[Task]:
        """Shards not finished, in order."""
        return (self.plan.task(k) for k in range(self.plan.count) if k not in self.made)

    def files(self) -> list[Path]:
        """The files of a finished run in index order."""
        if self.joined is not None:
            return [self.joined]
        if len(self.made) < self.plan.count:
            raise InputError(
                f"{self.folder} is not complete ({len(self.made)} of {self.plan.count} shards): repeat the command"
            )
        return [self.path(shard) for shard in range(self.plan.count)]

    def lines(self, partial: bool = False) -> Iterator[tuple[int, str]]:
        """(index, line) of every graph in index order; `partial`: what there is of an unfinished run."""
        if self.joined is not None:
            yield from _numbered(self.joined, self.plan.start, self.plan.n)
            return
        if not partial:
            self.files()
        for shard in sorted(self.made):
            task = self.plan.task(shard)
            yield from _numbered(self.path(shard), task.start, task.n)

    def part(self, shard: int, low: int, high: int) -> dict[int, str]:
        """Lines of graphs `low` .. `high - 1`, all of this shard."""
        if self.joined is not None:
            start, lines = self.plan.start, unpack(self.joined)
        else:
            start, lines = self.plan.task(shard).start, unpack(self.path(shard))
        return dict(zip(range(low, high), itertools.islice(lines, low - start, high - start), strict=False))

    def unfinished(self) -> set[int]:
        """Indices of graphs that did not reach the end."""
        if self.run is not None and self.run["joined"]:
            return set(self.run["joined"]["unfinished"])
        return {index for made in self.made.values() for index in made.unfinished}


class _Joined(_Frozen):
    sha256: str = Sha
    bytes: int = Field(ge=0)
    unfinished: tuple[int, ...] = ()


class _Run(Plan):
    """`run.json`: the plan, and how it went."""

    joined: _Joined | None
    summary: dict[str, Any]
    device: str
    versions: dict[str, str]


def read_state(folder: str | Path) -> State:
    """Read a run folder without touching it."""
    folder = Path(folder)
    if (folder / RUN).is_file():
        record = read_json(folder / RUN)
        if isinstance(record, dict) and record.get("format") == 1:
            raise InputError(f"{folder} was not written by `isostep sample --out`; it cannot be continued or verified")
        run = _parse(_Run, record, folder / RUN)
        plan = Plan.model_construct(**{name: getattr(run, name) for name in Plan.model_fields})
        state = State(folder, plan.check(), run=run.model_dump(mode="json"))
    elif (folder / PLAN).is_file():
        state = State(folder, _parse(Plan, read_json(folder / PLAN), folder / PLAN).check())
    else:
        raise InputError(f"{folder} is not a run folder: no {RUN} or {PLAN} in it")
    _read_manifest(state)
    return state


def _parse(kind: Any, record: Any, path: Path) -> Any:
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        raise InputError(f"{one_line(error, str(path))}; restore the file, or start in a new folder") from error


def _read_manifest(state: State) -> None:
    path = state.folder / MANIFEST
    if not path.is_file():
        return
    try:
        with open(path, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                _add_line(state, line)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the file") from error


def _add_line(state: State, line: bytes) -> None:
    record = _manifest_line(line)
    if record is None or record.shard >= state.plan.count:
        state.unreadable += 1
    elif isinstance(record, Failed):
        state.failed[record.shard] = record
    elif record.n != state.plan.task(record.shard).n:
        state.unreadable += 1
    else:
        state.made[record.shard] = record
        state.failed.pop(record.shard, None)


def _manifest_line(line: bytes) -> Made | Failed | None:
    """None for a line that was cut short or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
        return (Failed if isinstance(record, dict) and "failed" in record else Made).model_validate(record)
    except (ValueError, RecursionError):  # also pydantic's and Unicode errors
        return None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process writes into a run folder. The system drops the lock when its holder dies, however it does."""
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; choose a folder you can write to") from error
    with file:
        if not _try_lock(file):
            raise InputError(f"{folder} is in use by {_holder(path)}; wait for it, stop it, or choose another folder")
        with contextlib.suppress(OSError):  # who holds it is a courtesy: a full disk must not stop us here
            file.truncate(0)
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n".encode())
        yield


def in_use(folder: Path) -> str | None:
    """Who writes into the folder now, or None."""
    try:
        with open(folder / LOCK, encoding="utf-8") as file:
            return None if _try_lock(file, shared=True) else _holder(folder / LOCK)
    except OSError:
        return None


def _try_lock(file: Any, shared: bool = False) -> bool:
    if fcntl is None:  # pragma: no cover
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(200).strip() or "another process"
    except OSError:
        return "another process"


@contextlib.contextmanager
def opened(folder: str | Path, plan: Plan) -> Iterator[Writer]:
    """The folder for writing, new or continued; another plan in it is refused."""
    folder = Path(folder)
    with locked(folder):
        if (folder / RUN).is_file() or (folder / PLAN).is_file():
            state = read_state(folder)
            _same(plan, state.plan, folder)
        else:
            others = [name for name in (*PLAIN.values(), MANIFEST, SHARDS) if (folder / name).exists()]
            if others:
                raise InputError(f"{folder} holds {others[0]} but no {PLAN}; choose another folder or empty it")
            write_json(folder / PLAN, plan.model_dump(mode="json"))
            state = State(folder, plan)
        writer = Writer(state)
        writer.mend()
        yield writer


def _same(wanted: Plan, there: Plan, folder: Path) -> None:
    ours, theirs = wanted.model_dump(mode="json"), there.model_dump(mode="json")
    for key in (k for k in ours if k not in ("asked", "settings", "model", "preset", "card")):
        _refuse_other(folder, key, theirs[key], ours[key])
    for key in ("asked", "settings"):
        for name, value in ours[key].items():
            _refuse_other(folder, name, theirs[key].get(name), value)


def _refuse_other(folder: Path, key: str, there: Any, wanted: Any) -> None:
    if there != wanted:
        raise InputError(
            f"{folder} holds another run: its {key} is {str(there)[:60]}, not {str(wanted)[:60]}; "
            "choose another --out, or delete the folder"
        )


@dataclass
class Writer:
    """The one writer of a run folder."""

    state: State

    @property
    def manifest(self) -> Path:
        return self.state.folder / MANIFEST

    def mend(self) -> None:
        """Make good what a crash left: temporary files, cut manifest lines, records without their file."""
        state = self.state
        for folder in (state.folder, state.folder / SHARDS):
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink(missing_ok=True)
        lost = [k for k, made in state.made.items() if _size(state.path(k)) != made.bytes]
        if state.joined is not None and state.run is not None:
            whole = _size(state.joined) == state.run["joined"]["bytes"]
        else:
            whole = not lost and len(state.made) == state.plan.count
        if state.complete and whole:
            self._clear()
        elif state.complete:
            self.reopen(lost)
        elif lost or state.unreadable or state.failed:
            self.forget(lost)

    def forget(self, shards: list[int]) -> None:
        """Drop these shards and all failures: they will be made again."""
        state = self.state
        for shard in shards:
            state.made.pop(shard, None)
            state.path(shard).unlink(missing_ok=True)
        state.failed.clear()
        state.unreadable = 0
        with replacing(self.manifest) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.writelines(made.model_dump_json() + "\n" for made in state.made.values())

    def add(self, shard: Shard) -> None:
        """Write a finished shard, then its line: a line without its file cannot be."""
        made = shard.made.model_copy(update={"at": time.time()})
        with replacing(self.state.path(made.shard)) as temporary:
            temporary.write_bytes(shard.data)
        if shard.trace is not None:
            write_json(self.state.folder / TRACE, shard.trace, indent=None)
        self._append(made)
        self.state.made[made.shard] = made
        self.state.failed.pop(made.shard, None)

    def fail(self, shard: int, reason: str) -> None:
        failed = Failed(shard=shard, failed=reason[:500], at=time.time())
        self._append(failed)
        self.state.failed[shard] = failed

    def _append(self, record: Made | Failed) -> None:
        """One line, all of it or (a full disk) none of it."""
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
        except OSError as error:
            raise InputError(
                f"cannot write {self.manifest}: {error.strerror}; what is finished is kept, repeat the command to go on"
            ) from error

    def finish(self, summary: dict[str, Any], device: str, versions: dict[str, str]) -> None:
        """All shards are there: write `run.json`, and one plain file for a small run."""
        state, plan = self.state, self.state.plan
        joined = self._join() if plan.n <= JOINED else None
        record = {**plan.model_dump(mode="json"), "joined": joined, "summary": summary, "device": device}
        state.run = _Run.model_validate({**record, "versions": versions}).model_dump(mode="json")
        write_json(state.folder / RUN, state.run)
        self._clear()

    def _join(self) -> dict[str, Any]:
        path, digest, size = self.state.folder / PLAIN[self.state.plan.kind], sha256(), 0
        with replacing(path) as temporary, open(temporary, "wb") as file:
            for _, line in self.state.lines():
                data = line.encode() + b"\n"
                file.write(data)
                digest.update(data)
                size += len(data)
        return {"sha256": digest.hexdigest(), "bytes": size, "unfinished": sorted(self.state.unfinished())}

    def _clear(self) -> None:
        """What a complete run no longer needs."""
        folder = self.state.folder
        (folder / PLAN).unlink(missing_ok=True)
        if self.state.joined is not None:
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder / SHARDS, ignore_errors=True)

    def reopen(self, bad: list[int]) -> None:
        """Take back a complete or damaged run: forget the bad shards so that the sample command makes them again."""
        state = self.state
        if state.joined is not None:
            state.joined.unlink(missing_ok=True)
        write_json(state.folder / PLAN, state.plan.model_dump(mode="json"))
        (state.folder / RUN).unlink(missing_ok=True)
        state.run = None
        self.forget(bad)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def damaged(state: State) -> Iterator[tuple[int | None, str]]:
    """(shard, what is wrong) by checksum; shard None is the joined file."""
    if state.joined is not None and state.run is not None:
        if (reason := _differs(state.joined, state.run["joined"]["sha256"])) is not None:
            yield None, reason
        return
    for shard, made in sorted(state.made.items()):
        if (reason := _differs(state.path(shard), made.sha256)) is not None:
            yield shard, reason


def _differs(path: Path, wanted: str) -> str | None:
    try:
        found = file_sha256(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None if found == wanted else f"{path}: sha256 {found[:12]}..., the manifest says {wanted[:12]}..."
