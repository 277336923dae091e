"""The run's CSV log and its plot. On resume, rows after the checkpoint are dropped: they will come again."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from isostep.base.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS: tuple[str, ...] = ("step", "loss", "loss_x", "loss_adj", "val_loss_x", "val_loss_adj", "lr", "seconds")
COLUMNS += ("cpu_seconds",)
LOSSES = ("loss_x", "loss_adj", "val_loss_x", "val_loss_adj")


class TrainLog:
    """Rows of the log, in memory; `flush` writes them all atomically. Metrics of samples follow the columns above."""

    def __init__(self, path: Path, step: int | None = None) -> None:
        """Rows up to `step`, or all."""
        self.path = path
        self.rows = [row for row in _read(path) if step is None or int(row["step"]) <= step]

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(key for row in self.rows for key in row if key not in COLUMNS))

    def add(self, step: int, numbers: Mapping[str, float], seconds: float, cpu_seconds: float) -> None:
        row = {name: f"{float(value):.6g}" for name, value in numbers.items()}
        self.rows.append({"step": str(step), **row, "seconds": f"{seconds:.1f}", "cpu_seconds": f"{cpu_seconds:.1f}"})

    def flush(self) -> None:
        with replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*COLUMNS, *self.metrics), restval="")
            writer.writeheader()
            writer.writerows(self.rows)

    def points(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a column, where it has any."""
        found = [(int(row["step"]), float(row[name])) for row in self.rows if row.get(name)]
        return [step for step, _ in found], [value for _, value in found]

    def figure(self) -> Figure:
        """Loss of each component against steps, validation as points; below, each metric of the samples."""
        from matplotlib.figure import Figure

        panels = 1 + len(self.metrics)
        figure = Figure(figsize=(7, 2 + 2.2 * panels), layout="constrained")
        first, *rest = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
        for name in LOSSES:
            steps, values = self.points(name)
            if steps:
                first.plot(steps, values, "o" if name.startswith("val") else "-", label=name, markersize=4)
        if first.lines:
            first.set(ylabel="loss per graph", yscale="log")
            first.legend()
        for axes, name in zip(rest, self.metrics, strict=True):
            axes.plot(*self.points(name), "o-", markersize=4)
            axes.set(ylabel=name)
            axes.grid(alpha=0.3)
        figure.axes[-1].set_xlabel("step")
        return figure

    def plot(self, path: Path) -> None:
        with replacing(path) as temporary:
            self.figure().savefig(temporary, format="png", dpi=120)


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
