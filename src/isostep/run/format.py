"""What a run folder holds: items `start` .. `start + n - 1` of one plan, cut at multiples of `shard_size` into shards.

    plan.json             what decides the items; while the run is not finished
    shards.jsonl          the manifest: one line per finished (or failed) shard, with its checksum; only ever appended
    shards/000003.jsonl.gz
    run.json              the plan and the summary; written last, so a folder that has it is complete
    trace.json            the steps of the first batch, of the first shard where graphs have own clocks; if asked for

A shard's gzip header holds the plan and its counts, so that good shards can be used when the other files are lost. A
small run ends as one plain file (`graphs.jsonl`, `molecules.smi`) beside `run.json`. File names follow from the plan;
no path is ever read from a file.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from isostep.base.errors import InputError
from isostep.base.files import bounded_lines
from isostep.base.files import sha256 as file_sum
from isostep.base.schema import Frozen
from isostep.item import KINDS, Item, KindName, kind_named
from isostep.sampling.account import Account
from isostep.sampling.extent import MOST, MOST_BATCH
from isostep.settings.schema import SamplerSettings

PLAN, RUN, MANIFEST, SHARDS, TRACE = "plan.json", "run.json", "shards.jsonl", "shards", "trace.json"
SHARD = 1024  # graphs of a shard, where nobody says
Sha = Field(pattern=r"^[0-9a-f]{64}$")
NotNegative = Annotated[int, Field(ge=0)]
LONGEST = 1e12  # seconds
MOST_CALLS = 100  # network calls of one step, far above any solver's
STAMP, MOST_STAMP = b"IS", 2**16 - 5  # our field of a gzip header, and the bytes it can hold
MOST_PLAN = 2**22  # bytes of a plan in a shard


class Machine(Frozen):
    """What a graph depends on in its last digits, and so, rarely, as a graph; another precision changes many."""

    precision: str
    backend: str
    device: str
    versions: dict[str, str]


class RunPlan(Frozen):
    """What decides the items of a run, and how they are cut. `settings` are final: nothing is left to measure."""

    format: Literal[2] = 2
    model: str
    preset: str | None = None
    card: dict[str, Any]
    fingerprint: str = Sha  # of card and weights
    kind: KindName
    asked: dict[str, Any]  # settings as given, before anything was measured
    settings: SamplerSettings
    seed: int
    start: int = Field(ge=0, le=MOST)
    n: int = Field(ge=1, le=MOST)
    batch_size: int = Field(ge=1, le=MOST_BATCH)
    shard_size: int = Field(ge=1, le=MOST_BATCH)
    noise: Literal["step", "path"] = "step"
    trace: bool = False
    machine: Machine | None = None  # where it was begun; a shard does not say

    def check(self) -> RunPlan:
        shard_size_of(self.batch_size, self.shard_size)
        return self

    @property
    def item(self) -> type[Item]:
        return kind_named(self.kind)

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

    def file(self, shard: int) -> str:
        return f"{SHARDS}/{shard:06d}{Path(self.item.file).suffix}.gz"


@dataclass(frozen=True)
class Task:
    """Items `start` .. `start + n - 1`, to be made as one shard."""

    shard: int
    start: int
    n: int


class ShardRecord(Frozen):
    """The manifest's line of a finished shard. `unfinished`: indices that did not reach the end."""

    shard: int = Field(ge=0, le=2**40)
    sha256: str = Sha
    bytes: int = Field(ge=0, le=2**40)
    n: int = Field(ge=1, le=2**20)
    counts: dict[str, NotNegative]
    unfinished: tuple[int, ...] = ()
    steps: int = Field(ge=0)
    calls: int = Field(ge=0)
    batch_calls: int = Field(ge=0)
    tally: dict[str, NotNegative] = Field(default_factory=dict)
    counted: dict[str, NotNegative] = Field(default_factory=dict)
    seconds: float = Field(ge=0, le=LONGEST)
    cpu_seconds: float = Field(0.0, ge=0, le=LONGEST)
    at: float = Field(0.0, ge=0, le=2**40)

    def fits(self, plan: RunPlan) -> bool:
        """Whether the counts can be those of this plan's shard."""
        if self.shard >= plan.count:
            return False
        task, most = plan.task(self.shard), self.n * plan.settings.max_steps
        return (
            self.n == task.n == sum(self.counts.values())
            and len(set(self.unfinished)) == self.n - self.counts.get("done", 0)
            and all(task.start <= index < task.start + task.n for index in self.unfinished)
            and self.steps <= most
            and max(self.calls, self.batch_calls) <= most * MOST_CALLS
            and max(self.tally.values(), default=0) <= self.n
            and max(self.counted.values(), default=0) <= most
        )

    @property
    def account(self) -> Account:
        sums = self.n, self.counts, self.steps, self.calls, self.batch_calls, self.seconds, self.tally, self.counted
        return Account(*sums)


