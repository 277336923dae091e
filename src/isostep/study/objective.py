"""What tuning makes small: the loss against the model's long run, metric by metric in units of its spread.

    z_m = s (value - yardstick) / u      s = 1 where lower is better, else -1
    u   = standard deviation between seeds (long run and baseline pooled), at least 1 % of the yardstick
    L   = mean over m of phi(z_m),       phi(z) = log(1 + z) for a loss, -log(1 - z) / 2 for a gain

The logarithm makes halving a large loss worth the same in every metric. A gain counts half, so that what is lost in one
metric cannot be bought back by as much in another. A value that is not defined counts as a loss of MISSING units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isostep.base.schema import Frozen
from isostep.metric.base import Better
from isostep.study.record import Values
from isostep.study.significance import spread

LEAST = 0.01  # of the yardstick
MISSING = 1000.0
NOISE = 2.0  # units: what counts as noise, for one seed


class Objective(Frozen):
    """By metric: which way is better, the long run's mean, and the unit. `metrics` are those that count."""

    metrics: tuple[str, ...]
    better: dict[str, Better]
    yardstick: dict[str, float]
    unit: dict[str, float]

    @staticmethod
    def of(
        metrics: Sequence[str], better: Mapping[str, Better], long_run: Sequence[Values], baseline: Sequence[Values]
    ) -> Objective:
        """From the values of the same metrics for each seed. A metric that the long run does not have counts not."""
        yardstick, unit = {}, {}
        for name in better:
            groups = [found for rows in (long_run, baseline) if (found := defined(rows, name))]
            if not defined(long_run, name):
                continue
            yardstick[name] = spread(groups[0]).mean
            parts = [(len(g) - 1, spread(g).sd or 0.0) for g in groups]
            freedom = sum(k for k, _ in parts)
            pooled = math.sqrt(sum(k * sd**2 for k, sd in parts) / freedom) if freedom else 0.0
            unit[name] = max(pooled, LEAST * abs(yardstick[name]), 1e-9)
        counted = tuple(name for name in metrics if name in yardstick)
        return Objective(metrics=counted, better=dict(better), yardstick=yardstick, unit=unit)

    def loss(self, name: str, value: float | None) -> float:
        """z of one metric."""
        if value is None:
            return MISSING
        sign = 1 if self.better[name] == "lower" else -1
        return sign * (value - self.yardstick[name]) / self.unit[name]

    def __call__(self, values: Values) -> float:
        """L of (mean) values."""
        return sum(phi(self.loss(name, values.get(name))) for name in self.metrics) / len(self.metrics)

    def loses(self, names: Sequence[str], values: Values, seeds: int) -> bool:
        """Whether one of these metrics is worse than the long run by more than noise."""
        return any(
            self.loss(name, values.get(name)) > NOISE / math.sqrt(seeds) for name in names if name in self.yardstick
        )


def phi(z: float) -> float:
    return math.log1p(z) if z >= 0 else -math.log1p(-z) / 2


def defined(rows: Sequence[Values], name: str) -> list[float]:
    return [value for row in rows if (value := row.get(name)) is not None]


def means(rows: Sequence[Values]) -> Values:
    """Mean over seeds by metric; None where a seed has no value."""
    names = {name: None for row in rows for name in row}
    return {
        name: (math.fsum(found) / len(rows) if len(found := defined(rows, name)) == len(rows) else None)
        for name in names
    }
