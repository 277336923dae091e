"""What a study compares: arms (sampler settings), seeds, counts, metrics.

Common random numbers: an arm never changes the seed, so graph i of seed s starts from the same prior in every arm; with
`noise="path"` all arms also read one Brownian path per graph, whatever their grids. One clock rule holds for all arms,
since correctors too depend on it.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Literal

from pydantic import Field, field_validator

from isostep.base.errors import InputError
from isostep.base.schema import Frozen


class Arm(Frozen):
    """`chosen` goes to `resolve`; `calls` is a budget of network calls per graph that sets the steps.

    A control takes as many steps as another arm, seed by seed.
    """

    name: str
    chosen: dict[str, Any]
    calls: int | None = None
    paper: dict[str, float] = Field(default_factory=dict)  # published values, for tables side by side
    control_of: str | None = None
    steps_by_seed: dict[int, int] = Field(default_factory=dict)

    @property
    def group(self) -> str:
        """Its name without its budget."""
        return self.name.removesuffix(f", {self.calls} calls")


class StudyPlan(Frozen):
    """Arm 0 (at each budget: the first arm with that budget) is what the others are compared with."""

    title: str
    model: str
    arms: tuple[Arm, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    n: int = Field(ge=1)
    batch_size: int = Field(default=256, ge=1)
    noise: Literal["path", "step"] = "path"
    reference: str | None = None
    kernel: Literal["tv", "emd"] | None = None
    metrics: tuple[str, ...] | None = None
    weights: str | None = None
    record: bool = True  # whether the first seed of every arm keeps its trace and graphs on the way
    command: str = ""
    notes: tuple[str, ...] = ()

    @field_validator("arms")
    @classmethod
    def _budgets(cls, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """Here, because a plan is checked where it comes from Python, too."""
        for arm in arms:
            if arm.calls is not None and arm.calls < 1:
                raise ValueError(f"{arm.name} has a budget of {arm.calls} calls; give at least 1")
        return arms

    @property
    def baselines(self) -> tuple[int, ...]:
        """For every arm, the number of the arm it is compared with."""
        first: dict[int | None, int] = {}
        return tuple(first.setdefault(arm.calls, k) for k, arm in enumerate(self.arms))


def product_arms(
    schedules: list[str], solvers: list[str], calls: list[int], steps: int | None, **common: Any
) -> tuple[Arm, ...]:
    """Every combination, schedules running fastest; a name holds only what differs."""
    solvers_or_preset: list[str | None] = [*solvers] or [None]
    budgets: list[int | None] = [*calls] or [None]
    if calls and steps is not None:
        raise InputError(f"--steps {steps} and --calls {calls[0]} both set the steps; give one of them")
    arms = []
    for budget, solver, schedule in itertools.product(budgets, solvers_or_preset, schedules):
        name = schedule + (f", {solver}" if len(solvers) > 1 else "") + (f", {budget} calls" if len(calls) > 1 else "")
        chosen = {"schedule": schedule, "solver": solver, "steps": steps, **common}
        arms.append(Arm(name=name, chosen={k: v for k, v in chosen.items() if v is not None}, calls=budget))
    if len({arm.name for arm in arms}) < len(arms):
        raise InputError(f"schedules and solvers must differ, got {', '.join(schedules)} and {', '.join(solvers)}")
    return tuple(arms)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0-9`, `3`, or `0,2,5-7`."""
    seeds: list[int] = []
    for word in words(text):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not match or max(len(number or "") for number in match.groups()) > 20:
            raise InputError(f"seeds must look like 0-9 or 1,4,7 and be below 2^64, got {text[:60]!r}")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low >= 100_000:
            raise InputError(f"seeds {word!r}: the range must go up, by fewer than 100,000")
        seeds += range(low, high + 1)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds must be named once each, got {text!r}")
    return tuple(seeds)


def parse_counts(text: str | None, what: str) -> list[int]:
    """Comma-separated whole numbers above 0; none where there is no text."""
    try:
        counts = [int(word) for word in words(text or "")]
    except ValueError:
        counts = [0]
    if any(count < 1 for count in counts):
        raise InputError(f"{what} must be whole numbers above 0, such as 100,250, got {text!r}")
    return counts


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
