"""The reference of a study: one that comes with the package, a file, or a dataset's splits, fitted once and cached."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from isostep.base.cache import cache_folder
from isostep.base.files import sha256
from isostep.dataset import lookup
from isostep.dataset.source import find
from isostep.item.graph import Graph
from isostep.metric.graph_reference import GraphReference
from isostep.metric.mmd import Kernel
from isostep.metric.reference import FOLDER, Reference, Shipped, load_reference, shipped
from isostep.metric.suite import build_reference, suite_of
from isostep.model import analytic


class StudyReference(NamedTuple):
    name: str
    sha256: str
    reference: Reference
    kernel: Kernel | None


def find_reference(name: str, kernel: Kernel | None) -> StudyReference:
    """By name or file; `kernel` falls back to the set's customary one."""
    path = _file(name)
    name = path.stem if path == Path(name) else name
    reference = load_reference(path)
    customary = suite_of(reference.kind).kernel(shipped().get(_plain(name), Shipped(reference.kind)))
    return StudyReference(name, sha256(path), reference, customary and (kernel or customary))


def _file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    packaged = FOLDER / f"{_plain(name)}.npz"
    if packaged.is_file():
        return packaged
    if name == analytic.NAME:
        return analytic_reference()
    plain, entry = lookup(name)
    path = cache_folder() / "reference" / f"{plain}-{find(plain, entry, None).fingerprint[:16]}.npz"
    if not path.is_file():
        build_reference(plain).save(path)
    return path


def analytic_reference() -> Path:
    """The analytic model's own law, half rings and half stars: a study of it has a known answer."""
    nodes = analytic.NODES
    ring = Graph.of(nodes, [(i, (i + 1) % nodes) for i in range(nodes)])
    star = Graph.of(nodes, [(0, i) for i in range(1, nodes)])
    path = cache_folder() / "reference" / f"{analytic.NAME}.npz"
    if not path.is_file():
        GraphReference.fit([ring, star] * 20, [ring, star] * 20).save(path)
    return path


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
