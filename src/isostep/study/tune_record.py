"""What a tuning run is asked for, and what it found. Nothing here samples or needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from isostep.base.errors import InputError
from isostep.base.files import read_json
from isostep.base.schema import Frozen, checked
from isostep.settings.schema import AutoChoice
from isostep.study.objective import Objective
from isostep.study.record import Values
from isostep.study.significance import Verdict

TUNE = "tune.json"
SEARCH_SEED, CONFIRM_SEED, APART = 1000, 2000, 10_000
LEVELS = (1, 3, 6)  # search seeds of a candidate that has come so far
MOST_GENERATIONS = 100
LONG, AUTO, TUNED, LOSS = "long run", "auto", "tuned", "loss"


class TunePlan(Frozen):
    """What to tune, and how much work to spend on it. `reference` None: the model's dataset."""

    model: str
    calls: int = Field(ge=1, le=1_000_000)
    reference: str | None = None
    own: bool = False  # the model's long run is the reference
    n: int = Field(default=256, ge=2)
    batch_size: int = Field(default=256, ge=1)
    generations: int = Field(default=3, ge=0, le=MOST_GENERATIONS)
    minutes: float | None = Field(default=None, gt=0)
    confirm: int = Field(default=5, ge=2)
    seed: int = Field(default=0, ge=0)
    yardstick_steps: int | None = Field(default=None, ge=1)
    metrics: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # schedules and solvers to try
    kernel: Literal["tv", "emd"] | None = None
    command: str = ""

    @field_validator("own")
    @classmethod
    def _one_reference(cls, own: bool, info: ValidationInfo) -> bool:
        if own and (reference := info.data.get("reference")) is not None:
            raise ValueError(f"--self (own) and --reference {reference} exclude each other; give one of them")
        return own

    @property
    def search_seeds(self) -> tuple[int, ...]:
        first = SEARCH_SEED + APART * self.seed
        return tuple(range(first, first + LEVELS[-1]))

    @property
    def confirm_seeds(self) -> tuple[int, ...]:
        first = CONFIRM_SEED + APART * self.seed
        return tuple(range(first, first + self.confirm))


class Candidate(Frozen):
    """A measured choice: means over its search seeds, and its loss."""

    name: str
    choice: AutoChoice
    seeds: int
    calls: float
    values: Values
    loss: float
    forbidden: bool = False  # it loses in a metric that is to be kept


class TuneTest(Frozen):
    """The tuned choice against another sampler in one metric (or the loss), paired by confirmation seed."""

    against: str
    metric: str
    first: float
    value: float
    difference: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    verdict: Verdict


class TuneRecord(Frozen):
    """`tune.json`."""

    format: Literal[1] = 1
    plan: TunePlan
    fingerprint: str
    kind: str
    reference: str
    objective: Objective
    yardstick: dict[str, tuple[float | None, ...]]  # the long run's values by metric, for each search seed
    yardstick_calls: float
    candidates: tuple[Candidate, ...]  # the best first
    baseline: str
    winner: str | None = None  # None: still searching
    kept: bool = False  # whether the winner takes the baseline's place
    reason: str = ""
    tests: tuple[TuneTest, ...] = ()
    seconds: float = 0.0

    @property
    def result(self) -> AutoChoice:
        """What is written down: the winner, or the baseline where it was not beaten."""
        name = self.winner if self.kept else self.baseline
        return next(candidate.choice for candidate in self.candidates if candidate.name == name)


def is_tuning(folder: Path) -> bool:
    return (folder / TUNE).is_file()


def read_tuning(folder: Path) -> TuneRecord:
    if not is_tuning(folder):
        raise InputError(f"{folder} holds no {TUNE}; name the folder beside the preset that tune wrote")
    return checked(TuneRecord, read_json(folder / TUNE), str(folder / TUNE), "repeat the command that made it")
