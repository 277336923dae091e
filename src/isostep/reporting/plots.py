"""Plots of a study, from its JSON alone. Colours are Okabe and Ito's, told apart by colour-blind readers; line styles
and markers repeat the distinction.

Every function returns a matplotlib figure, or None where the study has nothing to show.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isostep.base.files import replacing
from isostep.base.text import printable
from isostep.reporting.tables import ARROW, baseline, group
from isostep.study.record import Study, Trajectory, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue, vermillion, green, purple, orange, sky, then the ink: dark on paper, light on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
MARKERS = "osD^vPX"
INK, FAINT = "#1a1a2e", "#c9ccd6"
MOST_PANELS = 6
SIDESTEP = 1.012  # arms with the same calls stand side by side
Columns = Mapping[str, Sequence[float | None]]
LOG_FROM = 20  # a ratio of values above which a log axis reads better


def figures(study: Study, comparison: dict[str, Any]) -> dict[str, Figure]:
    """All plots of a study by name."""
    makers: dict[str, Callable[[], Figure | None]] = {
        "differences": lambda: differences(comparison),
        "frontier": lambda: frontier(comparison),
        "step-size": lambda: step_size(study),
        "information": lambda: information(study),
        "variation": lambda: variation(study),
        "convergence": lambda: convergence(study),
    }
    made = {name: make() for name, make in makers.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def differences(comparison: dict[str, Any]) -> Figure | None:
    """Paired differences to the first arm with 95 % intervals, in per cent of the first arm's mean."""
    rows = []
    means = {arm["name"]: arm["metrics"] for arm in comparison["arms"]}
    for arm in comparison["arms"]:
        for name, metric in arm["metrics"].items():
            base = means[arm["baseline"]].get(name, {}).get("mean")
            if metric["test"] and metric["test"]["low"] is not None and base:
                rows.append((arm["name"], name, metric["test"], 100 / abs(base)))
    if not rows:
        return None
    arms = list(dict.fromkeys(row[0] for row in rows))
    names = list(dict.fromkeys(row[1] for row in rows))
    figure, axes = panels(1, height=0.6 + 0.32 * len(rows) + 0.25 * len(names), width=7)
    axis = axes[0]
    places = {}
    for place, (arm, name) in enumerate((a, n) for n in names for a in arms):
        places[arm, name] = place + 0.7 * names.index(name)
    for arm, name, test, unit in rows:
        style = _style(arms.index(arm) + 1)
        y = places[arm, name]
        reach = [[(test["difference"] - test["low"]) * unit], [(test["high"] - test["difference"]) * unit]]
        axis.errorbar(
            [test["difference"] * unit], [y], xerr=reach, fmt=style["marker"], color=style["color"], capsize=3, ms=5,
            label=_plain(arm) if name == names[0] else None,
        )  # fmt: skip
    axis.axvline(0, color=INK, lw=0.8)
    centres = [np.mean([places[a, n] for a in arms]) for n in names]
    axis.set_yticks(centres, [f"{_plain(n)} {ARROW[comparison['better'][n]]}" for n in names])
    axis.set_ylim(max(places.values()) + 0.7, -0.7)
    axis.set_xlabel(f"difference to {_plain(baseline(comparison))}, % of its mean (95 % interval)")
    _legend(figure, axis)
    return figure


def frontier(comparison: dict[str, Any]) -> Figure | None:
    """Quality against network calls per graph; bars are 95 % intervals of the mean over seeds."""
    from scipy.stats import t as student

    names = [n for n in comparison["better"] if any(a["metrics"].get(n, {"n": 0})["n"] for a in comparison["arms"])]
    if not names:
        return None
    figure, axes = panels(len(names))
    groups: dict[str, list[dict[str, Any]]] = {}
    for arm in comparison["arms"]:
        groups.setdefault(group(arm), []).append(arm)
    for axis, name in zip(axes, names, strict=False):
        for k, (label, arms) in enumerate(groups.items()):
            points = sorted((a["calls"]["mean"], a["metrics"][name]) for a in arms if a["metrics"][name]["n"])
            if not points:
                continue
            reach = [
                float(student.ppf(0.975, m["n"] - 1)) * m["sd"] / m["n"] ** 0.5 if m["sd"] else 0 for _, m in points
            ]
            calls = [x * SIDESTEP ** (k - (len(groups) - 1) / 2) for x, _ in points]
            axis.errorbar(
                calls, [m["mean"] for _, m in points], yerr=reach, label=_plain(label), capsize=3, ms=5, **_style(k)
            )
        axis.set_xlabel("network calls per graph")
        axis.set_title(f"{_plain(name)} {ARROW[comparison['better'][name]]}", fontsize=10, color=INK)
        if budgets := sorted({arm["budget"] for arm in comparison["arms"] if arm["budget"]}):
            axis.set_xscale("log")
            axis.set_xticks(budgets, map(str, budgets))
            axis.minorticks_off()
    _legend(figure, axes[0])
    return figure


