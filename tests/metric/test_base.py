"""The contract of metrics: weights, intervals that mean what they say, refused input."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.metric.base import evaluate_metric


@dataclass(frozen=True)
class Mean:
    """Weighted mean of numbers."""

    name: str = "mean"
    definition: str = "mean of the items"
    equals: str = "nobody's"
    better: Any = "higher"

    def prepare(self, generated, reference):
        items = np.array(generated, float)
        return lambda weights: float(weights @ items)


@dataclass(frozen=True)
class Share(Mean):
    bounds: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class BiasedMMD(Mean):
    """Biased MMD^2 of numbers, narrow Gaussian kernel."""

    def prepare(self, generated, reference):
        x, y = np.array(generated), np.array(reference)
        k = lambda a, b: np.exp(-((a[:, None] - b) ** 2) / 0.02)  # noqa: E731
        among, across, constant = k(x, x), k(x, y).mean(1), k(y, y).mean()
        return lambda w: float(w @ among @ w - 2 * w @ across + constant)


@dataclass(frozen=True)
class Sometimes(Mean):
    """Defined for equal weights only."""

    def prepare(self, generated, reference):
        return lambda weights: 1.0 if np.ptp(weights) == 0 else float("nan")


@dataclass(frozen=True)
class Annotated(Mean):
    facts: dict = field(default_factory=lambda: {"inference": "own"})

    def prepare(self, generated, reference):
        def measure(weights):
            return 0.5

        measure.details = self.facts  # type: ignore[attr-defined]
        return measure

    def floor(self, reference, n):
        return reference + n


def test_the_interval_of_a_mean_is_its_standard_error():
    items = np.random.default_rng(0).normal(size=400)
    value = evaluate_metric(Mean(), items, None, resamples=2000)
    half = 1.96 * items.std() / np.sqrt(400)
    assert value.value == pytest.approx(items.mean(), abs=1e-12)
    assert value.n == 400
    assert value.low == pytest.approx(items.mean() - half, abs=0.1 * half)
    assert value.high == pytest.approx(items.mean() + half, abs=0.1 * half)


def test_wider_confidence_contains_the_narrower():
    items = np.random.default_rng(0).normal(size=50)
    narrow, wide = (evaluate_metric(Mean(), items, None, confidence=c) for c in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high  # type: ignore[operator]


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    items = np.random.default_rng(0).normal(size=50)
    first, again, other = (evaluate_metric(Mean(), items, None, seed=s) for s in (1, 1, 2))
    assert first == again
    assert first.low != other.low


def test_a_biased_statistic_is_covered_at_its_own_sample_size():
    """Plain percentiles miss it: they lie above, by the bias that resampling adds."""
    rng = np.random.default_rng(0)
    reference, size, trials = rng.normal(size=40), 20, 60
    weights = np.full(size, 1 / size)
    expected = np.mean([BiasedMMD().prepare(rng.normal(size=size), reference)(weights) for _ in range(600)])
    covered = plain = 0
    for _ in range(trials):
        sample = rng.normal(size=size)
        value = evaluate_metric(BiasedMMD(), sample, reference)
        assert value.low <= value.value <= value.high  # type: ignore[operator]
        covered += value.low <= expected <= value.high  # type: ignore[operator]
        measure = BiasedMMD().prepare(sample, reference)
        draws = [measure(row / size) for row in rng.multinomial(size, weights, size=200)]
        plain += np.quantile(draws, 0.025) <= expected <= np.quantile(draws, 0.975)
    assert covered >= 0.95 * trials
    assert plain < 0.8 * trials


@pytest.mark.parametrize(("verdict", "low", "high"), [(1, 40 / (40 + 1.96**2), 1), (0, 0, 1.96**2 / (40 + 1.96**2))])
def test_forty_like_verdicts_leave_wilsons_bound_open(verdict, low, high):
    value = evaluate_metric(Share(), [verdict] * 40, None)
    assert value.value == verdict
    assert (value.low, value.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_the_interval_stays_inside_the_bounds():
    value = evaluate_metric(Share(), [1] * 39 + [0], None)
    assert 0 <= value.low < value.value < value.high <= 1  # type: ignore[operator]


@pytest.mark.parametrize(("items", "resamples"), [([3.0], 200), ([3.0, 4.0], 0)])
def test_no_interval_where_there_is_nothing_to_resample(items, resamples):
    value = evaluate_metric(Mean(), items, None, resamples=resamples)
    assert (value.low, value.high) == (None, None)


def test_no_interval_where_resamples_are_undefined():
    value = evaluate_metric(Sometimes(), [1, 2, 3], None)
    assert (value.value, value.low, value.high) == (1.0, None, None)


def test_floor_and_details_are_carried_into_the_value():
    value = evaluate_metric(Annotated(), [0, 0, 0], 0.25)
    assert value.floor == 3.25
    assert value.details == {"inference": "own"}
    assert evaluate_metric(Mean(), [0, 1], None).floor is None


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        ([], {}, "mean: the generated set is empty"),
        ([np.nan, 1.0], {}, "mean is nan on 2 items"),
        ([1.0], {"resamples": -1}, "resamples=-1"),
        ([1.0], {"confidence": 1.0}, r"confidence=1\.0"),
    ],
)
def test_refused(items, options, message):
    with pytest.raises(InputError, match=message) as caught:
        evaluate_metric(Mean(), items, None, **options)
    assert "\n" not in str(caught.value)
