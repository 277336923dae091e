"""Figures: what is shown, inside which ranges, drawn for files and for the page; the same bytes again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from isostep.base.markup import unstyled
from isostep.reporting.chart import Scale, drawn
from isostep.reporting.figures import Curves, Dots, differences, quality
from isostep.reporting.plots import draw, save
from isostep.reporting.tables import baseline, difference_table, with_interval

VALUES = {"uniform": ([0.3, 0.5, 0.4], [0.1, 0.2, 0.3]), "dvs": ([0.2, 0.3, 0.1], [0.1, 0.1, 0.4])}
BUDGETS = (20, 50)


@pytest.fixture
def comparison() -> dict[str, Any]:
    arms = []
    for b, budget in enumerate(BUDGETS):
        for name, values in VALUES.items():
            test = {"difference": 0.1, "low": -0.1, "high": 0.3, "p": 0.2, "p_holm": 0.4, "n": 3}
            entry: dict[str, Any] = {"n": 3, "mean": np.mean(values[b]), "sd": np.std(values[b], ddof=1)}
            entry["values"] = dict(enumerate(values[b]))
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
    return {"better": {"degree": "lower"}, "bounds": {}, "arms": arms, "tests": 2}


def test_an_arm_is_one_curve_over_its_budgets(comparison):
    (panel,) = quality(comparison)
    assert isinstance(panel, Curves)
    assert [curve.name for curve in panel.curves] == list(VALUES)
    assert panel.ticks == BUDGETS
    for curve, values in zip(panel.curves, VALUES.values(), strict=True):
        assert curve.x == BUDGETS
        for low, high, sample in zip(curve.low, curve.high, values, strict=True):
            want = np.clip(stats.t.interval(0.95, 2, np.mean(sample), stats.sem(sample)), 0, None)
            np.testing.assert_allclose((low, high), want)


def test_one_budget_is_a_row_for_each_arm(comparison):
    comparison["arms"] = comparison["arms"][:2]
    (panel,) = quality(comparison)
    assert isinstance(panel, Dots)
    assert [dot.name for dot in panel.dots] == ["uniform, 20 calls", "dvs, 20 calls"]
    assert panel.dots[1].single == (0.2, 0.3, 0.1)
    page = drawn([panel], "quality")
    assert page.count("<li ") == 2
    assert page.count('class="seed') == 6


@pytest.mark.parametrize("several", [True, False])
def test_intervals_stay_inside_the_range(comparison, several):
    """Below 0 only what has values there; at most the metric's own upper end."""
    comparison["bounds"] = {"degree": (0.0, 0.55)}
    comparison["arms"] = comparison["arms"] if several else comparison["arms"][:2]
    (panel,) = quality(comparison)
    parts = [(c.low, c.high) for c in panel.curves] if isinstance(panel, Curves) else [
        ([d.low], [d.high]) for d in panel.dots
    ]  # fmt: skip
    assert min(min(low) for low, _ in parts) == 0
    assert max(max(high) for _, high in parts) == 0.55


def test_one_wide_interval_does_not_flatten_the_others(comparison):
    """The axis follows the median interval; the wide one is cut and gets arrows, in the page and in the file."""
    narrow = {"n": 3, "mean": 1.0, "sd": 0.1, "values": {0: 1.0}, "test": None}
    names = ("a", "b", "c")
    for k, arm in enumerate(comparison["arms"][:2]):
        arm["metrics"] = {
            name: {
                **narrow,
                "test": k and {"difference": 0.1, "low": 0.05, "high": 0.15, "verdict": "worse", "p": 0.01},
            }
            for name in names
        }
    comparison["arms"] = comparison["arms"][:2]
    comparison["better"] = dict.fromkeys(names, "lower")
    comparison["arms"][1]["metrics"]["c"]["test"].update(low=-50.0, high=50.0)
    figure = differences(comparison)
    assert all(isinstance(panel, Dots) and panel.limits == pytest.approx((-16.2, 16.2)) for panel in figure)
    marks = [drawn([panel], "differences").count('class="tip') for panel in figure]
    assert marks == [0, 0, 2]
    shown = [[line.get_marker() for line in axis.lines] for axis in draw(figure).axes]
    assert [{"<", ">"} <= set(markers) for markers in shown] == [False, False, True]


def test_the_page_and_the_file_show_the_same_points(comparison):
    (panel,) = quality(comparison)
    sheet = draw([panel]).axes[0]
    text = drawn([panel], "quality")
    found = re.search(r'data-scale="([^"]*)"', text)
    assert found
    x0, x1, log_x, y0, y1, log_y = map(float, found[1].split())
    assert (log_x, log_y) == (1, 0)
    lines = re.findall(r'<polyline points="([^"]*)"', text)
    for points, container in zip(lines, sheet.containers, strict=True):
        places = np.array([pair.split(",") for pair in points.split()], float) / 1000
        np.testing.assert_allclose(10 ** (x0 + places[:, 0] * (x1 - x0)), BUDGETS, rtol=1e-3)
        y = np.asarray(container.lines[0].get_ydata(), float)
        np.testing.assert_allclose(y0 + (1 - places[:, 1]) * (y1 - y0), y, rtol=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0, 1, False), (-3, 8, False), (1e-7, 3e4, True), (2, 9, True), (5, 5, False)]
)
def test_ticks_lie_on_the_axis(low, high, log):
    scale = Scale.over([low, high], log)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 8
    assert all(-1e-9 <= scale(tick) <= 1 + 1e-9 for tick in ticks)
    assert 0 < scale(low) <= scale(high) < 1


def test_the_baseline_is_named_once_for_all_budgets(comparison):
    assert baseline(comparison) == "uniform at the same budget"
    assert difference_table(comparison).title == "Differences to uniform at the same budget, paired by seed"
    comparison["arms"] = comparison["arms"][:2]
    assert baseline(comparison) == "uniform, 20 calls"


def test_the_same_figure_is_the_same_file(comparison, tmp_path):
    for name in ("a", "b"):
        save(draw(quality(comparison)), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_styles_become_attributes():
    assert (
        unstyled("<path style='fill:none;stroke:#FF0000; x' d='M0'/>")
        == '<path fill="none" stroke="#FF0000" d=\'M0\'/>'
    )
    assert unstyled('<path style="fill: url(&quot;#a&quot;)"/>') == '<path fill="url(&quot;#a&quot;)"/>'


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.000606, 0.000047, 0.00116), "0.00061 (0.00005 to 0.00116)"),
        ((0.938, 0.41, 1.0), "0.94 (0.41 to 1.00)"),
        ((1512.0, 1204.0, 1820.0), "1512 (1204 to 1820)"),
        ((0.25, 0.25, 0.25), "0.25"),
        ((2e-9, 1e-9, 3e-9), "2.0e-09 (1.0e-09 to 3.0e-09)"),
    ],
)
def test_an_interval_decides_the_decimals(numbers, text):
    assert with_interval(*numbers) == text
