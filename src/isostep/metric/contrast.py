"""Two generated sets against one reference: can they be told apart?

Both are measured by one function of weights over all their graphs, so the difference has a bootstrap interval (each set
resampled by itself) and a permutation test: if both sets came from one sampler, any split of all graphs into two sets
of these sizes would be as likely as the one at hand.
"""

from __future__ import annotations

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
        measure = metric.prepare(both, fitted)

        def halves(split: np.ndarray, measure: Any = measure) -> list[float]:
            return [measure((split == part) / sizes[part]) for part in (0, 1)]

        values = halves(parts)
        blank = np.zeros(sum(sizes))
        drawn = np.empty((resamples, 2))
        for part in (0, 1):
            weights = blank.copy()
            for k, draw in enumerate(draws[part]):
                weights[parts == part] = draw
                drawn[k, part] = measure(weights)
        gap = values[1] - values[0]
        moved = np.array([b - a for a, b in map(halves, splits)])
        rows.append(
            Contrast(
                key,
                metric.better,
                (values[0], *interval(values[0], drawn[:, 0], sizes[0], CONFIDENCE)),
                (values[1], *interval(values[1], drawn[:, 1], sizes[1], CONFIDENCE)),
                (gap, *interval(gap, drawn[:, 1] - drawn[:, 0], min(sizes), CONFIDENCE)),
                float((1 + (np.abs(moved) >= abs(gap) - 1e-15).sum()) / (1 + resamples)),
                getattr(metric, "floor", lambda reference, n: None)(fitted, min(sizes)),
            )
        )
    return Contrasted(rows, [line for items in sets for line in items.skipped])
