"""Paired statistics: equal to scipy, right coverage, honest verdicts."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from isostep.base.errors import InputError
from isostep.study.significance import holm, judge, paired, spread, verdict


def judged(first, other, better) -> str:
    """The verdict of a single test, which needs no correction."""
    test = paired(list(first), list(other))
    return verdict(test.difference, test.p, better)


@pytest.mark.parametrize("n", [2, 5, 10, 40])
def test_equals_scipy(n):
    rng = np.random.default_rng(n)
    first, other = rng.normal(1, 0.3, n), rng.normal(1.1, 0.2, n)
    ours = paired(list(first), list(other))
    theirs = stats.ttest_rel(other, first)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert ours.difference == pytest.approx(np.mean(other - first), rel=1e-12)
    assert spread(list(first)).sd == pytest.approx(np.std(first, ddof=1), rel=1e-12)


def test_interval_covers_the_true_difference_in_95_of_100_studies():
    rng, true, studies = np.random.default_rng(1), 0.2, 4000
    shared = rng.normal(0, 3, (studies, 6))  # what both arms of a seed have in common cancels
    first = shared + rng.normal(0, 1, (studies, 6))
    other = shared + true + rng.normal(0, 1, (studies, 6))
    results = [paired(list(a), list(b)) for a, b in zip(first, other, strict=True)]
    covered = np.mean([r.low <= true <= r.high for r in results])
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / studies)


def test_false_findings_are_as_rare_as_stated():
    rng, studies = np.random.default_rng(2), 4000
    a, b = rng.normal(0, 1, (2, studies, 5))
    found = np.mean([judged(x, y, "lower") != "not distinguishable" for x, y in zip(a, b, strict=True)])
    assert abs(found - 0.05) < 4 * np.sqrt(0.05 * 0.95 / studies)


def test_identical_arms_are_not_distinguishable():
    values = [0.1, 0.5, 0.3]
    result = paired(values, values)
    assert (result.p, result.low, result.high) == (1.0, None, None)
    assert judged(values, values, "higher") == "not distinguishable"


@pytest.mark.parametrize(("better", "expected"), [("lower", "worse"), ("higher", "better")])
def test_a_planted_difference_is_found_with_its_sign(better, expected):
    rng = np.random.default_rng(3)
    first = rng.normal(0, 1, 10)  # the spread between seeds is ten times the difference
    other = first + 0.1 + rng.normal(0, 0.02, 10)
    assert judged(first, other, better) == expected
    unpaired = stats.ttest_ind(first, other)
    assert unpaired.pvalue > 0.5  # without pairing it would be lost


def test_one_seed_gives_no_test():
    result = paired([1.0], [2.0])
    assert result.p is None
    assert result.low is None
    assert judged([1.0], [2.0], "lower") == "not distinguishable"


@pytest.mark.parametrize("n", [2, 5, 6, 10])
def test_equal_differences_tell_no_more_than_their_signs(n):
    first = [0.95 + 0.001 * k for k in range(n)]
    result = paired(first, [value + 0.0001 for value in first])  # equal up to rounding
    assert (result.p, result.low, result.high) == (2 / 2**n, None, None)
    assert judged(first, [value + 0.0001 for value in first], "lower") == ("worse" if n > 5 else "not distinguishable")


def test_differences_by_rounding_are_none():
    assert paired([0.3] * 10, [0.1 + 0.2] * 10).p == 1.0


@pytest.mark.parametrize(
    ("seeds", "share", "tests"), [(2, 0.95, 1), (2, 0.95, 8), (3, 0.99, 1), (3, 0.99, 8), (4, 0.97, 8)]
)
def test_shares_of_few_graphs_give_no_false_findings(seeds, share, tests):
    """Both arms have the same chance of a valid graph, 100 graphs a seed: equal differences are frequent."""
    rng, studies, false = np.random.default_rng(5), 500, 0
    for study in rng.binomial(100, share, (studies, tests, 2, seeds)) / 100:
        rows = [asdict(paired(first, other)) for first, other in study.tolist()]
        judge(rows, ["higher"] * tests)
        false += any(row["verdict"] != "not distinguishable" for row in rows)
    assert false / studies <= 0.05


def test_unequal_counts_and_no_values_are_refused():
    with pytest.raises(InputError, match="2 and 1"):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(InputError, match="at least one seed"):
        spread([])


def test_holm_keeps_the_order_and_the_family_error():
    p = [0.01, 0.04, 0.03, 0.5]
    assert holm(p) == pytest.approx([0.04, 0.09, 0.09, 0.5])  # 4 x .01, 3 x .03, at least that, .5
    rng = np.random.default_rng(4)
    any_found = np.mean([min(holm(list(row))) < 0.05 for row in rng.uniform(size=(4000, 8))])
    assert any_found < 0.065
