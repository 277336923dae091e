"""`isostep calibrate`: measure a model once on a pilot, and make a schedule or its constants of what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from isostep.base.errors import InputError
from isostep.base.registry import look_up
from isostep.settings.schedules import PLAIN, SCHEDULES

CALIBRATED = {name: entry for name, entry in SCHEDULES.items() if entry.needs_pilot or entry.proposal}
FIRST = next(name for name, entry in CALIBRATED.items() if entry.needs_pilot)
STEPS = 50
PROPOSING = ", ".join(name for name, entry in CALIBRATED.items() if entry.proposal)


def calibrate(
    model: str = typer.Argument(help="Embedded name, model folder, or released .pth file."),
    schedule: str = typer.Option(FIRST, help=f"{', '.join(CALIBRATED)}; {PROPOSING}: proposes its constants."),
    steps: int | None = typer.Option(None, help=f"Steps of the schedule to print; default: {STEPS}."),
    solver: str | None = typer.Option(None, help="Solver of the pilot; default: the model's preset."),
    corrector: str | None = typer.Option(None, help="langevin or none; default: the model's preset."),
    graphs: int = typer.Option(32, help="Graphs of the pilot."),
    pilot_steps: int = typer.Option(200, help="Uniform steps of the pilot."),
    power: float | None = typer.Option(None, help="Density of steps = rate^power; 0.5 is equal arc length."),
    combine: str | None = typer.Option(None, help="sum or max over components, or one component, such as A."),
    smooth: float | None = typer.Option(None, help="Width in t of the moving average over the rate."),
    floor: float | None = typer.Option(None, help="Least density, as a share of its mean."),
    fresh: bool = typer.Option(False, help="Measure again even if a calibration is stored."),
    out: Path | None = typer.Option(None, help="Also write the times, one a line, for --schedule times."),
    plot: Path | None = typer.Option(None, help=f"For {PROPOSING}: also draw the steps, into PLOT.svg and PLOT.png."),
    as_json: bool = typer.Option(False, "--json", help="Print times and cost as JSON."),
) -> None:
    """Measure a model on a pilot batch, store what was found, and print the schedule or its constants.

    Example: `isostep calibrate grum-community-small --steps 50`
    """
    from isostep.base.files import write_text
    from isostep.model.lookup import load_model
    from isostep.sampling.calibrate import PilotPlan, pilot_for
    from isostep.settings.resolve import pilot_times, resolve

    proposal = look_up(CALIBRATED, "calibrated schedule", schedule).proposal
    shape = {"power": power, "combine": combine, "smooth": smooth, "floor": floor}
    idle = {"steps": steps, "out": out, **shape} if proposal else {"plot": plot}
    if given := [name for name, value in idle.items() if value is not None]:
        raise InputError(f"--{given[0]} says nothing to the schedule {schedule}; leave it out")
    loaded = load_model(model)
    if proposal:
        settings = resolve(loaded.info.sampler, schedule=PLAIN, solver=solver, corrector=corrector, clock="graph")
        pilot = pilot_for(loaded, settings, PilotPlan(graphs, pilot_steps), fresh=fresh)
        _show(proposal.make(schedule, pilot, options={}), pilot, loaded.info.name, plot, as_json)
        return
    steps = STEPS if steps is None else steps
    settings = resolve(
        loaded.info.sampler, schedule=schedule, steps=steps, solver=solver, corrector=corrector, clock="graph",
        schedule_options={name: value for name, value in shape.items() if value is not None},
    )  # fmt: skip
    pilot = pilot_for(loaded, settings, PilotPlan(graphs, pilot_steps), fresh=fresh)
    times = pilot_times(settings)(pilot, steps)
    if out is not None:
        write_text(out, "".join(f"{t!r}\n" for t in times))
    if as_json:
        typer.echo(json.dumps({"times": times, "pilot_graphs": pilot.graphs, "pilot_calls": pilot.calls}))
        return
    typer.echo(f"{loaded.info.name}: pilot of {pilot.graphs} graphs, {pilot.calls} network calls on that batch")
    typer.echo(f"{schedule}, {steps} steps, t = " + " ".join(f"{t:.4f}" for t in times))


def _show(found: Any, pilot: Any, name: str, plot: Path | None, as_json: bool) -> None:
    """Constants for this model, ready for its preset, and what they would do."""
    from isostep.reporting.plots import save
    from isostep.reporting.proposal import figure

    if plot is not None:
        save(figure(name, pilot.t, pilot.rate, found), plot)
    if as_json:
        values = {"kappa": found.kappa, "gamma": found.gamma, "active": found.active, "steps_over_base": found.share}
        typer.echo(json.dumps({**values, "at": found.pinned, "pilot_calls": pilot.calls}))
        return
    shares = ", ".join(f"{100 * share:.0f} % of its steps at {bound}" for bound, share in found.pinned.items())
    typer.echo(f"# {name}: pilot of {pilot.graphs} graphs, {pilot.calls} network calls on that batch")
    typer.echo(f"# {found.share:.2f} times the base steps, {shares}")
    typer.echo(found.toml(), nl=False)
