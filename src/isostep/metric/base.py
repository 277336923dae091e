"""A metric compares generated items with a reference: value(w) = T(sum_i w_i delta_{x_i}, reference).

`prepare` does the heavy work once and returns the value as a function of weights w over the generated items
(w_i >= 0, sum 1; the point value has w_i = 1/G). An item keeps its own contribution however often a resample draws it,
so a repeated draw is not a duplicate.

Interval. Statistics such as a biased MMD or FCD grow under resampling, because repeated items look alike:
E*[w'Kw] = p'Kp + (1 - p'Kp)/G for a kernel with k(x, x) = 1. That shift equals the bias that the statistic itself
already has at sample size G, so plain percentiles lie too high, often above the value itself. Here the quantiles are
shifted by (value - bootstrap mean): the interval is for the value expected of sets of this size, which is what two
samplers of equal G are compared by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from scipy.special import ndtri

from isostep.base.errors import InputError

Measure = Callable[[np.ndarray], float]
Better = Literal["lower", "higher"]
Bounds = tuple[float | None, float | None]  # None: open


class Metric(Protocol):
    """What `evaluate_metric` needs. Five optional members are read when present:

    `title: str`: its name in tables, where that is not `name`.
    `bounds: tuple[float, float]`: the range of the value; the interval stays inside.
    `floor(reference, n) -> float | None`: the value that n training items would get against the same reference.
    `details`, on the function that `prepare` returns: a dictionary of facts about how the value came about.
    `among(part)`, on the same: the function in a set of the items of `part` (G,), where an item's contribution depends
    on which others are in the set.
    """

    @property
    def name(self) -> str:
        """JSON key, such as "degree"."""
        ...

    @property
    def definition(self) -> str:
        """One sentence, exact."""
        ...

    @property
    def equals(self) -> str:
        """Whose published numbers it equals."""
        ...

    @property
    def better(self) -> Better: ...

    def prepare(self, generated: Sequence[Any], reference: Any) -> Measure:
        """The value as a function of weights over `generated` (shape (G,), sum 1)."""
        ...


def bounds_of(metric: Metric) -> Bounds:
    low, high = getattr(metric, "bounds", (-np.inf, np.inf))
    return (float(low) if np.isfinite(low) else None), (float(high) if np.isfinite(high) else None)


@dataclass(frozen=True)
class Value:
    """A measured value with its bootstrap interval, the number of generated items, and the training set's value."""

    value: float
    low: float | None
    high: float | None
    n: int
    floor: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


def evaluate_metric(
    metric: Metric,
    generated: Sequence[Any],
    reference: Any,
    resamples: int = 200,
    seed: int = 0,
    confidence: float = 0.95,
) -> Value:
    """Value of `metric` on `generated`, with an interval from `resamples` multinomial reweightings (0: no interval)."""
    n = len(generated)
    if n == 0:
        raise InputError(f"{metric.name}: the generated set is empty; give at least one item")
    if resamples < 0 or not 0 < confidence < 1:
        raise InputError(
            f"resamples must be >= 0 and confidence inside (0, 1), got resamples={resamples}, confidence={confidence}"
        )
    measure = metric.prepare(generated, reference)
    least, most = bounds = getattr(metric, "bounds", (-np.inf, np.inf))

    def bounded(weights: np.ndarray) -> float:
        return float(np.clip(measure(weights), least, most))  # rounding may lead out of the range

    value = bounded(np.full(n, 1 / n))
    if not np.isfinite(value):
        raise InputError(f"{metric.name} is {value} on {n} items; check the generated items and the reference")
    low, high = None, None
    if resamples and n > 1:
        draws = np.array([bounded(row / n) for row in _counts(n, resamples, seed)])
        if np.isfinite(draws).all():  # no interval rather than one of the resamples that happen to be defined
            low, high = interval(value, draws, n, confidence, bounds)
    floor = getattr(metric, "floor", lambda reference, n: None)(reference, n)
    return Value(value, low, high, n, floor, dict(getattr(measure, "details", {})))


@functools.lru_cache(maxsize=1)
def _counts(n: int, resamples: int, seed: int) -> np.ndarray:
    """How often each of n items is drawn, a row per resample; the metrics of a set share them."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)


def interval(
    value: float, draws: np.ndarray, n: int, confidence: float, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """Percentiles of the bootstrap `draws`, shifted so that their mean is `value`, inside `bounds`.

    Where every draw sits on a bound (40 of 40 valid) resampling is silent; the open side is then Wilson's score bound
    for n like verdicts.
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail]) + (value - draws.mean())
    least, most = bounds
    if np.ptp(draws) == 0 and value in bounds and np.isfinite(bounds).all():
        z2 = ndtri(1 - tail) ** 2
        reach = (most - least) * z2 / (n + z2)
        low, high = (least, least + reach) if value == least else (most - reach, most)
    return float(np.clip(low, least, most)), float(np.clip(high, least, most))
