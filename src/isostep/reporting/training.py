"""A training run: its losses and the metrics of its samples, as a plot and as a page."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from isostep.base.files import replacing, write_text
from isostep.base.markup import Markup, join, tag
from isostep.reporting.page import document, drawn_table
from isostep.reporting.plots import COLOURS, inline, panels
from isostep.reporting.tables import Table
from isostep.training.config import load_config
from isostep.training.log import CONFIG, LOG, TrainLog

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve(log: TrainLog) -> Figure:
    """Loss of each component against steps, validation as points; then each metric of the samples."""
    figure, (losses, *rest) = panels(1 + len(log.metrics))
    columns = [column for column in log.losses if column.startswith("loss_")]
    for colour, column in zip(COLOURS, columns, strict=False):
        name = column.removeprefix("loss_")
        losses.plot(*log.points(column), color=colour, lw=0.8, label=name)
        losses.plot(*log.points(f"val_{column}"), "o", color=colour, ms=3.5, label=f"{name}, validation")
    losses.set(xlabel="step", ylabel="loss per graph")
    if any(line.get_xdata().size for line in losses.lines):  # type: ignore[union-attr]
        losses.set_yscale("log")
        losses.legend(fontsize=8, loc="upper right")
    for axis, name in zip(rest, log.metrics, strict=True):
        axis.plot(*log.points(name), "o-", color=COLOURS[0], ms=3.5)
        axis.set(xlabel="step", ylabel=name)
    return figure


def save_curve(path: Path, log: TrainLog) -> None:
    with replacing(path) as temporary:
        curve(log).savefig(temporary, format="png", dpi=120)


def write_training_report(path: Path, folder: Path) -> None:
    config, log = load_config(folder / CONFIG), TrainLog(folder / LOG)
    last = log.rows[-1] if log.rows else {"step": "0"}
    hours = float(last.get("cpu_seconds") or last.get("seconds") or 0) / 3600
    lead = f"{last['step']} of {config.run.steps} steps of {config.run.batch} graphs, {hours:.2f} hours of training."
    drawn = tag(
        "figure", Markup(inline(curve(log), "curve")), tag("figcaption", "Lines: training. Points: averaged weights.")
    )
    sections = [
        ("curve", "Curve", "Losses and samples", drawn),
        ("samples", "Samples", "Samples on the way", drawn_table(samples(log)) if log.metrics else Markup()),
        ("settings", "Settings", "Settings", tag("pre", (folder / CONFIG).read_text(encoding="utf-8"))),
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