def step_size(study: Study) -> Figure | None:
    """dt against t."""
    return _traces(study, "dt", "step dt")


def information(study: Study) -> Figure | None:
    """ds2 against t: flat where every step covers the same information."""
    return _traces(study, "ds2", "information per step ds²")


def variation(study: Study) -> Figure | None:
    """Drift part V_f and noise part V_g of the information rate, summed over components."""
    paths = _paths(study)
    if not paths:
        return None
    figure, axes = panels(len(paths))
    for axis, (_, name, path, _) in zip(axes, paths, strict=False):
        v_f, v_g = parts(path.trace)
        t = _array(path.trace["t"])
        axis.plot(t, _positive(v_f), color=COLOURS[0], lw=1.2, label="drift V_f")
        axis.plot(t, _positive(v_g), color=COLOURS[1], lw=1.2, ls="--", label="noise V_g")
        axis.set_yscale("log")
        axis.set_xlabel("t")
        axis.set_title(_plain(name), fontsize=10, color=INK)
    _legend(figure, axes[0])
    return figure


def parts(trace: Columns) -> tuple[np.ndarray, np.ndarray]:
    """V_f and V_g of every step, summed over components."""
    noise = [k for k in trace if k.startswith("V_g_")]
    drift = [k for k in trace if k.startswith("V_") and k not in noise]
    return sum(_array(trace[k]) for k in drift), sum(_array(trace[k]) for k in noise)  # type: ignore[return-value]


def convergence(study: Study) -> Figure | None:
    """Metrics of the denoised graphs along the way, against the steps taken so far."""
    paths = _paths(study)
    names = [n for n in study.metrics if any(v.get(n) is not None for *_, values in paths for v in values.values())]
    if not names:
        return None
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names, strict=False):
        for k, arm, path, found in paths:
            steps, values = along(path.trace, found, name)
            axis.plot(steps, values, label=_plain(arm), lw=1.4, ms=4, **_style(k))
        axis.set_xlabel("step")
        axis.set_title(f"{_plain(name)} {ARROW[study.better[name]]}", fontsize=10, color=INK)
        values = [v for _, _, path, found in paths for v in along(path.trace, found, name)[1]]
        if 0 < LOG_FROM * min(values) < max(values):
            axis.set_yscale("log")
    _legend(figure, axes[0])
    return figure


def along(trace: Columns, values: dict[float, Values], name: str) -> tuple[list[float], list[float]]:
    """Steps taken when each recorded time was reached, and the metric there."""
    found = [(time, v) for time, at in values.items() if (v := at.get(name)) is not None]
    return steps_until(trace, [time for time, _ in found]), [v for _, v in found]


def steps_until(trace: Columns, times: list[float]) -> list[float]:
    t, step = _array(trace["t"]), _array(trace["step"])
    return np.interp(times, [*t, 1.0], [*step, step[-1] + 1]).tolist()


def sweep_curve(comparison: dict[str, Any], parameter: str, values: list[float]) -> Figure | None:
    """Metrics against the swept parameter; the first arm is the level line."""
    names = list(comparison["better"])
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names, strict=False):
        base, *arms = [arm["metrics"][name] for arm in comparison["arms"]]
        kept = [(v, m) for v, m in zip(values, arms, strict=True) if m["n"]]
        if base["n"]:
            axis.axhline(base["mean"], color=COLOURS[0], ls="--", lw=1.2, label=_plain(comparison["arms"][0]["name"]))
        axis.errorbar(
            [v for v, _ in kept], [m["mean"] for _, m in kept], yerr=[m["sd"] or 0 for _, m in kept],
            capsize=3, ms=5, color=COLOURS[1], marker="o", lw=1.4, label="swept (± sd over seeds)",
        )  # fmt: skip
        axis.set_xlabel(parameter)
        axis.set_title(f"{_plain(name)} {ARROW[comparison['better'][name]]}", fontsize=10, color=INK)
    _legend(figure, axes[0])
    return figure


