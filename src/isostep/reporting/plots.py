"""Figures of a study as matplotlib figures, for files. Colours are Okabe and Ito's, told apart by colour-blind readers;
line styles and markers repeat the distinction.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from isostep.base.files import replacing
from isostep.base.text import printable
from isostep.reporting.figures import Dots
from isostep.reporting.figures import Figure as Panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue, vermillion, green, purple, orange, sky, then the ink: dark on paper, light on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
MARKERS = "osD^vPX"
INK, FAINT = "#1a1a2e", "#c9ccd6"
SIDESTEP = 1.012  # arms with the same calls stand side by side


def draw(figure: Panels) -> Figure:
    """All panels on one sheet."""
    rows = max((len(panel.dots) for panel in figure if isinstance(panel, Dots)), default=0)
    single = len(figure) == 1
    sheet, axes = panels(len(figure), width=7 if single else None, height=0.8 + 0.3 * rows if rows else 2.9)
    for axis, panel in zip(axes, figure, strict=True):
        (_dots if isinstance(panel, Dots) else _curves)(axis, panel)
        axis.set_title(_plain(panel.title), fontsize=10, color=INK)
    if not rows:
        _legend(sheet, axes[0])
    return sheet


def _curves(axis: Axes, panel: Any) -> None:
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    for place, curve in enumerate(panel.curves):
        style = _style(curve.group) if panel.points else {**_style(curve.group), "marker": None}
        aside = SIDESTEP ** (place - (len(panel.curves) - 1) / 2) if panel.log_x else 1.0
        x = [v * aside for v in curve.x]
        reach = None
        if curve.low:
            reach = [
                [v - low for v, low in zip(curve.y, curve.low, strict=True)],
                [high - v for v, high in zip(curve.y, curve.high, strict=True)],
            ]
        axis.errorbar(x, curve.y, yerr=reach, label=_plain(curve.name), capsize=3, ms=5, lw=1.3, **style)
    if panel.guide:
        axis.plot(*panel.guide, color=INK, alpha=0.3, lw=6, zorder=0, label="decisions")
    if panel.level is not None:
        axis.axhline(panel.level, color=INK, ls="--", lw=1)
    if panel.ticks:
        axis.set_xticks(panel.ticks, [f"{v:g}" for v in panel.ticks])
        axis.minorticks_off()
    axis.set_xlabel(_plain(panel.x_label))
    axis.set_ylabel(_plain(panel.y_label))


def _dots(axis: Axes, panel: Any) -> None:
    low, high = panel.limits
    for y, dot in enumerate(panel.dots):
        style = _style(dot.group)
        ends = [min(max(v, low), high) for v in (dot.low, dot.high) if v is not None]
        if ends:
            axis.plot(ends, [y, y], color=style["color"], lw=1.4)
        for value, shape in ((dot.low, "<"), (dot.high, ">")):
            if value is not None:
                beyond = not low <= value <= high
                axis.plot(
                    [min(max(value, low), high)], [y], shape if beyond else "|", color=style["color"], clip_on=False
                )
        axis.plot(dot.single, [y] * len(dot.single), "|", color=style["color"], alpha=0.5)
        axis.plot([min(max(dot.value, low), high)], [y], style["marker"], color=style["color"], ms=6)
    axis.set_xlim(low, high)
    axis.set_yticks(range(len(panel.dots)), [_plain(dot.name) for dot in panel.dots])
    axis.set_ylim(len(panel.dots) - 0.5, -0.5)
    axis.set_xlabel(_plain(panel.x_label))
    if panel.zero is not None:
        axis.axvline(panel.zero, color=INK, lw=0.8)


def save(figure: Figure, stem: str | Path, suffixes: tuple[str, ...] = ("svg", "png")) -> None:
    """Write `stem`.svg and `stem`.png."""
    for suffix in suffixes:
        with replacing(Path(f"{stem}.{suffix}")) as temporary, _same_bytes():
            figure.savefig(temporary, format=suffix, dpi=160, facecolor="white", metadata=_METADATA[suffix])


def _same_bytes():
    """Names inside an SVG come from the content, so the same figure gives the same file."""
    import matplotlib

    return matplotlib.rc_context({"svg.hashsalt": "isostep", "svg.fonttype": "path"})


_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


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