def seconds_of(shards: Iterable[ShardRecord], since: float = 0.0) -> float:
    """Seconds after `since` in which any of these shards was in work: no pauses, and what overlaps counts once."""
    seconds = 0.0
    for shard in sorted(shards, key=lambda shard: shard.at - shard.seconds):
        seconds += max(0.0, shard.at - max(since, shard.at - shard.seconds))
        since = max(since, shard.at)
    return seconds


class FailureRecord(Frozen):
    """The manifest's line of a shard given up after several attempts; the next command tries it again."""

    shard: int = Field(ge=0, le=2**40)
    failed: str
    at: float = 0.0


class JoinedFile(Frozen):
    """The one plain file of a small run."""

    sha256: str = Sha
    bytes: int = Field(ge=0)
    unfinished: tuple[int, ...] = ()


class RunRecord(RunPlan):
    """`run.json`: the plan, and how it went."""

    joined: JoinedFile | None
    summary: dict[str, Any]
    device: str
    versions: dict[str, str]

    @property
    def plan(self) -> RunPlan:
        return RunPlan.model_construct(**{name: getattr(self, name) for name in RunPlan.model_fields}).check()


@dataclass(frozen=True)
class Shard:
    """A shard on its way from a worker to the folder."""

    record: ShardRecord
    data: bytes
    trace: dict[str, list] | None = None


def own_files() -> tuple[str, ...]:
    """Names in a folder that are a run's own."""
    return (PLAN, RUN, MANIFEST, SHARDS, TRACE, *(kind.file for kind in KINDS.values()))


def shard_size_of(batch_size: int, asked: int | None = None) -> int:
    """Graphs of a shard: as asked, else SHARD, rounded up to whole batches; what cannot be is refused."""
    size = -(-SHARD // batch_size) * batch_size if asked is None else asked
    if not 1 <= size <= MOST_BATCH:
        raise InputError(f"the shard size must be at least 1 and at most 2^20, got {size}")
    if size % batch_size:
        raise InputError(
            f"shard size {size} is not a multiple of the batch size {batch_size}: a shard must hold whole batches"
        )
    return size


def pack(lines: list[str]) -> bytes:
    """Lines of a shard as gzip bytes: the same lines give the same bytes."""
    return gzip.compress("".join(line + "\n" for line in lines).encode(), 6, mtime=0)


def stamp(data: bytes, plan: RunPlan, record: ShardRecord) -> bytes:
    """gzip bytes that also say which shard of which plan they are; other programs skip this part of the header.

    What two runs of one plan do not share (times) is left out, so their shards have the same bytes.
    """
    own = record.model_dump(mode="json", exclude={"sha256", "bytes", "seconds", "cpu_seconds", "at"})
    text = json.dumps({"plan": plan.model_dump(mode="json", exclude={"machine"}), "shard": own}, sort_keys=True)
    note = zlib.compress(text.encode(), 9)
    if len(note) > MOST_STAMP:
        return data
    extra = STAMP + struct.pack("<H", len(note)) + note
    return data[:3] + bytes([data[3] | 4]) + data[4:10] + struct.pack("<H", len(extra)) + extra + data[10:]


def read_stamp(path: Path) -> tuple[RunPlan, ShardRecord] | None:
    """What a shard says of itself, if it is whole and says anything."""
    try:
        with open(path, "rb") as file:
            head = file.read(12)
            if len(head) < 12 or head[:2] != b"\x1f\x8b" or not head[3] & 4:
                return None
            extra = file.read(struct.unpack("<H", head[10:])[0])
        if extra[:2] != STAMP:
            return None
        text = zlib.decompressobj().decompress(extra[4:], MOST_PLAN)
        said = json.loads(text)
        plan = RunPlan.model_validate(said["plan"]).check()
        digest, size = file_sum(path), path.stat().st_size
        record = ShardRecord.model_validate({**said["shard"], "sha256": digest, "bytes": size, "seconds": 0.0})
        return (plan, record) if sum(1 for _ in unpack(path)) == record.n else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, zlib.error):  # also pydantic's, and InputError
        return None


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
