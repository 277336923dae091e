"""`isostep data`: which datasets there are, where they come from, what they hold."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from isostep.base.text import print_table

if TYPE_CHECKING:
    from isostep.dataset import Dataset

FOLDER = typer.Option(None, help="Folder with the dataset's file; else ISOSTEP_DATA.")
JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")


def register(app: typer.Typer) -> None:
    """Add the `data` group."""
    group = typer.Typer(no_args_is_help=True, help="List, inspect and prepare benchmark datasets.")
    group.command("list")(list_datasets)
    group.command("info")(info)
    group.command("prepare")(prepare)
    app.add_typer(group, name="data")


def list_datasets(as_json: bool = JSON) -> None:
    """Every dataset and where it would come from. Example: `isostep data list`"""
    from isostep.base.errors import InputError
    from isostep.dataset.catalogue import CATALOGUE
    from isostep.dataset.source import find

    rows = []
    for name, entry in CATALOGUE.items():
        try:
            source = find(name, entry, None).label
        except InputError:
            source = None
        rows.append({"name": name, "kind": entry.holds.kind, "about": entry.about, "source": source})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    print_table(("name", "kind", "about", "source"), ([value or "not found" for value in row.values()] for row in rows))


def info(name: str, folder: Path | None = FOLDER, as_json: bool = JSON) -> None:
    """Sizes, splits and source of one dataset. Example: `isostep data info planar`"""
    from isostep.dataset import load

    _print(_summary(load(name, folder)), as_json)


def prepare(name: str, folder: Path | None = FOLDER, as_json: bool = JSON) -> None:
    """Parse a dataset into the cache, so that later loads take under a second. Example: `isostep data prepare qm9`"""
    from isostep.base.cache import cache_path
    from isostep.dataset import load, lookup
    from isostep.dataset.source import find

    start = time.perf_counter()
    dataset = load(name, folder)
    seconds = time.perf_counter() - start
    path = cache_path(dataset.name, find(*lookup(name), folder).fingerprint)
    cache = str(path) if path.is_file() else None
    _print({**_summary(dataset), "cache": cache, "seconds": round(seconds, 3)}, as_json)


def _summary(dataset: Dataset) -> dict[str, Any]:
    import numpy as np

    from isostep.dataset.data import SPLITS

    sizes = np.flatnonzero(dataset.node_counts("all"))
    spec = dataset.spec
    return {
        "name": dataset.title,
        "kind": dataset.kind,
        "source": dataset.source,
        **{split: len(dataset.rows(split)) for split in SPLITS},
        "nodes": [int(sizes[0]), int(sizes[-1])],
        "mean_edges": round(float(dataset.sizes[1].mean()), 2),
        **({} if spec is None else {"atoms": list(spec.atoms)}),
        **({"left_out": int(dataset.arrays["left_out"])} if "left_out" in dataset.arrays else {}),
    }


def _print(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    shown = {**summary, "nodes": "{} to {}".format(*summary["nodes"])}
    shown = {key: " ".join(value) if isinstance(value, list) else value for key, value in shown.items()}
    print_table(("", ""), [(key.replace("_", " "), str(value)) for key, value in shown.items()])
