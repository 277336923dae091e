"""The reference of a study: one that comes with the package, a file, or a dataset's splits, fitted once and cached."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from isostep.base.cache import cache_folder
from isostep.base.files import sha256
from isostep.dataset import lookup
from isostep.dataset.source import find
from isostep.metric.evaluate import FALLBACK_KERNEL
from isostep.metric.mmd import Kernel
from isostep.metric.reference import FOLDER, MoleculeReference, Reference, build_reference, load_reference, shipped
from isostep.model.toy import NAME as ANALYTIC
from isostep.model.toy import toy_reference


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
    if isinstance(reference, MoleculeReference):
        return StudyReference(name, sha256(path), reference, None)
    customary = shipped().get(_plain(name))
    return StudyReference(name, sha256(path), reference, kernel or (customary and customary.kernel) or FALLBACK_KERNEL)


def _file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    packaged = FOLDER / f"{_plain(name)}.npz"
    if packaged.is_file():
        return packaged
    if name == ANALYTIC:
        return toy_reference()
    plain, entry = lookup(name)
    path = cache_folder() / "reference" / f"{plain}-{find(plain, entry, None).fingerprint[:16]}.npz"
    if not path.is_file():
        build_reference(plain).save(path)
    return path


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
