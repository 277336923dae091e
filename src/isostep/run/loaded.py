"""A run folder read back: its items in memory, and what the run says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isostep.item import Item
from isostep.run.format import RunPlan
from isostep.run.reading import read_run
from isostep.sampling.generated import Generated
from isostep.settings.schema import SamplerSettings


@dataclass(frozen=True, eq=False)
class LoadedRun(Generated):
    """Items of a run folder in index order; `summary` is None while the run is not complete."""

    folder: Path
    plan: RunPlan
    index: list[int]
    items: list[Any]
    summary: dict[str, Any] | None

    @property
    def item(self) -> type[Item]:
        return self.plan.item

    @property
    def name(self) -> str:
        return self.plan.model

    @property
    def settings(self) -> SamplerSettings:
        return self.plan.settings

    @property
    def seed(self) -> int:
        return self.plan.seed

    def __repr__(self) -> str:
        return f"LoadedRun({self.folder}: {len(self)} of {self.plan.n} {self.item.kind}s of {self.name})"

    def records(self) -> list[dict[str, Any]]:
        return [{"index": index, **item.row()} for index, item in zip(self.index, self.items, strict=True)]


def load_run(folder: str | Path, partial: bool = False) -> LoadedRun:
    """What `isostep sample --out`, `sample_run` or `SampleResult.save` wrote; `partial`: what there is of an unfinished
    run. No model is loaded and no code of it runs.

    Example:
        >>> import tempfile, isostep
        >>> with tempfile.TemporaryDirectory() as out:
        ...     _ = isostep.sample_run("rings-and-stars", 5, out, schedule="uniform", steps=10)
        ...     len(isostep.load_run(out).items)
        5
    """
    run = read_run(folder)
    pairs = list(run.items(partial))
    summary = None if run.record is None else dict(run.record.summary)
    return LoadedRun(Path(folder), run.plan, [index for index, _ in pairs], [item for _, item in pairs], summary)
