"""`isostep report`: a study folder as one page."""

from __future__ import annotations

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    folder: Path = typer.Argument(help="Folder that compare, sweep, reproduce or demo wrote."),
    out: Path | None = typer.Option(None, help="File to write; default: report.html in the folder."),
) -> None:
    """Write one self-contained HTML page of a study, with its tables and plots; nothing is computed again.

    Example: `isostep report studies/first`
    """
    from isostep.reporting.output import write_outputs
    from isostep.reporting.page import write_report
    from isostep.study.record import load_study

    study = load_study(folder)
    comparison = write_outputs(study, plots=False)  # the page has them
    path = out or folder / "report.html"
    write_report(path, study, comparison)
    typer.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
