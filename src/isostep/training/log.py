"""The run's CSV log and its loss plot. On resume, rows after the checkpoint are dropped: they will come again."""

from __future__ import annotations

import csv
from pathlib import Path

from isostep.base.files import replacing
from isostep.training.loss import Losses

COLUMNS: tuple[str, ...] = ("step", "loss", "loss_x", "loss_adj", "val_loss_x", "val_loss_adj", "lr", "seconds")


class TrainLog:
    """Rows of the log, in memory; `flush` writes them all atomically."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.rows = [row for row in _read(path) if int(row["step"]) <= step]

    def add(self, step: int, loss: float, parts: Losses, validated: Losses | None, lr: float, seconds: float) -> None:
        numbers = {"loss": loss, "loss_x": parts.x, "loss_adj": parts.adj, "lr": lr}
        if validated is not None:
            numbers |= {"val_loss_x": validated.x, "val_loss_adj": validated.adj}
        row = {name: f"{float(value):.6g}" for name, value in numbers.items()}
        self.rows.append({"step": str(step), **row, "seconds": f"{seconds:.1f}"})

    def flush(self) -> None:
        with replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(self.rows)

    def plot(self, path: Path) -> None:
        """Loss of each component against steps; validation as points."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot(xlabel="step", ylabel="loss per graph", yscale="log")
        for name in ("loss_x", "loss_adj", "val_loss_x", "val_loss_adj"):
            points = [(int(row["step"]), float(row[name])) for row in self.rows if row.get(name)]
            if points:
                axes.plot(*zip(*points, strict=True), "o" if name.startswith("val") else "-", label=name)
        if axes.lines:
            axes.legend()
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=120)


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
