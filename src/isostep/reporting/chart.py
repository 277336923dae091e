"""Figures as SVG for a page: as wide as their column with type of one size, in the page's colours, without styles of
their own. Places along the width are per cent, heights are pixels, so nothing is scaled but the curves themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from isostep.base.markup import Markup, tag
from isostep.reporting.figures import Curve, Curves, Dot, Dots, Figure
from isostep.reporting.tables import with_interval

HEIGHT, AROUND = 182, 48  # of a panel of curves: inside, and the padding above and below that the style sheet gives it
ROW = 24  # height of a row of dots
ASIDE = 0.008  # of the width, by which intervals at the same place stand beside each other
COLOURS, DASHES = 7, 7
# Round a place: circle, square, diamond, triangles, plus, cross.
MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.6 -3.6h7.2v7.2h-7.2z", "M0 -5L5 0L0 5L-5 0z", "M0 -4.8L4.6 3.6H-4.6z",
    "M0 4.8L4.6 -3.6H-4.6z", "M-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "M-4 -2L-2 -4L0 -2L2 -4L4 -2L2 0L4 2L2 4L0 2L-2 4L-4 2L-2 0z",
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """From values to shares of an axis."""

    low: float
    high: float
    log: bool = False

    @staticmethod
    def over(values: Sequence[float], log: bool, pad: float = 0.05) -> Scale:
        low, high = min(values), max(values)
        if log:
            low, high = math.log10(low), math.log10(high)
        gap = pad * (high - low) or 0.05 * abs(high) or 0.5
        return Scale(low - gap, high + gap, log)

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self.log else value
        return (place - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[float]:
        from matplotlib.ticker import MaxNLocator

        if not self.log:
            found = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
            return [float(v) for v in found if self.low <= v <= self.high]
        decades = range(math.ceil(self.low), math.floor(self.high) + 1)
        if len(decades) > 2:
            every = -(-len(decades) // most)
            return [10.0**k for k in decades if k % every == 0]
        fine = [m * 10.0**k for k in range(math.floor(self.low), math.ceil(self.high) + 1) for m in (1, 2, 5)]
        return [v for v in fine if self.low <= math.log10(v) <= self.high][:: 2 if len(decades) == 2 else 1]


def drawn(figure: Figure, label: str) -> Markup:
    """All panels of a figure, side by side where there is room."""
    panels = [_dots(panel) if isinstance(panel, Dots) else _curves(panel, label) for panel in figure]
    return tag("div", *panels, class_="panels" if len(panels) > 1 else "panels single")


def swatch(group: int) -> Markup:
    """Line and marker of an arm."""
    line = tag("line", x1=0, x2=26, y1=7, y2=7, class_=f"line {_look(group)}")
    marker = tag("path", d=MARKERS[group % len(MARKERS)], transform="translate(13 7)", class_=f"dot {_look(group)}")
    return tag("svg", line, marker, width=26, height=14, viewBox="0 0 26 14", class_="swatch", aria_hidden="true")


def _look(group: int) -> str:
    return f"k{group % COLOURS} d{group % DASHES}"


def _curves(panel: Curves, label: str) -> Markup:
    ys = [v for curve in panel.curves for v in (*curve.y, *curve.low, *curve.high)]
    ys += [] if panel.level is None else [panel.level]
    ys = [v for v in ys if v > 0] if panel.log_y else ys
    y = Scale.over(ys, panel.log_y)
    if not panel.log_y and min(ys) >= 0 > y.low:  # no room below 0 for what is never below
        y = Scale(0.0, y.high)
    x = Scale.over([v for curve in panel.curves for v in curve.x], panel.log_x, 0.03)
    inner = HEIGHT
    rows = [(inner * (1 - y(v)), short(v)) for v in y.ticks()]
    columns = [(x(v), short(v)) for v in (panel.ticks or x.ticks())]
    grid = [
        *(tag("line", x1=0, x2="100%", y1=_n(at), y2=_n(at), class_="rule") for at, _ in rows),
        tag("line", x1=0, x2="100%", y1=inner, y2=inner, class_="axis"),
        *(tag("text", name, x=-7, y=_n(at + 4), class_="tick left") for at, name in rows),
        *(tag("text", name, x=_share(at), y=inner + 16, class_="tick") for at, name in columns),
        tag("text", panel.x_label, x="100%", y=inner + 33, class_="tick end"),
    ]
    guide = Markup()
    if panel.level is not None:
        at = _n(inner * (1 - y(panel.level)))
        grid.append(tag("line", x1=0, x2="100%", y1=at, y2=at, class_="level"))
    if panel.guide:
        guide = tag("polyline", points=_points(x, y, *panel.guide), class_="line guide")
    own, middle = panel.group is not None, (len(panel.curves) - 1) / 2
    aside = [ASIDE * (k - middle) if curve.low else 0.0 for k, curve in enumerate(panel.curves)]
    strokes = [_line(curve, x, y, own, side) for curve, side in zip(panel.curves, aside, strict=True)]
    lines = tag(
        "svg", guide, *strokes, viewBox="0 0 1000 1000", width="100%", height=inner,
        preserveAspectRatio="none", class_="lines" if panel.joined else "lines unjoined",
    )  # fmt: skip
    marks = [
        mark
        for curve, side in zip(panel.curves, aside, strict=True)
        for mark in _marks(curve, x, y, inner, panel.points, own, side)
    ]
    said = "; ".join(f"{curve.name}: {short(curve.y[0])} to {short(curve.y[-1])}" for curve in panel.curves)
    title = panel.title or panel.y_label or label
    plot = tag(
        "svg", *grid, lines, *marks, height=HEIGHT + AROUND, class_="plot", role="img", tabindex=0,
        aria_label=f"{title} over {panel.x_label}, first to last point. {said}. Arrow keys read single values.",
        data_x=panel.x_label, data_scale=f"{x.low:.9g} {x.high:.9g} {int(x.log)} {y.low:.9g} {y.high:.9g} {int(y.log)}",
    )  # fmt: skip
    named = own and len(panel.curves) > 1
    names = tag("span", *(tag("span", swatch(c.group), c.name) for c in panel.curves), class_="parts") if named else ""
    return tag("figure", tag("figcaption", title, names), plot, class_="panel", data_arm=panel.group)


def _points(x: Scale, y: Scale, across: Sequence[float], up: Sequence[float]) -> str:
    return " ".join(f"{1000 * x(a):.1f},{1000 * (1 - y(b)):.2f}" for a, b in zip(across, up, strict=True))


def _line(curve: Curve, x: Scale, y: Scale, own: bool, aside: float) -> Markup:
    points = _points(x, y, curve.x, curve.y)
    texts = None
    if curve.low:
        triples = zip(curve.y, curve.low, curve.high, strict=True)
        texts = "|".join(with_interval(*triple) for triple in triples)
    arm = None if own else curve.group
    return tag(
        "polyline", points=points, class_=f"line {_look(curve.group)}", data_arm=arm, data_name=curve.name,
        data_text=texts, transform=f"translate({1000 * aside:g} 0)" if aside else None,
    )  # fmt: skip


def _marks(curve: Curve, x: Scale, y: Scale, inner: int, points: bool, own: bool, aside: float) -> list[Markup]:
    """Intervals and markers: not stretched with the width."""
    out, arm, look = [], None if own else curve.group, _look(curve.group)
    for k, (a, b) in enumerate(zip(curve.x, curve.y, strict=True)):
        at = _share(x(a) + aside)
        if curve.low:
            ends = {"y1": _n(inner * (1 - y(curve.low[k]))), "y2": _n(inner * (1 - y(curve.high[k])))}
            out.append(tag("line", x1=at, x2=at, **ends, class_=f"bar {look}", data_arm=arm))
        if points:
            marker = tag("path", d=MARKERS[curve.group % len(MARKERS)], class_=f"dot {look}")
            out.append(tag("svg", marker, x=at, y=_n(inner * (1 - y(b))), class_="mark", data_arm=arm))
    return out


def _dots(panel: Dots) -> Markup:
    scale = Scale(*panel.limits)
    ticks = [(scale(v), short(v)) for v in scale.ticks(4)]
    rules = [tag("line", x1=_share(at), x2=_share(at), y1=0, y2="100%", class_="rule") for at, _ in ticks]
    if panel.zero is not None:
        at = _share(scale(panel.zero))
        rules.append(tag("line", x1=at, x2=at, y1=0, y2="100%", class_="axis"))
    rows = []
    for dot in panel.dots:
        strip = tag("svg", *rules, *_dot(dot, scale), height=ROW, class_="strip-plot", aria_hidden="true")
        marks = f"value {dot.verdict}" if dot.verdict in ("better", "worse") else "value"
        told = tag("span", dot.text, class_=marks), tag("span", f", {dot.verdict}" * bool(dot.verdict), class_="unseen")
        rows.append(tag("li", tag("span", dot.name, class_="name"), strip, *told, data_arm=dot.group))
    places = [tag("text", name, x=_share(at), y=12, class_="tick") for at, name in ticks]
    axis = tag("div", tag("svg", *places, height=18, class_="strip-plot"), class_="scale", aria_hidden="true")
    label = tag("p", panel.x_label, class_="soft") if panel.x_label else ""
    return tag("figure", tag("figcaption", panel.title), tag("ul", *rows, class_="dots"), axis, label, class_="panel")


def _dot(dot: Dot, scale: Scale) -> list[Markup]:
    middle, look = ROW / 2, _look(dot.group)
    out = [
        tag("line", x1=_share(scale(v)), x2=_share(scale(v)), y1=middle - 5, y2=middle + 5, class_=f"seed {look}")
        for v in dot.single
    ]
    if dot.low is not None and dot.high is not None and dot.high > dot.low:
        ends = [(dot.low, -1), (dot.high, 1)]
        places = [min(max(scale(v), 0.0), 1.0) for v, _ in ends]
        out.append(tag("line", x1=_share(places[0]), x2=_share(places[1]), y1=middle, y2=middle, class_=f"bar {look}"))
        for (value, way), place in zip(ends, places, strict=True):
            beyond = not -1e-9 <= scale(value) <= 1 + 1e-9
            shape = f"M0 0L{-7 * way} -4V4z" if beyond else "M0 -4V4"
            kind = "tip" if beyond else "bar"
            end = tag("path", d=shape, class_=f"{kind} {look}")
            out.append(tag("svg", end, x=_share(place), y=middle, class_="mark"))
    marker = tag("path", d=MARKERS[dot.group % len(MARKERS)], class_=f"dot {look}")
    return [*out, tag("svg", marker, x=_share(min(max(scale(dot.value), 0.0), 1.0)), y=middle, class_="mark")]


def short(value: float) -> str:
    """For an axis: few characters."""
    if value == round(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def _share(place: float) -> str:
    return f"{100 * place:.2f}%"


def _n(value: float) -> str:
    return f"{value:.1f}"
