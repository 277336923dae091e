"""The README's picture: quality against network calls on the released QM9 file, from docs/frontier/gdss-qm9*.csv.

python benchmarks/readme_picture.py        writes docs/images/qm9-calls.svg
"""

from __future__ import annotations

import csv
from pathlib import Path

from scipy.stats import t as student

from isostep.reporting.figures import Curve, Curves
from isostep.reporting.plots import draw, save

ROOT = Path(__file__).resolve().parents[1]
ARMS = {"uniform, euler": "uniform Euler steps", "dvs (batch), euler": "dvs (the paper)", "auto": "auto"}
METRICS = {"valid": "valid without correction ↑", "fcd": "FCD ↓"}
TICKS = (10.0, 20.0, 50.0, 100.0, 250.0)
SEEDS = 5  # where the table does not say


def main() -> None:
    rows: list[dict[str, str]] = []
    for name in ("gdss-qm9-auto.csv", "gdss-qm9.csv"):
        with open(ROOT / "docs" / "frontier" / name, newline="", encoding="utf-8") as file:
            rows += csv.DictReader(file)
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
        (float(row["calls"]), float(row["mean"]), _reach(float(row["sd"]), int(row.get("seeds") or SEEDS)))
        for row in rows
        if row["arm"] == arm and float(row["calls"]) < 1.1 * TICKS[-1]
    ]
    x, y, reach = zip(*sorted(points), strict=True) if points else ((), (), ())
    low = tuple(mean - half for mean, half in zip(y, reach, strict=True))
    return Curve(k, label, x, y, low, tuple(mean + half for mean, half in zip(y, reach, strict=True)))


def _reach(sd: float, seeds: int) -> float:
    return float(student.ppf(0.975, seeds - 1)) * sd / seeds**0.5


if __name__ == "__main__":
    main()
