"""`isostep calibrate`: measure a model's information rate once, and cut it into equal steps."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command()(calibrate)


def calibrate(
    model: str = typer.Argument(help="Embedded name, model folder, or released .pth file."),
    steps: int = typer.Option(50, help="Steps of the schedule to print."),
    solver: str | None = typer.Option(None, help="Solver of the pilot; default: the model's preset."),
    corrector: str | None = typer.Option(None, help="langevin or none; default: the model's preset."),
    graphs: int = typer.Option(32, help="Graphs of the pilot."),
    pilot_steps: int = typer.Option(200, help="Uniform steps of the pilot."),
    power: float = typer.Option(0.5, help="Density of steps = rate^power; 0.5 is equal arc length."),
    combine: str = typer.Option("sum", help="sum or max over components, or one component, such as A."),
    smooth: float = typer.Option(0.03, help="Width in t of the moving average over the rate."),
    floor: float = typer.Option(0.1, help="Least density, as a share of its mean."),
    fresh: bool = typer.Option(False, help="Measure again even if a calibration is stored."),
    out: Path | None = typer.Option(None, help="Also write the times, one a line, for --schedule times."),
    as_json: bool = typer.Option(False, "--json", help="Print times and cost as JSON."),
) -> None:
    """Measure the information rate on a pilot batch, store it, and print the arc-length schedule.

    Example: `isostep calibrate grum-community-small --steps 50`
    """
    from isostep.base.files import write_text
    from isostep.control.arclength import Density, equal_parts
    from isostep.model.lookup import load_model
    from isostep.sampling.calibrate import PilotPlan, pilot_for
    from isostep.settings.schema import resolve

    loaded = load_model(model)
    settings = resolve(
        loaded.info.sampler, schedule="arclength", steps=steps, solver=solver, corrector=corrector, clock="graph"
    )
    pilot = pilot_for(loaded, settings, PilotPlan(graphs, pilot_steps), fresh=fresh)
    times = equal_parts(pilot, steps, Density(power, combine, smooth, floor))
    if out is not None:
        write_text(out, "".join(f"{t!r}\n" for t in times))
    if as_json:
        typer.echo(json.dumps({"times": times, "pilot_graphs": pilot.graphs, "pilot_calls": pilot.calls}))
        return
    typer.echo(f"{loaded.info.name}: pilot of {pilot.graphs} graphs, {pilot.calls} network calls on that batch")
    typer.echo(f"{steps} steps of equal information, t = " + " ".join(f"{t:.4f}" for t in times))
