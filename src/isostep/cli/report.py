"""`isostep report`: a study or a training run as one page."""

from __future__ import annotations

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    folder: Path = typer.Argument(help="Folder that compare, sweep, reproduce, demo or train wrote."),
    out: Path | None = typer.Option(None, help="File to write; default: report.html in the folder."),
) -> None:
    """Write one self-contained HTML page of a study or a training run; nothing is computed again.

    Example: `isostep report studies/first`
    """
    from isostep.training.log import is_training_run

    path = out or folder / "report.html"
    if is_training_run(folder):
        from isostep.reporting.training import write_training_report

        write_training_report(path, folder)
    else:
        from isostep.reporting.output import write_outputs
        from isostep.reporting.page import write_report
        from isostep.study.record import load_study

        study = load_study(folder)
        write_report(path, study, write_outputs(study, plots=False))  # the page has them
    typer.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
