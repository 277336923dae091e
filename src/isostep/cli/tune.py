"""`isostep tune`: the best sampler for a budget of calls, by measuring."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def tune(
    model: str = typer.Argument(help="Embedded name, model folder, released .pth file, or package.module:function."),
    calls: int = typer.Option(20, min=1, help="Network calls per graph."),
    reference: str | None = typer.Option(None, help="Name or file; default: the model's dataset."),
    own: bool = typer.Option(False, "--self", help="No data: the model's own long run is the reference."),
    out: Path = typer.Option(Path("tuned.toml"), help="Preset to write; its folder keeps the work, so it can go on."),
    minutes: float | None = typer.Option(None, help="Wall time to spend; default: a fixed number of candidates."),
    n: int = typer.Option(256, "-n", "--number", min=2, help="Graphs per candidate and seed."),
    keep: list[str] = typer.Option([], help="Forbid a loss in this metric, such as novelty; may be repeated."),
    metrics: str | None = typer.Option(None, help="Metrics that count, comma-separated; default: the kind's usual."),
    only: str = typer.Option("", help="Try these schedules and solvers only, comma-separated."),
    generations: int = typer.Option(3, min=0, help="Rounds of refinement around the leaders, without --minutes."),
    confirm: int = typer.Option(5, min=2, help="Fresh seeds on which the winner is confirmed."),
    seed: int = typer.Option(0, min=0, help="Another one searches and confirms on other seeds."),
    yardstick_steps: int | None = typer.Option(None, min=1, help="Steps of the long run; default: the preset's."),
    batch_size: int = typer.Option(256, min=1, help="Graphs integrated together."),
    kernel: str | None = typer.Option(None, help="tv or emd, for graph MMDs."),
    weights: str | None = typer.Option(None, help="ema or raw weights of a released file."),
    workers: str = typer.Option("1", help="Processes that compute candidates and seeds at the same time, or auto."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    store: bool = typer.Option(False, help="Also write the result into the model's folder, where auto finds it."),
    as_json: bool = typer.Option(False, "--json", help="Print the record as JSON."),
) -> None:
    """Find grid, solver, noise, temperature and corrector that do best with so many network calls, and confirm it.

    Example: `isostep tune grum-planar-small --calls 10 --out planar10.toml`, then
    `isostep sample grum-planar-small --preset planar10.toml`
    """
    from isostep.base.schema import checked
    from isostep.cli.compare import command_line, computing
    from isostep.model.lookup import load_model
    from isostep.reporting.output import print_tables
    from isostep.reporting.tuning import tables
    from isostep.study.plan import words
    from isostep.study.tune import folder_of
    from isostep.study.tune import tune as run
    from isostep.study.tune_record import TunePlan

    fields = {
        "model": model, "calls": calls, "reference": reference, "own": own, "n": n, "batch_size": batch_size,
        "generations": generations, "minutes": minutes, "confirm": confirm, "seed": seed, "keep": keep,
        "yardstick_steps": yardstick_steps, "metrics": words(metrics) if metrics else None, "kernel": kernel,
        "only": words(only),
        "command": command_line(),
    }  # fmt: skip
    plan = checked(TunePlan, fields, "tune")
    how = computing(workers, device, True)
    loaded = load_model(model, weights, how["device"])
    record = run(plan, out, loaded, store, **how)
    if as_json:
        typer.echo(json.dumps(record.model_dump(mode="json")))
        return
    print_tables(tables(record))
    typer.echo(f"{record.reason}; {plan.calls} calls: {record.winner if record.kept else record.baseline}")
    typer.echo(f"written to {out}; a page of it: isostep report {folder_of(out)}")
