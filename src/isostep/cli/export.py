"""`isostep export`: a run folder in formats of other tools."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def export(
    folder: Path = typer.Argument(help="Run folder of `isostep sample --out`."),
    format: str = typer.Option(..., help="jsonl, smi, sdf, xyz (with positions) or parquet (needs isostep[parquet])."),
    out: Path = typer.Option(..., help="File to write; .gz and .zst compress jsonl, smi and sdf."),
    partial: bool = typer.Option(False, help="Take what there is of an unfinished run."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Write the graphs of a run to one file.

    Example: `isostep export runs/million --format parquet --out million.parquet`
    """
    from isostep.run.export import export_items

    count = export_items(folder, out, format, partial)
    size = out.stat().st_size
    typer.echo(
        json.dumps({"graphs": count, "bytes": size, "out": str(out)})
        if as_json
        else f"{out}: {count} graphs, {size / 1e6:.2f} MB"
    )
