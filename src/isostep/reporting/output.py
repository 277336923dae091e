"""Everything that is made from a study's JSON: comparison.json, tables, plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isostep.base.files import write_json, write_text
from isostep.reporting.tables import Table, difference_table, long_csv, summary_table
from isostep.study.comparison import compare_arms
from isostep.study.record import Study


def write_outputs(study: Study, plots: bool = True) -> dict[str, Any]:
    """Write tables and plots beside the study; returns the comparison."""
    folder = study.store.folder
    comparison = compare_arms(study)
    write_json(folder / "comparison.json", comparison)
    write_tables(folder / "comparison", [summary_table(comparison), difference_table(comparison)])
    write_text(folder / "comparison.csv", long_csv(comparison))
    if plots:
        from isostep.reporting.figures import figures
        from isostep.reporting.plots import draw, save

        for name, figure in figures(study, comparison).items():
            save(draw(figure), folder / "plots" / name)
    return comparison


def write_tables(stem: Path, tables: list[Table]) -> None:
    """Markdown and LaTeX; a table without rows is left out."""
    full = [table for table in tables if table.rows]
    write_text(stem.with_suffix(".md"), "\n".join(table.markdown() for table in full))
    write_text(stem.with_suffix(".tex"), "\n".join(table.latex() for table in full))


def print_tables(tables: list[Table]) -> None:
    """For people at a terminal; a pipe or file gets wide lines."""
    from rich.console import Console

    console = Console()
    console = console if console.is_terminal else Console(width=160)
    for table in tables:
        if table.rows:
            console.print(table.rich())
            for note in table.notes:
                console.print(note, style="dim", highlight=False, markup=False)


def print_comparison(comparison: dict[str, Any]) -> None:
    print_tables([summary_table(comparison), difference_table(comparison)])
