"""`isostep sample`: graphs or molecules from a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from isostep.base.errors import InputError, located
from isostep.base.progress import Interrupted, log
from isostep.base.text import print_table, printable, value_of
from isostep.settings.schedules import CHOICES
from isostep.settings.solvers import SOLVERS


def register(app: typer.Typer) -> None:
    choices = {"Schedules": CHOICES, "Solvers": {name: entry.help for name, entry in SOLVERS.items()}}
    lists = (f"{title}\n\n" + "\n".join(f"- {k}: {v}" for k, v in each.items()) for title, each in choices.items())
    app.command(epilog="\n\n".join(lists))(sample)


def sample(
    model: str = typer.Argument(help="Embedded name, model folder, released .pth file, or a fetched one's name."),
    n: int = typer.Option(100, "-n", "--number", help="How many graphs."),
    schedule: str | None = typer.Option(None, help=f"{', '.join(CHOICES)}."),
    solver: str | None = typer.Option(None, help=f"{', '.join(SOLVERS)}."),
    seed: int = typer.Option(0, help="Seed; a graph is (model, settings, seed, index)."),
    start: int = typer.Option(0, help="Index of the first graph."),
    steps: int | None = typer.Option(None, help="Steps of a grid; for dvs, 1 / base step."),
    calls: int | None = typer.Option(None, min=1, help="Budget of network calls per graph; sets the steps."),
    batch_size: int = typer.Option(256, help="Graphs integrated together."),
    corrector: str | None = typer.Option(None, help="langevin or none; default: the model's preset."),
    snr: float | None = typer.Option(None, help="Langevin step strength."),
    scale: float | None = typer.Option(None, help="Langevin noise scale."),
    eta: float | None = typer.Option(
        None, help="Noise of the exponential solvers: 1 the model's own, 0 none, more forgets a model's errors."
    ),
    temperature: str | None = typer.Option(
        None, help="Noise times this, exponential solvers: a number, or X=.6,A=.88; A=.95:.85 from t = 0 to 1."
    ),
    clean_end: bool | None = typer.Option(
        None, "--clean-end/--no-clean-end", help="Exponential solvers: the result is the last predicted graph itself."
    ),
    clock: str | None = typer.Option(None, help="graph: own clock each; batch: one for the batch (the paper's DVS)."),
    option: list[str] = typer.Option([], "--set", help="Schedule option, such as --set gamma=0.3 or --set rho=3."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    weights: str | None = typer.Option(None, help="ema or raw weights of a released file."),
    preset: str | None = typer.Option(
        None, help="File of `isostep tune`; or, for a released file of another dataset, packaged preset or TOML file."
    ),
    trace: bool = typer.Option(
        False, help="Write t, dt, V and ds2 of the first batch's steps (with own clocks: first shard's) to trace.json."
    ),
    sdf: bool = typer.Option(False, help="Also write molecules.sdf."),
    out: Path | None = typer.Option(None, help="Run folder; the same command again continues an interrupted run."),
    workers: str = typer.Option(
        "1", help="Processes (or Ray actors) that sample at the same time, or auto; needs --out."
    ),
    ray: str | None = typer.Option(None, help="Run on a Ray cluster: auto, or its address; needs isostep[ray]."),
    threads: int | None = typer.Option(None, min=1, help="Threads of each worker; default: the cores shared out."),
    shard_size: int | None = typer.Option(None, min=1, help="Graphs of a shard, a multiple of the batch size."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Generate graphs or molecules.

    Examples: `isostep sample grum-qm9 -n 64 --out runs/first` (schedule auto: 50 calls a graph);
    `isostep sample grum-community-small -n 64 --schedule dvs --seed 1 --out runs/dvs` (the paper's sampler).

    A run folder fills up shard by shard: watch it with `isostep runs status DIR`.
    """
    chosen = {
        "schedule": schedule, "solver": solver, "steps": steps, "corrector": corrector, "clock": clock, "snr": snr,
        "scale": scale, "schedule_options": parse_options(option),
        "solver_options": solver_options(eta, temperature, clean_end),
    }  # fmt: skip
    common = {
        "seed": seed, "start": start, "calls": calls, "batch_size": batch_size, "weights": weights, "device": device,
    }  # fmt: skip
    from isostep.run.workers import count_workers

    count = count_workers(workers)
    if out is None:
        of_folders = {
            "--workers": count > 1, "--ray": ray is not None, "--threads": threads is not None,
            "--shard-size": shard_size is not None, "--trace": trace, "--sdf": sdf,
        }  # fmt: skip
        if needy := [name for name, given in of_folders.items() if given]:
            raise InputError(f"{needy[0]} needs a run folder: add --out DIR")
        try:
            summary = _in_memory(model, n, preset, **common, **chosen)
        except KeyboardInterrupt:
            raise Interrupted("nothing is kept without --out; with --out DIR a run can be continued") from None
    else:
        from isostep.run.engine import sample_run

        summary = sample_run(
            model, n, out, preset=preset, trace=trace, workers=count, ray=ray, threads=threads,
            shard_size=shard_size, sdf=sdf, **common, **chosen,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        print_summary(summary, out)
    if out is None:
        log.warning("the graphs are not kept: --out DIR writes them")


def _in_memory(model: str, n: int, preset: str | None, **options: Any) -> dict[str, Any]:
    from isostep.model.lookup import load_model
    from isostep.sampling.run import sample as draw

    loaded = load_model(model, options.pop("weights"), options["device"], preset)
    return draw(loaded, n, **options).summary()


def solver_options(eta: float | None, temperature: str | None, clean_end: bool | None = None) -> dict[str, Any]:
    """Options of the exponential solvers that have a flag of their own, those that are given."""
    tau = None if temperature is None else parse_temperature(temperature)
    given = {"eta": eta, "temperature": tau, "clean_end": clean_end}
    return {name: value for name, value in given.items() if value is not None}


def parse_temperature(text: str) -> Any:
    """`.85`, `.95:.85` from t = 0 to 1, or one for each component: `X=.6,A=.95:.85`."""
    try:
        if "=" not in text:
            return _number_or_two(text)
        pairs = [pair.split("=") for pair in text.split(",")]
        found = {name.strip(): _number_or_two(value) for name, value in pairs}
    except ValueError:
        raise InputError(f"--temperature takes a number or COMPONENT=number,..., got {text!r}") from None
    if len(found) < len(pairs) or "" in found:
        raise InputError(f"--temperature names every component once, got {text!r}")
    return found


def _number_or_two(text: str) -> float | list[float]:
    numbers = [float(part) for part in text.split(":")]
    return numbers if len(numbers) > 1 else numbers[0]


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """`key=value` pairs."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes key=value, got {pair!r}")
        with located(f"--set {key[:60]}"):
            options[key] = value_of(value)
    return options


def print_summary(summary: dict[str, Any], out: Path | None) -> None:
    typer.echo(f"{printable(summary['model'])}: {summary['graphs']} graphs")
    shown = {key.replace("_", " "): value for key, value in summary.items() if key not in ("model", "graphs")}
    print_table(("", ""), ((k, f"{v:.4g}" if isinstance(v, float) else v) for k, v in shown.items()))
    if summary["coupled"]:
        typer.echo(
            "Graphs of a batch share one clock here: a graph depends on its batch mates (--clock graph frees it)."
        )
    if out is not None:
        typer.echo(f"written to {printable(str(out))}")
