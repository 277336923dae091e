"""A study folder, read and written. Everything is named by the hash of what decides it, so nothing finished is computed
again. Nothing here samples or needs torch: tables, plots and pages are made from these records alone.

study.json            the plan, each arm's settings, and the names of its cells
runs/<key>/           one arm and seed: graphs.jsonl or molecules.smi, path.json (recorded seeds), run.json (last)
cells/<key>.json      its metrics against one reference
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from isostep.base.errors import InputError
from isostep.base.files import read_json, write_json
from isostep.base.schema import Frozen, M, checked
from isostep.item import Item, KindName, read_items
from isostep.item.film import Film
from isostep.metric.base import Better
from isostep.study.plan import StudyPlan

STUDY, PATH, RUN, FORMAT = "study.json", "path.json", "run.json", 1
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")]  # a file name, so nothing but a hash
Values = dict[str, float | None]  # by metric; None where one is not defined


class ModelRecord(Frozen):
    name: str
    kind: KindName
    family: str
    dataset: str
    weights: str
    source: str
    fingerprint: str


class ReferenceRecord(Frozen):
    name: str
    sha256: str
    kernel: str | None


class ArmRecord(Frozen):
    name: str
    settings: dict[str, Any]
    note: str  # what a budget came to
    cells: dict[int, Key]


class Decided(Frozen):
    """Which share of a graph's decisions lies before t, as a pilot of the model measured it; empty where none did."""

    t: tuple[float, ...] = ()
    share: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Decided:
        if len(self.t) != len(self.share):
            raise ValueError(f"{len(self.t)} times and {len(self.share)} shares of decisions")
        return self


class StudyRecord(Frozen):
    """`study.json`."""

    format: Literal[1] = FORMAT
    plan: StudyPlan
    model: ModelRecord
    reference: ReferenceRecord
    metrics: tuple[str, ...] = Field(min_length=1)
    arms: tuple[ArmRecord, ...]
    versions: dict[str, str]
    decided: Decided = Decided()

    @model_validator(mode="after")
    def _whole(self) -> StudyRecord:
        if [arm.name for arm in self.arms] != [arm.name for arm in self.plan.arms]:
            raise ValueError("the arms are not those of the plan")
        return self


class Cell(Frozen):
    """One arm and seed."""

    format: Literal[1] = FORMAT
    run: Key
    seed: int
    metrics: Values
    better: dict[str, Better]
    bounds: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)  # of the values; None: open
    undefined: dict[str, str] = Field(default_factory=dict)  # why a metric has no value
    calls: float = Field(ge=0)
    steps: float = Field(ge=0)
    seconds: float = Field(ge=0)
    evaluating: float = Field(default=0.0, ge=0)  # seconds that the metrics took
    unfinished: int = Field(ge=0)
    path_metrics: dict[float, Values]  # by time, for a recorded run


class Trajectory(Frozen):
    """`path.json`: the steps of a recorded run, and films of its first graphs."""

    format: Literal[1] = FORMAT
    trace: dict[str, tuple[float | None, ...]]
    films: tuple[Film, ...]

    @model_validator(mode="after")
    def _whole(self) -> Trajectory:
        if missing := {"t", "dt", "step", "ds2"} - self.trace.keys():
            raise ValueError(f"the trace has no {', '.join(sorted(missing))}")
        if len({len(column) for column in self.trace.values()}) != 1 or not self.trace["t"]:
            raise ValueError("the columns of the trace are empty, or of different lengths")
        if any(t is None for t in (*self.trace["t"], *self.trace["step"])):
            raise ValueError("a step of the trace has no time")
        return self


