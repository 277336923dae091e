"""A training run: its losses and the metrics of its samples, as a plot and as a page."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from isostep.base.files import replacing, write_text
from isostep.base.markup import Markup, join, tag
from isostep.reporting.chart import drawn
from isostep.reporting.figures import Curve, Curves, Figure
from isostep.reporting.page import copied, document, drawn_table
from isostep.reporting.plots import draw
from isostep.reporting.tables import Table
from isostep.training.config import load_config
from isostep.training.log import CONFIG, LOG, TrainLog


def curve(log: TrainLog) -> Figure:
    """Loss of each component against steps, validation as points; then each metric of the samples."""
    columns = [column for column in log.losses if column.startswith("loss_")]
    parts = [(column, column.removeprefix("loss_")) for column in columns]
    parts += [(f"val_{column}", f"{column.removeprefix('loss_')}, validation") for column in columns]
    losses = [_curve(log, k, column, name) for k, (column, name) in enumerate(parts)]
    losses = [curve for curve in losses if curve.x]
    log_y = bool(losses) and all(v > 0 for curve in losses for v in curve.y)
    panels: Figure = [Curves("loss per graph", tuple(losses), "step", log_y=log_y, group=0)] if losses else []
    for name in log.metrics:
        if (found := _curve(log, 0, name, name)).x:
            panels.append(Curves(name, (found,), "step", points=True, group=0))
    return panels


def _curve(log: TrainLog, group: int, column: str, name: str) -> Curve:
    steps, values = log.points(column)
    return Curve(group, name, tuple(map(float, steps)), tuple(map(float, values)))


def save_curve(path: Path, log: TrainLog) -> None:
    if figure := curve(log):
        with replacing(path) as temporary:
            draw(figure).savefig(temporary, format="png", dpi=120)


def write_training_report(path: Path, folder: Path) -> None:
    config, log = load_config(folder / CONFIG), TrainLog(folder / LOG)
    last = log.rows[-1] if log.rows else {"step": "0"}
    hours = float(last.get("cpu_seconds") or last.get("seconds") or 0) / 3600
    lead = f"{last['step']} of {config.run.steps} steps of {config.run.batch} graphs, {hours:.2f} hours of training."
    shown = drawn(curve(log), "training")
    sections = [
        ("curve", "Curve", "Losses and samples", shown),
        ("samples", "Samples", "Samples on the way", drawn_table(samples(log)) if log.metrics else Markup()),
        ("settings", "Settings", "Settings", copied((folder / CONFIG).read_text(encoding="utf-8"))),
    ]
    made = f"Made by isostep {metadata.version('isostep')} from {folder.name}/{LOG}."
    write_text(path, document(f"Training of {config.name}", join([tag("p", lead)]), sections, made))


def samples(log: TrainLog) -> Table:
    """Metrics by step."""
    rows = [row for row in log.rows if any(row.get(name) for name in log.metrics)]
    cells = [
        (
            row["step"],
            f"{float(row.get('cpu_seconds') or 0) / 3600:.2f}",
            *(row.get(name) or "" for name in log.metrics),
        )
        for row in rows
    ]
    return Table("Samples on the way", ("step", "hours", *log.metrics), tuple(cells), text_columns=0)
