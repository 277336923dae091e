"""`isostep compare`: arms on common random numbers, with paired statistics."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from isostep.settings.schedules import COMPARED

if TYPE_CHECKING:
    from isostep.study.plan import StudyPlan


def compare(
    model: str = typer.Argument(help="Embedded name, model folder, or released .pth file."),
    schedules: str = typer.Option(",".join(COMPARED), help="Comma-separated; the first one is the baseline."),
    solvers: str = typer.Option("", help="Comma-separated; default: the model's preset."),
    seeds: str = typer.Option("0-4", help="Such as 0-9 or 1,4,7; every arm runs every seed."),
    n: int = typer.Option(100, "-n", "--number", min=1, help="Graphs per arm and seed."),
    steps: int | None = typer.Option(None, min=1, help="Steps of a grid; for dvs, 1 / base step."),
    calls: str | None = typer.Option(None, help="Budgets of network calls per graph, such as 100,250,1000."),
    out: Path = typer.Option(..., help="Study folder; finished arms in it are not computed again."),
    reference: str | None = typer.Option(None, help="Name or file; default: the model's dataset."),
    kernel: str | None = typer.Option(None, help="tv or emd, for graph MMDs; else the reference's customary one."),
    metrics: str | None = typer.Option(None, help="Comma-separated, such as valid,fcd."),
    corrector: str | None = typer.Option(None, help="langevin or none; default: the model's preset."),
    clock: str = typer.Option("batch", help="batch (the paper's) or graph; the same for all arms."),
    noise: str = typer.Option("path", help="path: one Brownian path for all grids; step: same numbers by step."),
    batch_size: int = typer.Option(256, min=1, help="Graphs integrated together."),
    weights: str | None = typer.Option(None, help="ema or raw weights of a released file."),
    workers: str = typer.Option("1", help="Processes that compute arms and seeds at the same time, or auto."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    reuse: bool = typer.Option(True, help="Copy what another study on this machine has computed."),
    plots: bool = typer.Option(True, help="Also draw the plots."),
    as_json: bool = typer.Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare schedules and solvers on common random numbers: means, paired differences, 95 % intervals, verdicts.

    Example: `isostep compare grum-community-small --schedules uniform,dvs --seeds 0-9 -n 128 --out studies/first`
    """
    from isostep.study.plan import parse_counts, parse_seeds, product_arms, words

    budgets = parse_counts(calls, "--calls")
    arms = product_arms(words(schedules), words(solvers), budgets, steps, clock=clock, corrector=corrector)
    plan = checked_plan(
        title=f"{Path(model).stem}", model=model, arms=arms, seeds=parse_seeds(seeds), n=n, batch_size=batch_size,
        noise=noise, reference=reference, kernel=kernel, metrics=words(metrics) if metrics else None, weights=weights,
    )  # fmt: skip
    finish(plan, out, plots, as_json, **computing(workers, device, reuse))


def checked_plan(**fields: Any) -> StudyPlan:
    """A checked plan with the command line that asked for it."""
    from isostep.base.schema import checked
    from isostep.study.plan import StudyPlan

    return checked(StudyPlan, {"command": command_line(), **fields}, "study")


def command_line() -> str:
    return shlex.join(["isostep", *sys.argv[1:]])


def computing(workers: str, device: str, reuse: bool) -> dict[str, Any]:
    """How a study is computed, checked; none of it decides the numbers."""
    from isostep.model.lookup import check_device
    from isostep.run.workers import count_workers

    return {"workers": count_workers(workers), "device": str(check_device(device)), "reuse": reuse}


def finish(plan: StudyPlan, out: Path, plots: bool, as_json: bool, **how: Any) -> dict[str, Any]:
    """Run, write tables and plots, print; returns the comparison."""
    from isostep.reporting.output import print_comparison, write_outputs
    from isostep.study.compute import run_study

    study = run_study(plan, out, **how)
    comparison = write_outputs(study, plots)
    if as_json:
        typer.echo(json.dumps(comparison))
        return comparison
    print_comparison(comparison)
    typer.echo(f"written to {out}; a page of it: isostep report {out}")
    return comparison