@dataclass(frozen=True)
class Study:
    """What a folder holds: the record, and the finished cells of every arm by seed."""

    record: StudyRecord
    cells: list[dict[int, Cell]]
    store: Store

    @property
    def plan(self) -> StudyPlan:
        return self.record.plan

    @property
    def metrics(self) -> list[str]:
        return list(self.record.metrics)

    @property
    def better(self) -> dict[str, Better]:
        """Which way is better, for every metric that a cell knows it of; in the order of `metrics`."""
        found: dict[str, Better] = {
            name: way for arm in self.cells for cell in arm.values() for name, way in cell.better.items()
        }
        return {name: found[name] for name in self.metrics if name in found}

    @property
    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """The range of every metric that says one."""
        return {name: ends for arm in self.cells for cell in arm.values() for name, ends in cell.bounds.items()}

    @property
    def undefined(self) -> dict[str, tuple[int, str]]:
        """In how many cells a metric has no value, and why; of those that lack any."""
        cells = [cell for arm in self.cells for cell in arm.values()]
        lacking = {name: [cell for cell in cells if cell.metrics.get(name) is None] for name in self.metrics}
        return {
            name: (len(some), next(filter(None, (cell.undefined.get(name) for cell in some)), ""))
            for name, some in lacking.items()
            if some
        }

    def recorded(self, arm: int) -> tuple[Trajectory, dict[float, Values]] | None:
        """An arm's recorded run, and the metrics of its graphs on the way."""
        for cell in self.cells[arm].values():
            if trajectory := self.store.read_trajectory(cell.run):
                return trajectory, cell.path_metrics
        return None

    def pinned(self, arm: int) -> dict[str, float]:
        """Shares of the adapting steps of DVS at dt_min and dt_max, in an arm's first finished seed."""
        for cell in self.cells[arm].values():
            summary = read_json(self.store.run(cell.run) / RUN).get("summary", {})
            shares = {bound: summary.get(f"at_{bound}") for bound in ("dt_min", "dt_max")}
            return {bound: share for bound, share in shares.items() if isinstance(share, int | float)}
        return {}

    def generated(self, arm: int, most: int) -> list[Item]:
        """The first items of an arm's first finished seed."""
        for seed in self.plan.seeds:
            if cell := self.cells[arm].get(seed):
                items = read_items(self.store.run(cell.run), self.record.model.kind)
                return [item for _, item in islice(items, most)]
        return []


@dataclass(frozen=True)
class Store:
    folder: Path

    def run(self, key: str) -> Path:
        return self.folder / "runs" / key

    def cell(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.json"

    def read_cell(self, key: str) -> Cell | None:
        """A finished cell, or None."""
        return _read(Cell, self.cell(key), "delete it, and the study computes it again")

    def write_cell(self, key: str, cell: Cell) -> None:
        write_json(self.cell(key), cell.model_dump(mode="json"))

    def read_trajectory(self, run: str) -> Trajectory | None:
        """Trace and films of a recorded run, or None."""
        return _read(Trajectory, self.run(run) / PATH, "delete its folder, and the study computes it again")

    def write_study(self, record: StudyRecord) -> None:
        write_json(self.folder / STUDY, record.model_dump(mode="json"))

    def read_study(self) -> StudyRecord:
        record = _read(StudyRecord, self.folder / STUDY, "restore it, or repeat the command that made the study")
        if record is None:
            raise InputError(f"{self.folder} holds no {STUDY}; name a folder that compare, sweep or reproduce wrote")
        return record

    def study(self, record: StudyRecord) -> Study:
        """The record with the cells that are finished."""
        cells = []
        for arm in record.arms:
            read = {seed: self.read_cell(key) for seed, key in arm.cells.items()}
            cells.append({seed: cell for seed, cell in read.items() if cell is not None})
        if not any(cells):
            raise InputError(f"{self.folder} has no finished arm yet; run its command again: {record.plan.command}")
        return Study(record, cells, self)


def load_study(folder: str | Path) -> Study:
    """A study folder, also an unfinished one."""
    store = Store(Path(folder))
    return store.study(store.read_study())


def key_of(record: Any) -> str:
    """Hash of a JSON record."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _read(kind: type[M], path: Path, remedy: str) -> M | None:
    return checked(kind, read_json(path), str(path), remedy) if path.is_file() else None
