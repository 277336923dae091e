"""`isostep models`, `isostep import`, `isostep fetch`: which models there are, and how to get them here."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import typer

from isostep.base.text import print_table, printable

JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")


def register(app: typer.Typer) -> None:
    app.command("models")(models)
    app.command("import")(import_model)
    app.command("fetch")(fetch_model)


def models(
    folder: Path = typer.Option(Path("."), help="Also look for model folders in here."), as_json: bool = JSON
) -> None:
    """List embedded models, imported model folders, and released files that `isostep fetch` can get.

    `--json` adds family, sha256 and what is wrong with a folder that cannot be used.

    Example: `isostep models --folder runs`
    """
    from isostep.model.lookup import list_models

    rows = list_models([folder])
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    shown = ((row.name, row.where, row.dataset, row.weights, row.path or "not fetched") for row in rows)
    print_table(("name", "where", "dataset", "weights", "path"), shown)
    for row in rows:
        if row.problem:
            typer.echo(f"not usable: {printable(row.problem)}")
    if any(row.path is None for row in rows):
        typer.echo("`isostep fetch NAME` gets a known one.")


def import_model(
    file: Path = typer.Argument(help="A released GDSS or GruM .pth file."),
    out: Path = typer.Option(..., help="Model folder to write."),
    weights: str | None = typer.Option(None, help="ema or raw; default: what the preset says."),
    preset: str | None = typer.Option(None, help="Packaged preset's name or TOML file, for a file of another dataset."),
    half: bool = typer.Option(False, help="Store the weights in 16 bits."),
    force: bool = typer.Option(False, "--force", help="Replace a model that is in the folder."),
    as_json: bool = JSON,
) -> None:
    """Convert a released file to a model folder: model.json and model.safetensors.

    Example: `isostep import gdss_qm9.pth --out models/qm9`
    """
    from isostep.model.released.convert import import_released

    info = import_released(file, out, weights, preset, half, force)
    if as_json:
        typer.echo(info.model_dump_json())
    else:
        typer.echo(f"{info.name} ({info.family}, {info.dataset}, {info.weights} weights) written to {out}")


def fetch_model(
    name: str = typer.Argument(help="A known name of `isostep models`."),
    out: Path | None = typer.Option(None, help="Folder for the file; default: the cache, where its name is enough."),
    url: str | None = typer.Option(None, help="Mirror to use instead; also ISOSTEP_MODELS_URL."),
    as_json: bool = JSON,
) -> None:
    """Download a known released file, checked by its sha256; a broken download goes on where it stopped.

    Example: `isostep fetch gdss_qm9 && isostep sample gdss_qm9 -n 100`
    """
    from isostep.base.progress import progress
    from isostep.model.released.fetch import fetch
    from isostep.model.released.known import known_table

    known = known_table()[1].get(name)
    kept = "what is there of the file is kept; the same command goes on"
    with progress(f"fetching {name}", known.bytes if known else None, "bytes", kept=kept) as task:
        path = fetch(name, out, url, task)
    if as_json:
        typer.echo(json.dumps({"name": name, "path": str(path)}))
    else:
        typer.echo(str(path))
