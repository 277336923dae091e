"""`isostep train`: train a GruM or GDSS model from a TOML file or a preset."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def train(
    config: str = typer.Argument(None, help="A TOML file, or the name of a preset (see --list)."),
    out: Path = typer.Option(None, help="Run folder; default runs/NAME. A run found there is continued."),
    device: str = typer.Option("cpu", help="cpu, cuda, mps; with torchrun each process takes its own CUDA device."),
    export: str = typer.Option("best", help="Which checkpoint becomes OUT/model: best or last."),
    show: bool = typer.Option(False, "--list", help="List the presets and exit."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Train a model, or continue after an interruption, and write it as a model folder.

    Example: `isostep train grum-community-small --out runs/community`; several devices:
    `torchrun --nproc-per-node 4 --no-python isostep train grum-qm9-full --device cuda`.
    """
    from isostep.base.errors import InputError
    from isostep.training import presets

    if show or config is None:
        typer.echo(json.dumps(presets.names()) if as_json else "\n".join(presets.names()))
        return
    if export not in ("best", "last"):
        raise InputError(f"--export must be best or last, got {export!r}")

    from isostep.reporting.training import save_curve
    from isostep.training.config import load_config
    from isostep.training.log import LOG, TrainLog
    from isostep.training.run import train_run

    path = presets.find(config)
    loaded = load_config(path)
    folder = out or Path("runs") / loaded.name
    result = train_run(loaded, path, folder, device, export=export)
    if result is not None:
        save_curve(folder / "loss.png", TrainLog(folder / LOG))
        typer.echo(json.dumps(result) if as_json else _text(result, folder))


def _text(result: dict, folder: Path) -> str:
    return (
        f"{result['name']}: step {result['step']}, {result['seconds'] / 60:.1f} min, "
        f"best validation loss {result['best']:.4g}\nmodel folder: {result['model']}\n"
        f"losses and samples: {folder / 'loss.png'}; as a page: isostep report {folder}"
    )
