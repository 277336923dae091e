"""`isostep sweep`: one setting, many values."""

from __future__ import annotations

from pathlib import Path

import typer

from isostep.settings.schedules import PAPER, PLAIN


def sweep(
    model: str = typer.Argument(help="Embedded name, model folder, or released .pth file."),
    param: list[str] = typer.Option(
        ..., help="schedule.gamma=0.1:0.35:6, steps=100,200 or schedule.active=[[0,1]];[[.5,1]]; several multiply."
    ),
    schedule: str = typer.Option(PAPER, help="Schedule whose setting is swept."),
    baseline: str = typer.Option(PLAIN, help="Schedule that every value is compared with."),
    solver: str | None = typer.Option(None, help="Default: the model's preset."),
    seeds: str = typer.Option("0-4", help="Such as 0-9 or 1,4,7."),
    n: int = typer.Option(100, "-n", "--number", min=1, help="Graphs per arm and seed."),
    steps: int | None = typer.Option(None, min=1, help="Steps of a grid; for dvs, 1 / base step."),
    out: Path = typer.Option(..., help="Study folder; finished arms in it are not computed again."),
    reference: str | None = typer.Option(None, help="Name or file; default: the model's dataset."),
    kernel: str | None = typer.Option(None, help="tv or emd, for graph MMDs."),
    metrics: str | None = typer.Option(None, help="Comma-separated, such as valid,fcd."),
    clock: str = typer.Option("batch", help="batch (the paper's) or graph; the same for all arms."),
    batch_size: int = typer.Option(256, min=1, help="Graphs integrated together."),
    workers: str = typer.Option("1", help="Processes that compute arms and seeds at the same time, or auto."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    reuse: bool = typer.Option(True, help="Copy what another study on this machine has computed."),
    plots: bool = typer.Option(True, help="Also draw the plots."),
    as_json: bool = typer.Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Sweep a sampler setting and compare every value with a baseline.

    Example: `isostep sweep grum-community-small --param schedule.gamma=0.1:0.35:6 --seeds 0-4 --out studies/gamma`
    """
    from isostep.cli.compare import checked_plan, computing, finish
    from isostep.study.plan import parse_seeds, words
    from isostep.study.sweep import parse_param, sweep_arms

    params = [parse_param(text) for text in param]
    arms = sweep_arms(params, schedule, baseline, solver=solver, steps=steps, clock=clock)
    plan = checked_plan(
        title=f"{Path(model).stem}, {', '.join(p.path for p in params)}", model=model, arms=arms,
        seeds=parse_seeds(seeds), n=n, batch_size=batch_size, reference=reference, kernel=kernel,
        metrics=words(metrics) if metrics else None,
    )  # fmt: skip
    comparison = finish(plan, out, plots, as_json, **computing(workers, device, reuse))
    numeric = len(params) == 1 and all(isinstance(v, int | float) for v in params[0].values)
    if plots and numeric:
        from isostep.reporting.figures import sweep as sweep_panels
        from isostep.reporting.plots import draw, save

        values = [float(v) for v in params[0].values]
        if panels := sweep_panels(comparison, params[0].path, values):
            save(draw(panels), out / "plots" / "sweep")
