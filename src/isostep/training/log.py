"""The run's CSV log. On resume, rows after the checkpoint are dropped: they will come again."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from isostep.base.errors import InputError
from isostep.base.files import replacing

CONFIG, LOG = "train.toml", "log.csv"
BEFORE, AFTER = ("step", "loss"), ("lr", "seconds", "cpu_seconds")  # columns before and after the components' losses
OLD = {"loss_x": "loss_X", "loss_adj": "loss_A", "val_loss_x": "val_loss_X", "val_loss_adj": "val_loss_A"}


def is_training_run(folder: Path) -> bool:
    """Whether a folder is that of a training run."""
    return (folder / CONFIG).is_file() and (folder / LOG).is_file()


class TrainLog:
    """Rows of the log, in memory; `flush` writes them all atomically. Metrics of samples come last."""

    def __init__(self, path: Path, step: int | None = None) -> None:
        """Rows up to `step`, or all."""
        self.path = path
        self.rows = [row for row in _read(path) if step is None or int(row["step"]) <= step]

    @property
    def losses(self) -> list[str]:
        """Columns of the components' losses, those of validation last."""
        found = (key for row in self.rows for key in row if key.startswith(("loss_", "val_loss_")))
        return sorted(dict.fromkeys(found), key=lambda key: key.startswith("val_"))

    @property
    def metrics(self) -> list[str]:
        known = {*BEFORE, *self.losses, *AFTER}
        return list(dict.fromkeys(key for row in self.rows for key in row if key not in known))

    def add(self, step: int, numbers: Mapping[str, float], seconds: float, cpu_seconds: float) -> None:
        row = {name: f"{float(value):.6g}" for name, value in numbers.items()}
        self.rows.append({"step": str(step), **row, "seconds": f"{seconds:.1f}", "cpu_seconds": f"{cpu_seconds:.1f}"})

    def flush(self) -> None:
        with replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*BEFORE, *self.losses, *AFTER, *self.metrics), restval="")
            writer.writeheader()
            writer.writerows(self.rows)

    def points(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a column, where it has any that is finite."""
        found = [(int(row["step"]), float(row.get(name) or "nan")) for row in self.rows]
        found = [(step, value) for step, value in found if math.isfinite(value)]
        return [step for step, _ in found], [value for _, value in found]


def _read(path: Path) -> list[dict[str, str]]:
    """Rows of a log, also of one with the older column names."""
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{OLD.get(name, name): text for name, text in row.items()} for row in csv.DictReader(file)]
        for row in rows:
            int(row["step"])
            [float(row[name]) for name in row if row[name]]
        return rows
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a training log: {error}; delete it") from error
