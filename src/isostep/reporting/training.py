"""A training run: its losses and the metrics of its samples, as a plot and as a page."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from isostep.base.files import read_toml, replacing, write_text
from isostep.base.markup import Markup, join, tag
from isostep.base.schema import checked
from isostep.base.text import duration
from isostep.reporting.chart import drawn
from isostep.reporting.figures import Curve, Curves, Figure
from isostep.reporting.page import copied, document, drawn_table
from isostep.reporting.plots import draw
from isostep.reporting.tables import Table, number
from isostep.training.config import RunConfig
from isostep.training.log import CONFIG, LOG, TrainLog

ABOUT = (
    "Loss a graph of each component (X nodes, A edges, P positions): of the batch at that step, and of the averaged "
    "weights on graphs held out for validation. Then, where the run measures them, metrics of graphs sampled with the "
    "averaged weights."
)


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
    values, log = read_toml(folder / CONFIG), TrainLog(folder / LOG)
    run = checked(RunConfig, values.get("run"), f"{folder / CONFIG}: run")  # the rest may be of an earlier version
    shown = [tag("p", ABOUT, class_="soft"), drawn(curve(log), "training")] if log.rows else []
    sections = [
        ("curve", "Curve", "Losses and samples", join(shown)),
        ("samples", "Samples", "Samples on the way", drawn_table(samples(log)) if log.metrics else Markup()),
        ("settings", "Settings", "Settings", copied((folder / CONFIG).read_text(encoding="utf-8"))),
    ]
    made = f"Made by isostep {metadata.version('isostep')} from {folder.name}/{LOG}."
    title = f"Training of {values.get('name', folder.name)}"
    write_text(path, document(title, tag("p", _lead(run, log)), sections, made))


def _lead(run: RunConfig, log: TrainLog) -> str:
    last = log.rows[-1] if log.rows else {"step": "0"}
    done, spent = int(last["step"]), float(last.get("cpu_seconds") or last.get("seconds") or 0)
    words = f"{done} of {run.steps} steps of {run.batch} graphs"
    if not done or not spent:
        return f"{words}."
    rest = max(0, run.steps - done) * spent / done
    words += f" in {duration(spent)} of processor time, {number(done / spent)} steps a second"
    return f"{words}; {duration(rest)} are left at this speed." if rest else f"{words}."


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
    return Table("Metrics by step", ("step", "hours", *log.metrics), tuple(cells), text_columns=0)
