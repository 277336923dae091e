"""`isostep runs`: how a run folder stands, and whether it is what it says."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Watch and verify run folders of `isostep sample --out`.")
    group.command("status")(status)
    group.command("verify")(verify)
    app.add_typer(group, name="runs")


def status(
    folder: Path = typer.Argument(help="Run folder."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Progress, rate, time left, failed shards. Example: `isostep runs status runs/million`"""
    from isostep.base.text import duration, printable
    from isostep.run.inspect import status as read

    report = read(folder)
    if as_json:
        typer.echo(json.dumps(report))
        return
    typer.echo(f"{printable(report['model'])}: {report['state']}, {report['graphs']} of {report['n']} graphs", nl=False)
    typer.echo(f", {report['shards_done']} of {report['shards']} shards")
    if report["holder"]:
        typer.echo(f"in use by {printable(report['holder'])}")
    if report["graphs_per_second"]:
        left = report["seconds_left"]
        typer.echo(f"{report['graphs_per_second']:.3g} graphs/s" + (f", {duration(left)} left" if left else ""))
    if report["silent_seconds"] is not None:
        typer.echo(f"no shard was finished for {duration(report['silent_seconds'])}; a silent worker will be replaced")
    for shard, reason in report["failed"].items():
        typer.echo(f"shard {shard} failed: {printable(reason)}")
    if report["unfinished_graphs"]:
        typer.echo(f"{report['unfinished_graphs']} graphs did not reach the end of their integration")
    if report["unreadable_lines"]:
        typer.echo(f"{report['unreadable_lines']} manifest lines cannot be read; their shards will be made again")


def verify(
    folder: Path = typer.Argument(help="Run folder."),
    model: str | None = typer.Option(None, help="Where the model is now, if it has moved."),
    batches: int = typer.Option(1, min=0, help="Random batches to sample again and compare."),
    repair: bool = typer.Option(False, help="Take bad shards out; the sample command then makes them again."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check every checksum and sample some graphs again; exit code 1 if anything differs.

    Example: `isostep runs verify runs/million --batches 2`
    """
    from isostep.base.text import printable
    from isostep.run.inspect import verify as check

    verdict = check(folder, model, batches, repair)
    if as_json:
        typer.echo(json.dumps({"ok": verdict.ok, **asdict(verdict)}))
    else:
        for shard, reason in verdict.bad:
            typer.echo(printable(reason if shard is None else f"shard {shard}: {reason}"))
        if verdict.missing:
            typer.echo(f"{verdict.missing} shards are not there yet: repeat the sample command")
        if verdict.ok:
            typer.echo(
                f"{verdict.files} files match their sums; {verdict.regenerated} graphs sampled again are the same"
            )
        elif verdict.repaired:
            typer.echo("taken out: repeat the sample command to make them again")
        else:
            typer.echo("run again with --repair to take the bad ones out")
    if not verdict.ok:
        raise typer.Exit(1)
