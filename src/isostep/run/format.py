"""What a run folder holds: items `start` .. `start + n - 1` of one plan, cut at multiples of `shard_size` into shards.

    plan.json             what decides the items; while the run is not finished
    shards.jsonl          the manifest: one line per finished (or failed) shard, with its checksum; only ever appended
    shards/000003.jsonl.gz
    run.json              the plan and the summary; written last, so a folder that has it is complete
    trace.json            the steps of the first shard, if asked for

A small run ends as one plain file (`graphs.jsonl`, `molecules.smi`) beside `run.json`. File names follow from the plan;
no path is ever read from a file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from isostep.base.errors import InputError
from isostep.base.files import bounded_lines
from isostep.base.schema import Frozen
from isostep.item import Item, KindName, kind_named
from isostep.sampling.account import Account
from isostep.settings.schema import SamplerSettings

PLAN, RUN, MANIFEST, SHARDS, TRACE = "plan.json", "run.json", "shards.jsonl", "shards", "trace.json"
Sha = Field(pattern=r"^[0-9a-f]{64}$")


class RunPlan(Frozen):
    """What decides the items of a run, and how they are cut. `settings` are final: nothing is left to measure."""

    format: Literal[1, 2] = 2  # 1: written by early versions, without sums and fingerprint; read only
    model: str
    preset: str | None = None
    card: dict[str, Any]
    fingerprint: str | None = Sha  # of card and weights
    kind: KindName
    asked: dict[str, Any]  # settings as given, before anything was measured
    settings: SamplerSettings
    seed: int
    start: int = Field(ge=0, le=2**40)
    n: int = Field(ge=1, le=2**40)
    batch_size: int = Field(ge=1, le=2**20)
    shard_size: int = Field(ge=1, le=2**20)
    noise: Literal["step", "path"] = "step"
    trace: bool = False

    def check(self) -> RunPlan:
        if self.shard_size % self.batch_size:
            raise InputError(
                f"shard size {self.shard_size} is not a multiple of the batch size {self.batch_size}: "
                "a shard must hold whole batches"
            )
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
    bytes: int = Field(ge=0)
    n: int = Field(ge=1)
    counts: dict[str, int]
    unfinished: tuple[int, ...] = ()
    steps: int = Field(ge=0)
    calls: int = Field(ge=0)
    batch_calls: int = Field(ge=0)
    tally: dict[str, int] = Field(default_factory=dict)
    seconds: float = Field(ge=0)
    cpu_seconds: float = Field(0.0, ge=0)
    at: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _early(cls, record: Any) -> Any:
        """Early versions counted valid molecules in a field of its own."""
        if isinstance(record, dict) and "valid" in record:
            return {**{k: v for k, v in record.items() if k != "valid"}, "tally": {"valid": record["valid"]}}
        return record

    @property
    def account(self) -> Account:
        return Account(self.n, self.counts, self.steps, self.calls, self.batch_calls, self.seconds, self.tally)


class FailureRecord(Frozen):
    """The manifest's line of a shard given up after several attempts; the next command tries it again."""

    shard: int = Field(ge=0, le=2**40)
    failed: str
    at: float = 0.0


class JoinedFile(Frozen):
    """The one plain file of a small run."""

    sha256: str | None = Sha
    bytes: int | None = Field(ge=0)
    unfinished: tuple[int, ...] = ()


class RunRecord(RunPlan):
    """`run.json`: the plan, and how it went."""

    joined: JoinedFile | None
    summary: dict[str, Any]
    device: str
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _early(cls, record: Any) -> Any:
        """Format 1: one file, and no sums."""
        if not isinstance(record, dict) or record.get("format") != 1 or "joined" in record:
            return record
        start, n, batch = (record.get(key) for key in ("start", "n", "batch_size"))
        whole = all(isinstance(value, int) and value >= 0 for value in (start, n, batch)) and batch
        size = -(-(start + n) // batch) * batch if whole else None  # type: ignore[operator]
        joined = {"sha256": None, "bytes": None}
        return {**record, "fingerprint": None, "asked": record.get("settings"), "shard_size": size, "joined": joined}

    @property
    def plan(self) -> RunPlan:
        return RunPlan.model_construct(**{name: getattr(self, name) for name in RunPlan.model_fields}).check()


@dataclass(frozen=True)
class Shard:
    """A shard on its way from a worker to the folder."""

    record: ShardRecord
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
