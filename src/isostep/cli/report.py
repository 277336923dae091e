"""`isostep report`: a study or a training run as one page."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    folder: Path = typer.Argument(help="Folder that compare, sweep, reproduce, demo or train wrote."),
    out: Path | None = typer.Option(None, help="File to write, .html; default: report.html in the folder."),
) -> None:
    """Write one self-contained HTML page of a study or a training run; nothing is computed again.

    Example: `isostep report studies/first`
    """
    from isostep.reporting.functions import report as write

    path = write(folder, out)
    typer.echo(f"{path} ({path.stat().st_size / 1e6:.2g} MB)")
