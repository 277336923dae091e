"""`isostep reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def reproduce(
    target: str = typer.Argument(help="T1 to T10, or F2 to F7, as the paper numbers them."),
    quick: bool = typer.Option(False, help="Fewer graphs, seeds and steps; the output says so."),
    model: str | None = typer.Option(None, help="Your model: a released .pth file, a folder, or an embedded name."),
    n: int | None = typer.Option(None, "-n", "--number", min=1, help="Graphs per arm and seed."),
    seeds: str | None = typer.Option(None, help="Such as 0-9."),
    steps: int | None = typer.Option(None, min=1, help="Base steps; default: the model's preset."),
    weights: str | None = typer.Option(None, help="raw or ema weights of a released file; default: its preset's."),
    arms: str | None = typer.Option(None, help="Only arms of these names, or that begin so: 'Euler; Exponential-2'."),
    out: Path = typer.Option(Path("results"), help="Folder; finished arms in it are not computed again."),
    workers: str = typer.Option("1", help="Processes that compute arms and seeds at the same time, or auto."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    reuse: bool = typer.Option(True, help="Copy what another study on this machine has computed."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Run a table or figure of the paper, print its values beside ours, and say what is not comparable.

    Example: `isostep reproduce T4 --quick`
    """
    from isostep.base.files import read_json
    from isostep.cli.compare import command_line, computing
    from isostep.reporting.output import print_tables
    from isostep.reporting.page import write_report
    from isostep.reporting.paper import write_reproduced
    from isostep.study.reproduce import CONSTANTS, Options
    from isostep.study.reproduce import reproduce as run

    if target.upper() in CONSTANTS:
        _constants(target.upper(), out, as_json)
        return
    options = Options(quick, model, n, seeds, steps, weights, arms, command_line())
    done = run(target, out, options, **computing(workers, device, reuse))
    parts, pages = write_reproduced(done), []
    for part in parts:
        if part.study is None or part.comparison is None:
            continue
        pages.append(out / f"{target.upper()}-{part.study.store.folder.name}.html")
        write_report(pages[-1], part.study, part.comparison, part.tables[:1])
    if as_json:
        typer.echo(json.dumps(read_json(done.stem.with_suffix(".json"))))
        return
    print_tables([table for part in parts for table in part.tables])
    names = ", ".join(page.name for page in pages)
    typer.echo(f"written to {out}: {done.stem.name}.md, .tex, .json{' and ' * bool(names)}{names}")


def _constants(name: str, out: Path, as_json: bool) -> None:
    """The paper's constants beside those in use."""
    from isostep.reporting.output import print_tables, write_tables
    from isostep.reporting.tables import Table
    from isostep.study.constants import constant_rows
    from isostep.study.reproduce import load_constant_table

    constants = load_constant_table(name)
    header, rows = constant_rows(constants)
    if as_json:
        typer.echo(json.dumps([dict(zip(header, row, strict=True)) for row in rows]))
        return
    table = Table(constants.title, header, tuple(rows), constants.notes, text_columns=2 if constants.rows else 1)
    write_tables(out / name, [table])
    print_tables([table])