def save(figure: Figure, stem: str | Path) -> None:
    """Write `stem`.svg and `stem`.png."""
    for suffix in ("svg", "png"):
        with replacing(Path(f"{stem}.{suffix}")) as temporary, _same_bytes():
            figure.savefig(temporary, format=suffix, dpi=160, facecolor="white", metadata=_METADATA[suffix])


def inline(figure: Figure, label: str) -> str:
    """SVG for a page: its colours are the page's variables, which follow light and dark."""
    buffer = io.StringIO()
    with _same_bytes():
        figure.savefig(buffer, format="svg", transparent=True, metadata=_METADATA["svg"])
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    for k, colour in enumerate(COLOURS):
        svg = re.sub(colour, f"var(--series-{k})", svg, flags=re.I)
    svg = re.sub(INK, "var(--ink)", svg, flags=re.I)
    svg = re.sub(FAINT, "var(--line)", svg, flags=re.I)
    prefix = re.sub(r"\W", "", label)
    svg = re.sub(r'id="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return re.sub(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>", rf'<svg \1 role="img" aria-label="{label}">', svg, count=1)


def _same_bytes():
    """Names inside an SVG come from the content, so the same figure gives the same file."""
    import matplotlib

    return matplotlib.rc_context({"svg.hashsalt": "isostep", "svg.fonttype": "path"})


_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def _traces(study: Study, column: str, label: str) -> Figure | None:
    paths = _paths(study)
    if not paths:
        return None
    figure, axes = panels(1, width=7, height=3.4)
    for k, name, path, _ in paths:
        if column == "dt" and (shares := study.pinned(k)):
            name += f" ({', '.join(f'{100 * share:.0f} % at {bound}' for bound, share in shares.items())})"
        style = {**_style(k), "marker": None}
        axes[0].plot(
            _array(path.trace["t"]), _positive(_array(path.trace[column])), label=_plain(name), lw=1.3, **style
        )
    axes[0].set_xlabel("t (0 noise, 1 data)")
    axes[0].set_ylabel(label)
    axes[0].set_yscale("log")
    _legend(figure, axes[0])
    return figure


def _paths(study: Study) -> list[tuple[int, str, Trajectory, dict[float, Values]]]:
    """Arm's number and name, recorded path and metrics on it; at most six, or the lines cannot be told apart."""
    found = [(k, arm.name, study.recorded(k)) for k, arm in enumerate(study.plan.arms)]
    return [(k, name, *path) for k, name, path in found if path is not None][:MOST_PANELS]


def panels(count: int, width: float | None = None, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(count, 2)
    rows = -(-count // columns)
    figure = Figure(figsize=(width or (4.6 * columns if columns > 1 else 5.2), height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, k + 1) for k in range(count)]
    for axis in axes:
        axis.grid(color=FAINT, lw=0.5)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axis.spines[side].set_color(INK)
        axis.tick_params(which="both", colors=INK, labelsize=9)
        axis.xaxis.label.set_color(INK)
        axis.yaxis.label.set_color(INK)
    return figure, axes


def _style(k: int) -> dict[str, Any]:
    return {
        "color": COLOURS[k % len(COLOURS)],
        "linestyle": STYLES[k % len(STYLES)],
        "marker": MARKERS[k % len(MARKERS)],
    }


def _legend(figure: Figure, axis: Axes) -> None:
    """Above the panels, so that it covers no data; names from the panel given."""
    handles, labels = axis.get_legend_handles_labels()
    columns = max(1, min(len(labels), int(13 * figure.get_figwidth() / (max(map(len, labels), default=0) + 6))))
    place: Any = "outside upper left"
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False, fontsize=8.5, labelcolor=INK)


def _plain(text: str) -> str:
    """A name from a file: no formula, no control characters."""
    return printable(text).replace("$", r"\$")


def _array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], float)


def _positive(values: np.ndarray) -> np.ndarray:
    """For log axes: zeros (the first step has no predecessor) are left out."""
    return np.where(values > 0, values, np.nan)
