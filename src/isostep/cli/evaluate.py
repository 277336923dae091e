"""`isostep evaluate` and `isostep reference`: measure generated sets, store what they are compared with."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from isostep.base.text import print_table

if TYPE_CHECKING:
    from isostep.metric.base import Value
    from isostep.metric.evaluate import Report
    from isostep.metric.items import Skipped

SHOWN = 5  # skipped lines that are printed; --json has all, but for --versus


def register(app: typer.Typer) -> None:
    """Add `evaluate` and the `reference` group."""
    app.command("evaluate")(evaluate)
    group = typer.Typer(no_args_is_help=True, help="List and build the statistics that `evaluate` compares with.")
    group.command("list")(list_references)
    group.command("build")(build)
    app.add_typer(group, name="reference")


def evaluate(
    source: Path = typer.Argument(..., help="Graphs (.jsonl), molecules (.smi, .csv, .sdf), or a run folder."),
    reference: str = typer.Option(..., help="A name from `isostep reference list`, or a file of `reference build`."),
    kernel: str | None = typer.Option(None, help="tv or emd, for graph MMDs; else the reference's customary one."),
    metrics: str | None = typer.Option(None, help="Comma-separated keys, such as valid,fcd; else all that apply."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    strict: bool = typer.Option(False, "--strict", help="Stop at the first line that cannot be used."),
    workers: int = typer.Option(1, min=1, help="Processes for the per-molecule work."),
    seed: int = typer.Option(0, min=0, help="Seed of the bootstrap."),
    resamples: int | None = typer.Option(None, min=0, help="Bootstrap resamples, 0 for no intervals; default 200."),
    versus: Path | None = typer.Option(None, help="A second set of graphs: the difference, with interval and p."),
) -> None:
    """Measure generated graphs or molecules against a reference; with --versus, tell two sets of graphs apart.

    Example: `isostep evaluate samples.jsonl --reference planar --kernel tv`
    """
    from isostep.base.errors import InputError
    from isostep.metric.evaluate import evaluate as run

    if kernel not in (None, "tv", "emd"):
        raise InputError(f"unknown kernel {kernel!r}; choose tv or emd")
    keys = None if metrics is None else [key for key in metrics.split(",") if key.strip()]
    if versus is not None:
        if workers > 1:
            raise InputError(f"--workers is for molecules, --versus compares graphs; leave out --workers {workers}")
        resamples = 1000 if resamples is None else resamples
        _versus(source, versus, reference, kernel, keys, resamples, seed, strict, as_json)
        return
    resamples = 200 if resamples is None else resamples
    report = run(source, reference, kernel, keys, resamples, seed, strict, workers)  # type: ignore[arg-type]
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, allow_nan=False))
    else:
        _show(report, customary=kernel is None)


def _versus(
    first: Path, other: Path, reference: str, kernel: str | None, keys: list[str] | None, resamples: int, seed: int,
    strict: bool, as_json: bool,
) -> None:  # fmt: skip
    """Both sets, their difference, the chance of one as large, and the value of as many training graphs."""
    from dataclasses import asdict

    from isostep.metric.contrast import contrast
    from isostep.reporting.output import print_tables
    from isostep.reporting.tables import ARROW, Table, interval_text, number, p_value, signed
    from isostep.study.significance import holm

    rows, skipped = contrast(first, other, reference, kernel, keys, resamples, seed, strict)  # type: ignore[arg-type]
    _show_skipped(skipped)
    corrected = holm([row.p for row in rows])
    if as_json:
        records = [{**asdict(row), "p_holm": p} for row, p in zip(rows, corrected, strict=True)]
        typer.echo(json.dumps(records, indent=2, allow_nan=False))
        return
    cells = []
    for row, p in zip(rows, corrected, strict=True):
        both = [f"{number(v)} ({number(low)} to {number(high)})" for v, low, high in (row.first, row.other)]
        gap = f"{signed(row.difference[0])} ({interval_text(*row.difference[1:])})"
        floor = "" if row.floor is None else number(row.floor)
        cells.append((f"{row.metric} {ARROW[row.better]}", *both, gap, p_value(row.p), p_value(p), floor))
    header = ("metric", first.stem, other.stem, "difference", "p", "p (Holm)", "training graphs")
    note = f"95 % bootstrap intervals, p of {resamples} permutations; training graphs: what as many of them would get."
    print_tables([Table(f"{first.stem} and {other.stem} against {reference}", header, tuple(cells), (note,))])


def _show(report: Report, customary: bool) -> None:
    from isostep.reporting.output import print_tables
    from isostep.reporting.tables import ARROW, Table

    title = f"{report.n} {report.kind}s against {report.reference}"
    if report.kernel:
        title += f", kernel {report.kernel}" + (" (default for this reference)" if customary else "")
    rows = [
        (f"{report.title(key)} {ARROW[report.better[key]]}", *_cells(value), str(value.n))
        for key, value in report.values.items()
    ]
    notes = []
    for key, value in report.values.items():
        details = ", ".join(f"{name} {fact}" for name, fact in value.details.items())
        notes.append(f"{key}: {report.definitions[key]}" + (f" [{details}]" if details else ""))
    print_tables([Table(title, ("metric", "value", "95 % interval", "training set", "n"), tuple(rows), tuple(notes))])
    for key, reason in report.undefined.items():
        typer.echo(f"{key}: not defined ({reason})")
    _show_skipped(report.skipped)


def _show_skipped(skipped: list[Skipped]) -> None:
    if skipped:
        print(f"{len(skipped)} lines could not be used:", file=sys.stderr)
    for line in skipped[:SHOWN]:
        print(f"  {line}", file=sys.stderr)


def _cells(value: Value) -> tuple[str, str, str]:
    def number(x: float | None) -> str:
        return "" if x is None else f"{x:.4g}" if abs(x) >= 1e-3 or x == 0 else f"{x:.2e}"

    interval = "" if value.low is None else f"{number(value.low)} to {number(value.high)}"
    return number(value.value), interval, number(value.floor)


def list_references(as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table.")) -> None:
    """References that come with the package. Example: `isostep reference list`"""
    from isostep.metric.reference import shipped

    rows = [{"name": name, **entry._asdict()} for name, entry in shipped().items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    print_table(("name", "kind", "kernel", "validity"), ([value or "" for value in row.values()] for row in rows))


def build(
    name: str = typer.Argument(..., help="A dataset from `isostep data list`."),
    out: Path = typer.Option(..., help="File to write, .npz."),
    folder: Path | None = typer.Option(None, help="Folder with the dataset's file."),
    split: str = typer.Option("test", help="test, or val: to choose settings by, as the paper does its range."),
) -> None:
    """Fit a dataset's test split, its training split for novelty and floors; ChemNet makes it minutes for molecules.

    Example: `isostep reference build qm9 --out qm9.npz`
    """
    from isostep.metric.suite import build_reference

    start = time.perf_counter()
    build_reference(name, folder, split).save(out)
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.2f} MB in {time.perf_counter() - start:.0f} s")
