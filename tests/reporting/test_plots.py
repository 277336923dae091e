"""The frontier: one line per arm over the budgets, bars as wide as the interval; figures are the same bytes again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from scipy import stats

from isostep.reporting.plots import SIDESTEP, frontier, inline
from isostep.reporting.tables import baseline, difference_table

VALUES = {"uniform": ([0.3, 0.5, 0.4], [0.1, 0.2, 0.3]), "dvs": ([0.2, 0.3, 0.1], [0.1, 0.1, 0.4])}
BUDGETS = (20, 50)


@pytest.fixture
def comparison() -> dict[str, Any]:
    arms = []
    for b, budget in enumerate(BUDGETS):
        for name, values in VALUES.items():
            test = {"difference": 0.1, "low": -0.1, "high": 0.3, "p": 0.2, "p_holm": 0.4, "n": 3}
            entry = {"n": 3, "mean": np.mean(values[b]), "sd": np.std(values[b], ddof=1)}
            entry["test"] = None if name == "uniform" else {**test, "verdict": "not distinguishable"}
            arms.append(
                {
                    "name": f"{name}, {budget} calls",
                    "budget": budget,
                    "baseline": f"uniform, {budget} calls",
                    "calls": {"mean": budget},
                    "metrics": {"degree": entry},
                }
            )
    return {"better": {"degree": "lower"}, "arms": arms, "tests": 2}


def test_an_arm_is_one_line_over_its_budgets(comparison):
    figure = frontier(comparison)
    assert figure is not None
    (axis,) = figure.axes
    assert [c.get_label() for c in axis.containers] == list(VALUES)
    for container, values in zip(axis.containers, VALUES.values(), strict=True):
        assert isinstance(container, ErrorbarContainer)
        line, _, (bars,) = container.lines
        np.testing.assert_allclose(np.asarray(line.get_xdata(), float), BUDGETS, rtol=SIDESTEP - 1)
        for segment, sample in zip(bars.get_segments(), values, strict=True):
            want = stats.t.interval(0.95, 2, np.mean(sample), stats.sem(sample))
            np.testing.assert_allclose(segment[:, 1], want)
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["20", "50"]


def test_the_baseline_is_named_once_for_all_budgets(comparison):
    assert baseline(comparison) == "uniform at the same budget"
    assert difference_table(comparison).title == "Differences to uniform at the same budget, paired by seed"
    comparison["arms"] = comparison["arms"][:2]
    assert baseline(comparison) == "uniform, 20 calls"


def test_the_same_figure_is_the_same_text(comparison):
    first, second = (frontier(comparison) for _ in range(2))
    assert first is not None
    assert second is not None
    assert inline(first, "frontier") == inline(second, "frontier")
