"""The README's picture: quality against network calls on the released QM9 file, from docs/frontier/gdss-qm9.csv.

python benchmarks/readme_picture.py        writes docs/images/qm9-calls.svg
"""

from __future__ import annotations

import csv
from pathlib import Path

from isostep.reporting.figures import Curve, Curves
from isostep.reporting.plots import draw, save

ROOT = Path(__file__).resolve().parents[1]
# What `auto` was when each budget was measured stands under its own name, unless the table has an arm `auto`.
ARMS = {
    "uniform, euler": "uniform Euler steps",
    "dvs (batch), euler": "dvs (the paper)",
    "arclength, s4": "arclength, s4",
    "auto": "auto",
}
METRICS = {"valid": "valid without correction ↑", "fcd": "FCD ↓"}
TICKS = (10.0, 20.0, 50.0, 100.0, 250.0)
SEEDS, STUDENT = 5, 2.776  # the 97.5 % point of Student's t with 4 degrees of freedom


def main() -> None:
    with open(ROOT / "docs" / "frontier" / "gdss-qm9.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    panels = []
    for metric, title in METRICS.items():
        chosen = [row for row in rows if row["metric"] == metric]
        level = next(float(row["mean"]) for row in chosen if row["arm"].startswith("yardstick"))
        curves = [_curve(k, arm, label, chosen) for k, (arm, label) in enumerate(ARMS.items())]
        x_label = "network calls per molecule (dashed: 2000 calls)"
        curves = tuple(curve for curve in curves if curve.x)
        panels.append(Curves(title, curves, x_label, log_x=True, ticks=TICKS, points=True, level=level))
    save(draw(panels), ROOT / "docs" / "images" / "qm9-calls", ("svg",))


def _curve(k: int, arm: str, label: str, rows: list[dict[str, str]]) -> Curve:
    points = [
        (float(row["calls"]), float(row["mean"]), STUDENT * float(row["sd"]) / SEEDS**0.5)
        for row in rows
        if row["arm"] == arm and float(row["calls"]) < 1.1 * TICKS[-1]
    ]
    x, y, reach = zip(*sorted(points), strict=True) if points else ((), (), ())
    low = tuple(mean - half for mean, half in zip(y, reach, strict=True))
    return Curve(k, label, x, y, low, tuple(mean + half for mean, half in zip(y, reach, strict=True)))


if __name__ == "__main__":
    main()
