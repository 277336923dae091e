"""The reference of a study: one that comes with the package, a file, or a dataset's splits, fitted once and cached; or,
where there are no data, graphs of the model's own long run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from isostep.base.cache import cache_folder
from isostep.base.errors import InputError
from isostep.base.files import sha256
from isostep.base.progress import log
from isostep.dataset.catalogue import CATALOGUE
from isostep.dataset.source import find
from isostep.item import Graph, Item, read_items
from isostep.metric.graph_reference import GraphReference
from isostep.metric.graph_summary import VERSION
from isostep.metric.mmd import Kernel
from isostep.metric.reference import Reference, Shipped, reference_file, shipped
from isostep.metric.suite import build_reference, fit_reference, load_reference, suite_of
from isostep.model import analytic
from isostep.model.model import Model
from isostep.run.engine import save_result
from isostep.sampling.calibrate import prepare
from isostep.sampling.run import sample
from isostep.settings.resolve import resolve
from isostep.study.plan import Arm
from isostep.study.record import RUN, key_of

SELF_SEED, PARTS = 3000, 4


class StudyReference(NamedTuple):
    name: str
    sha256: str
    reference: Reference
    kernel: Kernel | None
    rule: str | None = None  # of validity


def find_reference(name: str, kernel: Kernel | None) -> StudyReference:
    """By name or file; `kernel` falls back to the set's customary one."""
    path = _file(name)
    reference = load_reference(path)
    entry = shipped().get(_plain(name), Shipped(reference.kind))
    customary = suite_of(reference.kind).kernel(entry)
    return StudyReference(Path(name).name, sha256(path), reference, customary and (kernel or customary), entry.valid)


def _file(name: str) -> Path:
    """As `evaluate` finds it; besides, datasets that are fitted here."""
    plain = _plain(name)
    if plain in shipped() or Path(name).is_file():
        return reference_file(name)
    if name == analytic.NAME:
        return analytic_reference()
    if plain not in CATALOGUE:
        known = ", ".join({**shipped(), **CATALOGUE})
        raise InputError(f"no reference {name!r}: neither a file nor a known set; give one with --reference: {known}")
    entry = CATALOGUE[plain]
    path = cache_folder() / "reference" / f"{plain}-{find(plain, entry, None).fingerprint[:16]}.npz"
    return path if path.is_file() else _saved(build_reference(plain), path)


def analytic_reference() -> Path:
    """The analytic model's own law, half rings and half stars: a study of it has a known answer."""
    nodes = analytic.NODES
    ring = Graph.of(nodes, [(i, (i + 1) % nodes) for i in range(nodes)])
    star = Graph.of(nodes, [(0, i) for i in range(1, nodes)])
    path = cache_folder() / "reference" / f"v{VERSION}" / f"{analytic.NAME}.npz"
    return path if path.is_file() else _saved(GraphReference.fit([ring, star] * 20, [ring, star] * 20), path)


def _saved(reference: Reference, path: Path) -> Path:
    """In the cache or, where that cannot be written, in a folder that lives as long as this process."""
    try:
        reference.save(path)
    except InputError as error:
        log.warning("%s; the reference is fitted again the next time", error)
        path = Path(_own_folder().name) / path.name
        reference.save(path)
    return path


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="isostep-")


def self_reference(
    folder: Path, model: Model, long_run: Arm, n: int, batch_size: int, seed: int, tell: Callable[[str], None]
) -> Path:
    """PARTS times n graphs of the long run, on seeds of their own; a part that is there is not made again."""
    settings = prepare(model, resolve(model.info.sampler, clock="batch", **long_run.chosen))
    key = key_of([model.fingerprint(), settings.model_dump(mode="json"), n, batch_size, seed])
    path = folder / "self" / f"{key}-v{VERSION}.npz"
    if path.is_file():
        return path
    items: list[Item] = []
    for part in range(PARTS):
        place = folder / "self" / f"{key}-{part}"
        if not (place / RUN).is_file():
            tell(f"a reference from the long run, part {part + 1} of {PARTS}")
            result = sample(
                model, n, settings=settings, seed=seed + SELF_SEED + part, batch_size=batch_size, noise="path"
            )
            save_result(result, place, model.info.name)
        items += [item for _, item in read_items(place, model.info.kind)]
    fit_reference(items).save(path)
    return path


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
