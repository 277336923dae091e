"""`isostep plan`: what a long run will cost."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer


def plan(
    model: str = typer.Argument(help="Embedded name, model folder, released .pth file, or a fetched one's name."),
    n: int = typer.Option(1_000_000, "-n", "--number", min=1, help="How many graphs."),
    workers: int = typer.Option(1, min=1, help="Workers like this process."),
    schedule: str | None = typer.Option(None, help="As for `isostep sample`."),
    solver: str | None = typer.Option(None, help="As for `isostep sample`."),
    steps: int | None = typer.Option(None, min=1, help="As for `isostep sample`."),
    calls: int | None = typer.Option(None, min=1, help="As for `isostep sample`."),
    clock: str | None = typer.Option(None, help="As for `isostep sample`."),
    batch_size: int = typer.Option(256, min=1, help="Graphs integrated together."),
    shard_size: int | None = typer.Option(None, min=1, help="Graphs of a shard, a multiple of the batch size."),
    failures: float = typer.Option(0.0, min=0, help="Failures to expect, per worker and day."),
    threads: int = typer.Option(1, min=1, help="Threads of each worker."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Measure a step here and state the time, memory and disk of a long run.

    Example: `isostep plan grum-community-small -n 1000000 --workers 64`
    """
    import torch

    from isostep.base.text import duration
    from isostep.model.lookup import load_model
    from isostep.run.cost import estimate, measure_steps
    from isostep.run.format import shard_size_of
    from isostep.sampling.calibrate import prepare
    from isostep.sampling.extent import check_extent
    from isostep.settings.resolve import resolve

    check_extent(n, 0, batch_size)
    size = shard_size_of(batch_size, shard_size)
    torch.set_num_threads(threads)
    loaded = load_model(model, None, device)
    settings = resolve(loaded.info.sampler, calls, schedule=schedule, solver=solver, steps=steps, clock=clock)
    measured = measure_steps(loaded, prepare(loaded, settings, calls), batch_size)
    result = estimate(measured, n, workers, size, failures / 24)
    if as_json:
        step = sum(measured.step_seconds) / len(measured.step_seconds)
        typer.echo(json.dumps({**asdict(result), "step_seconds": step, "steps_per_batch": measured.steps}))
        return
    step = 1000 * sum(measured.step_seconds) / len(measured.step_seconds)
    typer.echo(f"{loaded.info.name}: {n} graphs in {result.shards} shards on {workers} workers of {threads} threads")
    typer.echo(f"measured here: {step:.3g} ms a step of {batch_size} graphs, {measured.steps:.4g} steps a batch")
    typer.echo(f"time    {duration(result.seconds)} (simulated: {duration(result.low)} to {duration(result.high)})")
    typer.echo(f"work    {duration(result.worker_seconds)} of one worker, {result.network_calls:.3g} network calls")
    typer.echo(f"memory  {result.memory_per_worker / 1e6:.0f} MB a worker")
    typer.echo(f"disk    {result.disk / 1e6:.3g} MB")
