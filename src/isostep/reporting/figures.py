"""What the figures of a study show, as plain data: `plots.py` draws them for files, `chart.py` for the page.

A figure is a list of panels. A panel has curves over an axis, or dots with intervals, one row an arm. Arms of one name
at several budgets are one `group`, which decides colour, marker and line style.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from isostep.reporting.tables import ARROW, baseline, group, number, signed, with_interval
from isostep.study.plan import Arm
from isostep.study.record import Study, Trajectory, Values

LOG_FROM = 20  # a ratio of values above which a log axis reads better
MOST_PATHS = 6  # lines that can be told apart
Columns = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Curve:
    """`low`, `high`: the interval of each point, where there is one."""

    group: int
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Curves:
    title: str
    curves: tuple[Curve, ...]
    x_label: str
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    ticks: tuple[float, ...] = ()  # of x; chosen from the data where empty
    points: bool = False  # markers, and not a line alone
    joined: bool = True  # by a line
    level: float | None = None  # a horizontal line
    guide: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # x and y of a line that is no arm's
    group: int | None = None  # the arm whose parts the curves are; else each curve is an arm


@dataclass(frozen=True)
class Dot:
    """One arm: a value, its interval, the values of single seeds, and what to say of it."""

    group: int
    name: str
    value: float
    low: float | None
    high: float | None
    text: str
    single: tuple[float, ...] = ()
    verdict: str = ""


@dataclass(frozen=True)
class Dots:
    """`limits`: what the axis shows; an interval that goes on ends in an arrow. `zero`: a line to compare with."""

    title: str
    dots: tuple[Dot, ...]
    x_label: str
    limits: tuple[float, float]
    zero: float | None = None


Panel = Curves | Dots
Figure = list[Panel]


def figures(study: Study, comparison: dict[str, Any]) -> dict[str, Figure]:
    """All figures of a study by name; those without anything to show are left out."""
    made: dict[str, Figure] = {
        "quality": quality(comparison),
        "differences": differences(comparison),
        "placement": placement(study),
        "step-size": _traces(study, "dt", "step dt"),
        "information": _traces(study, "ds2", "information per step ds²"),
        "variation": variation(study),
        "convergence": convergence(study),
    }
    return {name: figure for name, figure in made.items() if figure}


def groups(comparison: dict[str, Any]) -> dict[str, int]:
    """Number of every group of arms, by its name."""
    names = dict.fromkeys(group(arm) for arm in comparison["arms"])
    return {name: k for k, name in enumerate(names)}


def quality(comparison: dict[str, Any]) -> Figure:
    """Every metric against network calls per graph; at one budget, one row an arm. Intervals are of the mean over seeds
    (95 %, Student's t), inside the metric's range."""
    arms = comparison["arms"]
    names = [n for n in comparison["better"] if any(a["metrics"].get(n, {"n": 0})["n"] for a in arms)]
    budgets = sorted({arm["budget"] for arm in arms if arm["budget"]})
    if len(budgets) > 1:
        return [_against_calls(comparison, name, budgets) for name in names]
    return [_by_arm(comparison, name) for name in names]


def _against_calls(comparison: dict[str, Any], name: str, budgets: list[int]) -> Curves:
    curves = []
    for label, k in groups(comparison).items():
        arms = [a for a in comparison["arms"] if group(a) == label and a["metrics"][name]["n"]]
        if arms:
            arms.sort(key=lambda arm: arm["calls"]["mean"])
            curves.append(_means(comparison, name, k, label, [(arm["calls"]["mean"], arm) for arm in arms]))
    ticks = tuple(map(float, budgets))
    return Curves(
        _title(comparison, name), tuple(curves), "network calls per graph", log_x=True, ticks=ticks, points=True
    )


def _title(comparison: dict[str, Any], name: str) -> str:
    return f"{name} {ARROW[comparison['better'][name]]}"


def _means(
    comparison: dict[str, Any], name: str, k: int, label: str, rows: list[tuple[float, dict[str, Any]]]
) -> Curve:
    """Means of a metric with their intervals, for (x, arm)."""
    low, high = zip(*(interval(comparison, arm, name) for _, arm in rows), strict=True) if rows else ((), ())
    return Curve(k, label, tuple(x for x, _ in rows), tuple(arm["metrics"][name]["mean"] for _, arm in rows), low, high)


def _by_arm(comparison: dict[str, Any], name: str) -> Dots:
    dots = []
    for arm in comparison["arms"]:
        metric = arm["metrics"].get(name, {"n": 0})
        if metric["n"]:
            low, high = interval(comparison, arm, name)
            text = number(metric["mean"]) if metric["sd"] is None else with_interval(metric["mean"], low, high)
            verdict = (metric["test"] or {}).get("verdict", "") if (metric["test"] or {}).get("p") is not None else ""
            single = tuple(metric["values"].values()) if metric["n"] > 1 else ()
            k = groups(comparison)[group(arm)]
            dots.append(Dot(k, arm["name"], metric["mean"], low, high, text, single, verdict))
    shown = [v for dot in dots for v in (dot.low, dot.high, dot.value, *dot.single) if v is not None]
    low, high = min(shown), max(shown)
    pad = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    least, most = span(comparison, name)
    return Dots(
        _title(comparison, name),
        tuple(dots),
        "",
        (max(low - pad, least), min(high + pad, most) if most > high else high + pad),
    )


def span(comparison: dict[str, Any], name: str) -> tuple[float, float]:
    """The metric's range; where it says none, it is at least 0 unless a value is below."""
    low, high = comparison.get("bounds", {}).get(name, (None, None))
    if low is None:
        values = [v for arm in comparison["arms"] for v in arm["metrics"].get(name, {}).get("values", {}).values()]
        low = 0.0 if all(v >= 0 for v in values) else -math.inf
    return low, math.inf if high is None else high


def interval(comparison: dict[str, Any], arm: dict[str, Any], name: str) -> tuple[float, float]:
    """95 % interval of the mean over seeds, cut at the ends of the metric's range."""
    metric = arm["metrics"][name]
    reach = 0.0
    if metric["sd"]:
        reach = float(stdtrit(metric["n"] - 1, 0.975)) * metric["sd"] / metric["n"] ** 0.5
    least, most = span(comparison, name)
    return max(metric["mean"] - reach, least), min(metric["mean"] + reach, most)


def differences(comparison: dict[str, Any]) -> Figure:
    """Paired differences to the first arm with 95 % intervals, in per cent of the first arm's mean; one axis for all.

    It reaches as far as the differences and the median interval; wider intervals end in an arrow.
    """
    means = {arm["name"]: arm["metrics"] for arm in comparison["arms"]}
    rows: dict[str, list[Dot]] = {}
    for arm in comparison["arms"]:
        for name, metric in arm["metrics"].items():
            base, test = means[arm["baseline"]].get(name, {}).get("mean"), metric["test"]
            if test and test["p"] is not None and base:
                unit = 100 / abs(base)
                value = unit * test["difference"]
                low, high = (None if test[key] is None else unit * test[key] for key in ("low", "high"))
                interval = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
                k = groups(comparison)[group(arm)]
                dot = Dot(k, arm["name"], value, low, high, percent(value) + interval, verdict=test["verdict"])
                rows.setdefault(name, []).append(dot)
    dots = [dot for row in rows.values() for dot in row]
    if not dots:
        return []
    ends = sorted(max(abs(dot.low or 0), abs(dot.high or 0)) for dot in dots)
    limit = 1.08 * max(max(abs(dot.value) for dot in dots), ends[len(ends) // 2]) or 1.0
    label = f"difference to {baseline(comparison)}, % of its mean"
    return [Dots(_title(comparison, name), tuple(row), label, (-limit, limit), zero=0.0) for name, row in rows.items()]


def percent(value: float) -> str:
    return signed(float(f"{value:.2g}")) + "\N{NO-BREAK SPACE}%"


def placement(study: Study) -> Figure:
    """Share of the calls that every arm has made by t, along the share of what is decided by then."""
    curves = []
    for k, name, path, _ in _paths(study):
        t = [v for v in path.trace["t"] if v is not None]
        shares = [(i + 1) / len(t) for i in range(len(t))]
        curves.append(Curve(k, name, (0.0, *np.repeat(t, 2).tolist(), 1.0), (0.0, *_stairs(shares), 1.0)))
    decided = study.record.decided
    if not curves or not decided.t:
        return []
    return [Curves("", tuple(curves), "t (0 noise, 1 data)", "share of the calls", guide=(decided.t, decided.share))]


def _stairs(shares: list[float]) -> list[float]:
    """The value before and after each of the jumps to `shares`."""
    return [v for pair in zip([0.0, *shares[:-1]], shares, strict=True) for v in pair]


def variation(study: Study) -> Figure:
    """Drift part V_f and noise part V_g of the information rate, summed over components; one panel a path."""
    panels: Figure = []
    for place, name, path, _ in _paths(study):
        t = _array(path.trace["t"])
        parts_ = zip(("drift V_f", "noise V_g"), parts(path.trace), strict=True)
        curves = [_curve(k, label, t, values) for k, (label, values) in enumerate(parts_)]
        if curves := [curve for curve in curves if curve.x]:
            panels.append(Curves(name, tuple(curves), "t (0 noise, 1 data)", log_y=True, group=place))
    return panels


def parts(trace: Columns) -> tuple[np.ndarray, np.ndarray]:
    """V_f and V_g of every step, summed over components."""
    noise = [k for k in trace if k.startswith("V_g_")]
    drift = [k for k in trace if k.startswith("V_") and k not in noise]
    return sum(_array(trace[k]) for k in drift), sum(_array(trace[k]) for k in noise)  # type: ignore[return-value]


def convergence(study: Study) -> Figure:
    """Metrics of the denoised graphs along the way, against the steps taken so far."""
    paths = _paths(study)
    panels: Figure = []
    for name in study.metrics:
        curves = []
        for k, arm, path, found in paths:
            steps, values = along(path.trace, found, name)
            if steps:
                curves.append(Curve(k, arm, tuple(steps), tuple(values)))
        if curves:
            values = [v for curve in curves for v in curve.y]
            log = 0 < LOG_FROM * min(values) < max(values)
            title = f"{name} {ARROW[study.better[name]]}"
            panels.append(Curves(title, tuple(curves), "steps taken", log_y=log, points=True))
    return panels


def along(trace: Columns, values: dict[float, Values], name: str) -> tuple[list[float], list[float]]:
    """Steps taken when each recorded time was reached, and the metric there."""
    found = [(time, v) for time, at in values.items() if (v := at.get(name)) is not None]
    return steps_until(trace, [time for time, _ in found]), [v for _, v in found]


def steps_until(trace: Columns, times: list[float]) -> list[float]:
    t, step = _array(trace["t"]), _array(trace["step"])
    return np.interp(times, [*t, 1.0], [*step, step[-1] + 1]).tolist()


def sweep(comparison: dict[str, Any], parameter: str, values: list[float]) -> Figure:
    """Metrics against the swept parameter; the first arm is the level line."""
    panels: Figure = []
    for name in comparison["better"]:
        base, *arms = comparison["arms"]
        kept = [(v, arm) for v, arm in zip(values, arms, strict=True) if arm["metrics"][name]["n"]]
        if not kept:
            continue
        curve = _means(comparison, name, 1, f"swept; level: {base['name']}", kept)
        level = base["metrics"][name]["mean"] if base["metrics"][name]["n"] else None
        panels.append(Curves(_title(comparison, name), (curve,), parameter, points=True, level=level))
    return panels


def _traces(study: Study, column: str, label: str) -> Figure:
    curves = []
    for k, name, path, _ in _paths(study):
        shown = name + (_pinned(study, name) if column == "dt" else "")
        curves.append(_curve(k, shown, _array(path.trace["t"]), _array(path.trace[column])))
    curves = [curve for curve in curves if curve.x]
    return [Curves("", tuple(curves), "t (0 noise, 1 data)", label, log_y=True)] if curves else []


def _pinned(study: Study, name: str) -> str:
    """How many steps of an adaptive arm its bounds decided."""
    shares = study.pinned([arm.name for arm in study.plan.arms].index(name))
    return f" ({', '.join(f'{100 * share:.0f} % at {bound}' for bound, share in shares.items())})" if shares else ""


def _curve(k: int, name: str, x: np.ndarray, y: np.ndarray) -> Curve:
    """For log axes: zeros (the first step has no predecessor) are left out."""
    fine = np.isfinite(y) & (y > 0)
    return Curve(k, name, tuple(x[fine].tolist()), tuple(y[fine].tolist()))


def _paths(study: Study) -> list[tuple[int, str, Trajectory, dict[float, Values]]]:
    """Group's number, arm's name, recorded path and metrics on it; of the largest budget where there are several."""
    found = [(place, arm.name, study.recorded(k)) for k, place, arm in largest(study)]
    return [(place, name, *path) for place, name, path in found if path is not None][:MOST_PATHS]


def largest(study: Study) -> list[tuple[int, int, Arm]]:
    """Number, group and plan of the arms with the largest budget: of all, where there is one."""
    arms = study.plan.arms
    names = list(dict.fromkeys(arm.group for arm in arms))
    most = max(arm.calls or 0 for arm in arms)
    return [(k, names.index(arm.group), arm) for k, arm in enumerate(arms) if (arm.calls or 0) == most]


def _array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], float)
