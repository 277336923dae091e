"""Benchmark datasets behind one interface: `load("qm9").split("train")`."""

from __future__ import annotations

from pathlib import Path

from isostep.base.cache import cached
from isostep.base.errors import InputError
from isostep.dataset.catalogue import CATALOGUE, Benchmark
from isostep.dataset.data import Dataset
from isostep.dataset.generate import generate_community, generate_planar, generate_sbm
from isostep.dataset.source import find

__all__ = ["Dataset", "generate_community", "generate_planar", "generate_sbm", "load", "lookup", "names"]


def names() -> list[str]:
    """Datasets that `load` knows."""
    return list(CATALOGUE)


def load(name: str, folder: str | Path | None = None) -> Dataset:
    """The dataset from `folder`, else from the first source that has it; parsed once, then cached."""
    name, entry = lookup(name)
    source = find(name, entry, folder)
    return entry.holds(name, source.label, entry.spec, cached(name, source.fingerprint, source.build))


def lookup(name: str) -> tuple[str, Benchmark]:
    """Catalogue name and entry; case and underscores do not matter."""
    plain = name.lower().replace("_", "-")
    if plain not in CATALOGUE:
        raise InputError(f"unknown dataset {name!r}; known are {', '.join(CATALOGUE)}")
    return plain, CATALOGUE[plain]
