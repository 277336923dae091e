"""Two generated sets against one reference: can they be told apart?

Both are measured by one function of weights over all their graphs, so the difference has a bootstrap interval (each set
resampled by itself) and a permutation test: if both sets came from one sampler, any split of all graphs into two sets
of these sizes would be as likely as the one at hand. Uniqueness is judged in each set, also of a split, by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isostep.base.errors import InputError
from isostep.item import Graph
from isostep.metric.base import Better, interval
from isostep.metric.evaluate import choose, resolve_reference
from isostep.metric.items import Skipped, gather
from isostep.metric.mmd import Kernel
from isostep.metric.suite import suite_of

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Contrast:
    """One metric of both sets, each (value, low, high), and of other - first; `floor`: of as many training graphs."""

    metric: str
    better: Better
    first: tuple[float, float, float]
    other: tuple[float, float, float]
    difference: tuple[float, float, float]
    p: float
    floor: float | None


class Contrasted(NamedTuple):
    """What was found, and the lines of both sets that could not be used."""

    rows: list[Contrast]
    skipped: list[Skipped]


def contrast(
    first: str | Path,
    other: str | Path,
    reference: str | Path,
    kernel: Kernel | None = None,
    metrics: Iterable[str] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    strict: bool = False,
) -> Contrasted:
    """Compare two sets of graphs, each a file or a run folder. `metrics`: keys; the four MMDs where None. `strict`: a
    line that cannot be used is an error."""
    if resamples < 1 or seed < 0:
        raise InputError(f"need resamples >= 1 and seed >= 0, got {resamples} and {seed}")
    entry, fitted, _ = resolve_reference(reference)
    sets = [gather(source, strict) for source in (first, other)]
    for source, items in zip((first, other), sets, strict=True):
        if items.item is not Graph or fitted.kind != Graph.kind or len(items) < 2:
            raise InputError(f"--versus compares two sets of graphs; {source} holds {len(items)} {items.item.kind}s")
    sizes = [len(items) for items in sets]
    both = [graph for items in sets for graph in items.members]
    suite = suite_of(Graph.kind)
    known = {metric.name: metric for metric in suite.metrics(True, kernel or suite.kernel(entry), entry)}
    fitted = fitted.among(both)
    random = np.random.default_rng(seed)
    parts = np.repeat([0, 1], sizes)
    draws = [random.multinomial(n, np.full(n, 1 / n), size=resamples) / n for n in sizes]
    splits = [random.permutation(parts) for _ in range(resamples)]
    rows = []
    for key, metric in choose(known, metrics or suite.usual).items():
        bounds: tuple[float, float] = getattr(metric, "bounds", (-np.inf, np.inf))
        joined = metric.prepare(both, fitted)
        alone = getattr(joined, "among", lambda chosen, joined=joined: joined)

        def halves(split: np.ndarray, alone: Any = alone) -> list[float]:
            return [alone(split == part)((split == part) / sizes[part]) for part in (0, 1)]

        values = np.clip(halves(parts), *bounds).tolist()  # rounding may lead out of the range
        drawn = np.empty((resamples, 2))
        for part in (0, 1):
            measure, weights = alone(parts == part), np.zeros(sum(sizes))
            for k, draw in enumerate(draws[part]):
                weights[parts == part] = draw
                drawn[k, part] = measure(weights)
        drawn = drawn.clip(*bounds)
        moved = np.array([b - a for a, b in map(halves, splits)])
        one, two = (
            (values[part], *interval(values[part], drawn[:, part], sizes[part], CONFIDENCE, bounds)) for part in (0, 1)
        )
        rows.append(
            Contrast(
                key,
                metric.better,
                one,
                two,
                _difference(one, two, drawn, min(sizes), bounds),
                float((1 + (np.abs(moved) >= abs(values[1] - values[0]) - 1e-15).sum()) / (1 + resamples)),
                getattr(metric, "floor", lambda reference, n: None)(fitted, min(sizes)),
            )
        )
    return Contrasted(rows, [line for items in sets for line in items.skipped])


def _difference(
    one: tuple[float, float, float],
    two: tuple[float, float, float],
    drawn: np.ndarray,
    n: int,
    bounds: tuple[float, float],
) -> tuple[float, float, float]:
    """two - one with its interval: of the resamples or, where those of a set are all alike and so silent, Newcombe's,
    which joins the intervals of both."""
    gap, reach = two[0] - one[0], bounds[1] - bounds[0]
    if np.ptp(drawn, axis=0).all():
        return gap, *interval(gap, drawn[:, 1] - drawn[:, 0], n, CONFIDENCE, (-reach, reach))
    return gap, gap - math.hypot(two[0] - two[1], one[2] - one[0]), gap + math.hypot(two[2] - two[0], one[0] - one[1])
